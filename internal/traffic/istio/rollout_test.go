package istio_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestRolloutContract(t *testing.T) {
	admission := traffictest.NewAdmission(t, "istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml")
	subsets := &argov1.IstioDestinationRule{Name: "cart", CanarySubsetName: "canary", StableSubsetName: "stable", AdditionalSubsetNames: []string{"extra"}}
	for name, routing := range map[string]argov1.IstioTrafficRouting{
		"hosts":   {VirtualService: &argov1.IstioVirtualService{Name: "cart", Routes: []string{"main"}}},
		"subsets": {VirtualService: &argov1.IstioVirtualService{Name: "cart.mesh.svc.cluster.local"}, DestinationRule: subsets},
		"several": {VirtualServices: []argov1.IstioVirtualService{
			{Name: "cart", Routes: []string{"main"}, TLSRoutes: []argov1.TLSRoute{{Port: 443, SNIHosts: []string{"b.example.com", "a.example.com"}}}},
			{Name: "other.edge", TCPRoutes: []argov1.TCPRoute{{Port: 70}}},
		}, DestinationRule: subsets},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version := "v1beta1"
			if name == "hosts" {
				version = ""
			}
			traffictest.Run(t, istio.NewRollout(version), traffictest.Options{
				Provider: "istio", Admission: admission,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) {
					ro.Spec.Strategy.Canary.TrafficRouting.Istio = &routing
					if routing.DestinationRule != nil {
						ro.Spec.Strategy.Canary.CanaryService, ro.Spec.Strategy.Canary.StableService = "", ""
					}
				},
				Given: func(t traffic.Target) []*unstructured.Unstructured { return meshObjects(t, version) },
			})
		})
	}
}

// meshObjects are those of a user: routes of all protocols, with a destination of somebody else, and a rule with subsets.
func meshObjects(t traffic.Target, version string) []*unstructured.Unstructured {
	rule := t.Routing().Istio.DestinationRule
	destination := func(service, subset string, weight int64) any {
		to := map[string]any{"host": service + ".web.svc.cluster.local"}
		if rule != nil {
			to = map[string]any{"host": "cart", "subset": subset}
		}
		to["port"] = map[string]any{"number": int64(8080)}
		return map[string]any{"destination": to, "weight": weight}
	}
	both := func() []any {
		return []any{destination("cart-stable", "stable", 93), destination("cart-canary", "canary", 0), destination("legacy", "extra", 7)}
	}
	var out []*unstructured.Unstructured
	for _, ref := range istio.NewRollout(version).Refs(t, release.Route{}, nil) {
		spec := map[string]any{
			"hosts": []any{"cart"},
			"http": []any{
				map[string]any{"name": "main", "timeout": "10s", "route": both()},
			},
			"tcp": []any{map[string]any{"match": []any{map[string]any{"port": int64(70)}}, "route": both()}},
			"tls": []any{map[string]any{"match": []any{map[string]any{"port": int64(443), "sniHosts": []any{"a.example.com", "b.example.com"}}}, "route": both()}},
		}
		if ref.GVK.Kind == "DestinationRule" {
			spec = map[string]any{"host": "cart", "subsets": []any{
				map[string]any{"name": "stable", "labels": map[string]any{"app": "cart"}}, map[string]any{"name": "canary"}, map[string]any{"name": "extra"},
			}}
		}
		out = append(out, traffictest.NewObject(ref, spec))
	}
	return out
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, istio.NewRollout(""), "istio", "testdata/rollout")
}
