package gatewayapi_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestRolloutContract(t *testing.T) {
	admission := traffictest.NewAdmission(t, "sigs.k8s.io/gateway-api",
		"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
		"config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml",
		"config/crd/experimental/gateway.networking.k8s.io_tcproutes.yaml",
		"config/crd/experimental/gateway.networking.k8s.io_tlsroutes.yaml")
	for name, configuration := range map[string]string{
		"http":     `{"httpRoute":"cart"}`,
		"grpc":     `{"grpcRoute":"cart"}`,
		"tcp":      `{"tcpRoute":"cart","disableInProgressLabel":true}`,
		"selector": `{"tlsRouteSelector":{"matchLabels":{"app":"cart"}}}`,
		"several":  `{"httpRoutes":[{"name":"cart","useHeaderRoutes":true},{"name":"plain"}],"grpcRoutes":[{"name":"cart","useHeaderRoutes":true}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			traffictest.Run(t, gatewayapi.NewRollout(), traffictest.Options{
				Provider: gatewayapi.PluginName, Admission: admission, Given: routes,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) {
					ro.Spec.Strategy.Canary.TrafficRouting.Plugins = map[string]json.RawMessage{gatewayapi.PluginName: json.RawMessage(configuration)}
				},
			})
		})
	}
}

// routes are those of a user, of every kind and name that a configuration asks for.
func routes(t traffic.Target) []*unstructured.Unstructured {
	backend := func(name string, weight int64) any {
		return map[string]any{"name": name, "port": int64(80), "weight": weight}
	}
	both := func() []any {
		return []any{backend("cart-stable", 100), backend("cart-canary", 0), backend("legacy", 7)}
	}
	rules := map[string][]any{
		"HTTPRoute": {
			map[string]any{"backendRefs": both(), "timeouts": map[string]any{"request": "10s"}},
			map[string]any{"backendRefs": both(), "matches": []any{map[string]any{"path": map[string]any{"type": "Exact", "value": "/cart"}}}},
			map[string]any{"backendRefs": []any{backend("cart-canary", 1)}, "name": "preview"},
		},
		"GRPCRoute": {map[string]any{"backendRefs": both(), "matches": []any{map[string]any{"method": map[string]any{"service": "cart.v1.Cart"}}}}},
		"TCPRoute":  {map[string]any{"backendRefs": both()}},
		"TLSRoute":  {map[string]any{"backendRefs": both()}},
	}
	var out []*unstructured.Unstructured
	for _, ref := range gatewayapi.NewRollout().Refs(t, release.Route{}, nil) {
		obj := traffictest.NewObject(ref, map[string]any{
			"parentRefs": []any{map[string]any{"name": "edge"}}, "rules": rules[ref.GVK.Kind],
		})
		if ref.GVK.Kind == "TLSRoute" {
			obj.Object["spec"].(map[string]any)["hostnames"] = []any{"cart.example.com"}
		}
		if ref.Selector != "" {
			obj.SetName("found")
		}
		obj.SetLabels(map[string]string{"app": "cart"})
		out = append(out, obj)
	}
	return out
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, gatewayapi.NewRollout(), gatewayapi.PluginName, "testdata/rollout")
}
