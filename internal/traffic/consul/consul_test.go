package consul_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/consul"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestRolloutContract(t *testing.T) {
	admission := traffictest.LocalAdmission(t, "testdata/definitions.yaml")
	const annotation = "consul.hashicorp.com/service-meta-version"
	traffictest.Run(t, consul.NewRollout(), traffictest.Options{
		Provider: consul.PluginName, Admission: admission, Given: objects,
		PodAnnotations: map[string]map[string]string{"6d4f": {annotation: "2"}, "77c9": {annotation: "1.2-rc"}},
		Rollout: func(_ *rapid.T, ro *argov1.Rollout) {
			ro.Spec.Template.Annotations = map[string]string{annotation: "2"}
			ro.Spec.Strategy.Canary.TrafficRouting.Plugins = map[string]json.RawMessage{
				consul.PluginName: json.RawMessage(`{"serviceName":"cart","canarySubsetName":"canary","stableSubsetName":"stable"}`),
			}
		},
	})
}

// objects are those of a user, with another subset.
func objects(t traffic.Target) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, ref := range consul.NewRollout().Refs(t, release.Route{}, nil) {
		spec := map[string]any{"splits": []any{
			map[string]any{"weight": int64(100), "serviceSubset": "stable"}, map[string]any{"weight": int64(0), "serviceSubset": "canary"},
		}}
		if ref.SelectsPods {
			subset := func() any { return map[string]any{"filter": "", "onlyPassing": true} }
			spec = map[string]any{"defaultSubset": "stable", "subsets": map[string]any{"stable": subset(), "canary": subset(), "other": subset()}}
		}
		out = append(out, traffictest.NewObject(ref, spec))
	}
	return out
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, consul.NewRollout(), consul.PluginName, "testdata/rollout")
}
