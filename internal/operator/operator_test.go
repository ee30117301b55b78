package operator

import (
	"context"
	"errors"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
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
			unread, err := endpointsUnread(t.Context(), reader, "shop")
			if (unread != "") != tc.unread || (err != nil) != tc.fails {
				t.Errorf("got %q and error %v, want unread %v and an error %v", unread, err, tc.unread, tc.fails)
			}
			if asked != "shop" {
				t.Errorf("asked in namespace %q, want shop", asked)
			}
		})
	}
}

func TestEachInstanceHasALeaseOfItsOwn(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"", "blue", "green", "Blue", "a_b", "a.b", strings.Repeat("x", 63), strings.Repeat("X", 63)} {
		name := LeaseName(id)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%q: Lease %q: %v", id, name, problems)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("%q and %q share Lease %q", id, other, name)
		}
		seen[name] = id
	}
	if LeaseName("") != "serin" || LeaseName("blue") != "serin-blue" {
		t.Errorf("Leases %q, %q: permissions name them", LeaseName(""), LeaseName("blue"))
	}
}
