package contour_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/contour"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.NewAdmissionOf(t, "github.com/projectcontour/contour", "examples/contour/01-crds.yaml")
	for _, class := range []string{"", "edge"} {
		t.Run(class, func(t *testing.T) {
			traffictest.Run(t, contour.New(class), traffictest.Options{Provider: "contour", Admission: admission})
		})
	}
}

func TestGolden(t *testing.T) {
	traffictest.Golden(t, contour.New(""), "contour", "testdata/golden")
	traffictest.Golden(t, contour.New("edge"), "contour", "testdata/golden-class")
}

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) {
	traffictest.Recorded(t, contour.New(""), "contour", 7, []traffictest.Difference{
		zero("contour-weighted", 0), zero("contour-weighted", 3), zero("contour-rollback", 0), zero("contour-rollback", 2),
	})
}

func zero(name string, version int) traffictest.Difference {
	return traffictest.Difference{Case: name, Object: "HTTPProxy/cart", Version: version, Why: "a weight of 0 is written"}
}

func TestRolloutContract(t *testing.T) {
	admission := traffictest.NewAdmissionOf(t, "github.com/projectcontour/contour", "examples/contour/01-crds.yaml")
	traffictest.Run(t, contour.NewRollout(), traffictest.Options{
		Provider: contour.PluginName, Admission: admission, Given: httpProxies,
		Rollout: func(t *rapid.T, ro *argov1.Rollout) {
			configuration := rapid.SampledFrom([]string{`{"httpProxy":"shop"}`, `{"httpProxies":["shop","intranet"]}`}).Draw(t, "configuration")
			ro.Spec.Strategy.Canary.TrafficRouting.Plugins = map[string]json.RawMessage{contour.PluginName: json.RawMessage(configuration)}
		},
	})
}

// httpProxies are those of a user: two routes with both Services, one without, and a TCP proxy.
func httpProxies(t traffic.Target) []*unstructured.Unstructured {
	service := func(name string, weight int64) any {
		return map[string]any{"name": name, "port": int64(80), "weight": weight}
	}
	both := func() []any {
		return []any{service("cart-stable", 100), service("cart-canary", 0), service("legacy", 7)}
	}
	var out []*unstructured.Unstructured
	for _, ref := range contour.NewRollout().Refs(t, release.Route{}, nil) {
		out = append(out, traffictest.NewObject(ref, map[string]any{
			"virtualhost": map[string]any{"fqdn": ref.Name + ".example.com"},
			"routes": []any{
				map[string]any{"conditions": []any{map[string]any{"prefix": "/cart"}}, "services": both()},
				map[string]any{"conditions": []any{map[string]any{"prefix": "/"}}, "services": both()},
				map[string]any{"conditions": []any{map[string]any{"prefix": "/preview"}}, "services": []any{service("cart-canary", 1)}},
			},
			"tcpproxy": map[string]any{"services": both()},
		}))
	}
	return out
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, contour.NewRollout(), contour.PluginName, "testdata/rollout")
}
