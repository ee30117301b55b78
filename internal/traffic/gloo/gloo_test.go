package gloo_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/gloo"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.LocalAdmission(t, "testdata/definitions.yaml")
	t.Run("alone", func(t *testing.T) {
		traffictest.Run(t, gloo.New(nil), traffictest.Options{Provider: "gloo", Admission: admission, Remains: remains})
	})
	t.Run("after a pattern", func(t *testing.T) {
		traffictest.Run(t, gloo.New([]string{"team"}), traffictest.Options{
			Provider: "gloo", Admission: admission, Canary: patterned, Given: pattern, Remains: remains,
		})
	})
}

// remains is the Upstream that remains with the name of the primary.
func remains(t traffic.Target) []string {
	return []string{gloo.New(nil).Refs(t, release.Route{}, nil)[0].Name}
}

func patterned(t *rapid.T, c *flaggerv1.Canary) {
	c.Spec.UpstreamRef = &flaggerv1.UpstreamReference{
		APIVersion: "gloo.solo.io/v1", Kind: "Upstream", Name: "pattern",
		Namespace: rapid.SampledFrom([]string{"", "gloo-system"}).Draw(t, "namespace of the pattern"),
	}
}

// pattern is an Upstream of a user.
func pattern(t traffic.Target) []*unstructured.Unstructured {
	refs := gloo.New(nil).Refs(t, release.Route{}, nil)
	obj := traffictest.NewObject(refs[len(refs)-1], map[string]any{
		"connectionConfig": map[string]any{"maxRequestsPerConnection": int64(32)},
		"useHttp2":         true,
		"kube":             map[string]any{"serviceName": "other"},
	})
	obj.SetLabels(map[string]string{"team": "shop"})
	return []*unstructured.Unstructured{obj}
}

func TestGolden(t *testing.T) {
	traffictest.Golden(t, gloo.New([]string{"team"}), "gloo", "testdata/golden")
}

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) {
	differs := func(name string, version int, why string) traffictest.Difference {
		return traffictest.Difference{Case: name, Object: "RouteTable/cart", Version: version, Why: why}
	}
	const zero, rest = "a weight of 0 is written", "there is a second route for requests that do not match"
	traffictest.Recorded(t, gloo.New(nil), "gloo", 11, []traffictest.Difference{
		differs("gloo-weighted", 0, zero), differs("gloo-weighted", 3, zero),
		differs("gloo-ab", 0, rest), differs("gloo-ab", 1, rest), differs("gloo-ab", 2, rest),
	})
}

func TestRolloutContract(t *testing.T) {
	admission := traffictest.LocalAdmission(t, "testdata/definitions.yaml")
	for name, configuration := range map[string]string{
		"route table":     `{"routeTable":{"name":"shop","namespace":"gloo-system"},"routes":["main","cart"]}`,
		"labels":          `{"routeTable":{"labels":{"app":"cart"}},"routes":["main"]}`,
		"virtual service": `{"virtualService":{"name":"shop"},"routes":["main","cart"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			traffictest.Run(t, gloo.NewRollout(), traffictest.Options{
				Provider: gloo.PluginName, Admission: admission, Given: routingObjects,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) {
					ro.Spec.Strategy.Canary.TrafficRouting.Plugins = map[string]json.RawMessage{gloo.PluginName: json.RawMessage(configuration)}
				},
			})
		})
	}
}

// routingObjects are those of a user, with two routes to both Upstreams and one to another.
func routingObjects(t traffic.Target) []*unstructured.Unstructured {
	destination := func(name string, weight int64) any {
		return map[string]any{"destination": map[string]any{"upstream": map[string]any{"name": name, "namespace": "web"}}, "weight": weight}
	}
	route := func(name string, destinations ...any) any {
		return map[string]any{
			"name": name, "matchers": []any{map[string]any{"prefix": "/" + name}},
			"routeAction": map[string]any{"multi": map[string]any{"destinations": destinations}},
		}
	}
	var out []*unstructured.Unstructured
	for _, ref := range gloo.NewRollout().Refs(t, release.Route{}, nil) {
		routes := []any{
			route("main", destination("cart-stable", 100), destination("cart-canary", 0), destination("legacy", 7)),
			route("cart", destination("cart-canary", 0), destination("cart-stable", 100)),
			route("other", destination("other", 1)),
		}
		spec := map[string]any{"routes": routes}
		if ref.GVK.Kind == "VirtualService" {
			spec = map[string]any{"virtualHost": map[string]any{"domains": []any{"*"}, "routes": routes}}
		}
		obj := traffictest.NewObject(ref, spec)
		if ref.Selector != "" {
			obj.SetName("found")
		}
		obj.SetLabels(map[string]string{"app": "cart"})
		out = append(out, obj)
	}
	return out
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, gloo.NewRollout(), gloo.PluginName, "testdata/rollout")
}
