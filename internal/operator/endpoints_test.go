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

// Permissions of a version that did not read endpoints must not prevent Serin from starting; an API server that does not
// answer must.
func TestSerinStartsWithoutPermissionToReadEndpoints(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer error
		unread bool
		fails  bool
	}{
		{name: "permitted"},
		{name: "forbidden", answer: apierrors.NewForbidden(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, "", nil), unread: true},
		{name: "the cluster does not answer", answer: errors.New("connection refused"), fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			listed := ""
			reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).Build(), interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) error {
					options := client.ListOptions{}
					options.ApplyOptions(opts)
					listed = options.Namespace
					return tc.answer
				},
			})
			unread, err := endpointsUnreadable(t.Context(), reader, "shop")
			if (unread != "") != tc.unread || (err != nil) != tc.fails {
				t.Errorf("got %q and error %v, want unread %v and an error %v", unread, err, tc.unread, tc.fails)
			}
			if listed != "shop" {
				t.Errorf("listed namespace %q, want shop", listed)
			}
		})
	}
}

// indexCounter counts the calls of IndexField by field.
type indexCounter map[string]int

func (i indexCounter) IndexField(_ context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	i[field]++
	return nil
}

// A cache accepts an index once, and the index of a kind that may not be read would start a watch of it.
func TestEndpointsAreIndexedOnceForAllAPIs(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, "", nil)
	for _, answer := range []error{nil, refused} {
		lists, indexed, slices := 0, indexCounter{}, &endpointSliceCache{}
		reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).Build(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				lists++
				return answer
			},
		})
		want := 1
		if answer != nil {
			want = 0
		}
		for range 2 {
			unread, err := slices.prepare(t.Context(), reader, indexed, "", logr.Discard())
			if (unread != "") != (answer != nil) || err != nil || lists != 1 || indexed["service"] != want {
				t.Errorf("answer %v: got %q, error %v; listed %d times, indexed %v", answer, unread, err, lists, indexed)
			}
		}
	}
}
