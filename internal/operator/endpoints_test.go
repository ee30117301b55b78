package operator

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Rights that were given before Serin read endpoints must not keep it from starting; a cluster that does not answer must.
func TestEndpointsThatMayNotBeReadAreDoneWithout(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer error
		unread bool
		fails  bool
	}{
		{name: "they may be read"},
		{name: "they may not", answer: apierrors.NewForbidden(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, "", nil), unread: true},
		{name: "the cluster does not answer", answer: errors.New("connection refused"), fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := ""
			reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).Build(), interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) error {
					options := client.ListOptions{}
					options.ApplyOptions(opts)
					asked = options.Namespace
					return tc.answer
				},
			})
			unread, err := endpointsUnreadable(t.Context(), reader, "shop")
			if (unread != "") != tc.unread || (err != nil) != tc.fails {
				t.Errorf("got %q and error %v, want unread %v and an error %v", unread, err, tc.unread, tc.fails)
			}
			if asked != "shop" {
				t.Errorf("asked in namespace %q, want shop", asked)
			}
		})
	}
}

// indexer counts what is indexed.
type indexer map[string]int

func (i indexer) IndexField(_ context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	i[field]++
	return nil
}

// A cache takes an index once, and an index of what may not be read would begin to watch it.
func TestEndpointsAreIndexedOnceForAllAPIs(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, "", nil)
	for _, answer := range []error{nil, refused} {
		asked, indexed, slices := 0, indexer{}, &endpointSliceCache{}
		reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).Build(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				asked++
				return answer
			},
		})
		want := 1
		if answer != nil {
			want = 0
		}
		for range 2 {
			unread, err := slices.prepare(t.Context(), reader, indexed, "", logr.Discard())
			if (unread != "") != (answer != nil) || err != nil || asked != 1 || indexed["service"] != want {
				t.Errorf("answer %v: got %q, error %v; asked %d times, indexed %v", answer, unread, err, asked, indexed)
			}
		}
	}
}
