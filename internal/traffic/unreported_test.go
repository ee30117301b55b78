package traffic_test

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/traffic"
)

// oneAnswer is a reader that always returns the same error.
type oneAnswer struct {
	client.Reader
	err error
}

func (r oneAnswer) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return r.err
}

func TestAParentWithoutReportIsDescribedByWhetherItExists(t *testing.T) {
	gateways := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}
	routes := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	u := traffic.UnreportedParent{
		Route: traffic.Ref{GVK: routes, Namespace: "shop", Name: "cart"}, Parent: traffic.Ref{GVK: gateways, Namespace: "edge", Name: "gatway"},
		Field: "spec.service.gatewayRefs",
	}
	const unknown = "no controller has reported on HTTPRoute cart.shop for Gateway gatway.edge: does it exist?"
	const missing = "Gateway gatway.edge does not exist, so HTTPRoute cart.shop routes no requests from it: create it, or correct spec.service.gatewayRefs"
	resource := schema.GroupResource{Group: gateways.Group, Resource: "gateways"}
	for _, test := range []struct {
		name string
		live client.Reader
		want string
	}{
		{"no reader", nil, unknown},
		{"exists", oneAnswer{}, "no controller has reported on HTTPRoute cart.shop for Gateway gatway.edge, which exists: does the controller of its class run?"},
		{"does not exist", oneAnswer{err: apierrors.NewNotFound(resource, "gatway")}, missing},
		{"no permission", oneAnswer{err: apierrors.NewForbidden(resource, "gatway", errors.New("no"))}, unknown},
	} {
		if got := (&traffic.Applier{APIReader: test.live}).DescribeUnreported(t.Context(), u); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
}
