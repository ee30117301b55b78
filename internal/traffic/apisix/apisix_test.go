package apisix_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/apisix"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	traffictest.Run(t, apisix.New(), traffictest.Options{
		Provider: "apisix", Admission: traffictest.LocalAdmission(t, "testdata/definitions.yaml"), Canary: withRouteRef, Given: users, Copies: true,
	})
}

func withRouteRef(_ *rapid.T, c *flaggerv1.Canary) {
	c.Spec.RouteRef = &flaggerv1.RouteReference{APIVersion: "apisix.apache.org/v2", Kind: "ApisixRoute", Name: "shop"}
}

// users is an ApisixRoute of a user.
func users(t traffic.Target) []*unstructured.Unstructured {
	rule := func(name, service string) any {
		return map[string]any{
			"name": name, "match": map[string]any{"paths": []any{"/" + name}, "hosts": []any{"shop.example.com"}},
			"backends": []any{map[string]any{"serviceName": service, "servicePort": "http", "resolveGranularity": "service"}},
		}
	}
	ref := apisix.New().Refs(t, release.Route{}, nil)[0]
	obj := traffictest.NewObject(ref, map[string]any{
		"ingressClassName": "apisix", "http": []any{rule("other", "other"), rule("cart", t.Apex)},
	})
	obj.SetAnnotations(map[string]string{"example.com/owner": "shop", "argocd.argoproj.io/tracking-id": "shop"})
	return []*unstructured.Unstructured{obj}
}

func TestGolden(t *testing.T) { traffictest.Golden(t, apisix.New(), "apisix", "testdata/golden") }

func TestRolloutContract(t *testing.T) {
	for name, rules := range map[string][]string{"by name": {"main", "second"}, "by default": nil} {
		t.Run(name, func(t *testing.T) {
			traffictest.Run(t, apisix.NewRollout(), traffictest.Options{
				Provider: "apisix", Admission: traffictest.LocalAdmission(t, "testdata/definitions.yaml"), Copies: true,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) {
					ro.Spec.Strategy.Canary.TrafficRouting.Apisix = &argov1.ApisixTrafficRouting{Route: &argov1.ApisixRoute{Name: "shop", Rules: rules}}
				},
				Given: usersRoute,
			})
		})
	}
}

func usersRoute(t traffic.Target) []*unstructured.Unstructured {
	rule := func(name string) any {
		return map[string]any{
			"name": name, "match": map[string]any{"paths": []any{"/" + name}, "exprs": []any{map[string]any{"op": "Equal", "value": "x"}}},
			"backends": []any{
				map[string]any{"serviceName": "cart-stable", "servicePort": int64(80), "weight": int64(100)},
				map[string]any{"serviceName": "cart-canary", "servicePort": int64(80), "weight": int64(0), "resolveGranularity": "service"},
			},
		}
	}
	ref := apisix.NewRollout().Refs(t, release.Route{}, nil)[0]
	obj := traffictest.NewObject(ref, map[string]any{
		"ingressClassName": "apisix", "http": []any{rule("main"), rule("shop"), rule("second")},
	})
	obj.SetAnnotations(map[string]string{"example.com/owner": "shop", "argocd.argoproj.io/tracking-id": "shop"})
	return []*unstructured.Unstructured{obj}
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, apisix.NewRollout(), "apisix", "testdata/rollout")
}
