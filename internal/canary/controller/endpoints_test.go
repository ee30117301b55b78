package controller

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/watching"
)

func TestOnlyAChangedNumberOfEndpointsRequeuesARelease(t *testing.T) {
	slice := func(endpoints int) *discoveryv1.EndpointSlice {
		labels := map[string]string{discoveryv1.LabelServiceName: "cart-canary"}
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "cart-canary-abcde", Namespace: "shop", Labels: labels}, Endpoints: make([]discoveryv1.Endpoint, endpoints),
		}
	}
	r := New(Parts{})
	r.dependents.Set(types.NamespacedName{Namespace: "shop", Name: "cart"}, []watching.Object{endpoints.Of("shop", "cart-canary")})
	if got := r.AffectedReleases(t.Context(), endpoints.Kind, slice(1), slice(1)); len(got) != 0 {
		t.Errorf("an unchanged number requeues %v, want none", got)
	}
	if got := r.AffectedReleases(t.Context(), endpoints.Kind, slice(1), slice(2)); len(got) != 1 {
		t.Errorf("another endpoint requeues %v, want its Canary", got)
	}
}
