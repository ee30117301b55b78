package openshift_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/openshift"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestRolloutContract(t *testing.T) {
	admission := traffictest.LocalAdmission(t, "testdata/definitions.yaml")
	traffictest.Run(t, openshift.NewRollout(), traffictest.Options{
		Provider: openshift.PluginName, Admission: admission, Given: routes,
		Rollout: func(t *rapid.T, ro *argov1.Rollout) {
			configuration := rapid.SampledFrom([]string{`{"routes":["shop"]}`, `{"routes":["shop","edge/shop","shop"]}`}).Draw(t, "configuration")
			ro.Spec.Strategy.Canary.TrafficRouting.Plugins = map[string]json.RawMessage{openshift.PluginName: json.RawMessage(configuration)}
		},
	})
}

// routes are those of a user, with another backend.
func routes(t traffic.Target) []*unstructured.Unstructured {
	backend := func(name string, weight int64) map[string]any {
		return map[string]any{"kind": "Service", "name": name, "weight": weight}
	}
	var out []*unstructured.Unstructured
	for _, ref := range openshift.NewRollout().Refs(t, release.Route{}, nil) {
		out = append(out, traffictest.NewObject(ref, map[string]any{
			"host": "shop.example.com", "port": map[string]any{"targetPort": "http"}, "wildcardPolicy": "None",
			"to": backend("cart-stable", 100), "alternateBackends": []any{backend("legacy", 7), backend("cart-canary", 0)},
		}))
	}
	return out
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, openshift.NewRollout(), openshift.PluginName, "testdata/rollout")
}
