package traefik_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/traefik"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.NewAdmissionOf(t, "github.com/traefik/traefik/v3",
		"docs/content/reference/dynamic-configuration/traefik.io_traefikservices.yaml")
	traffictest.Run(t, traefik.New(), traffictest.Options{Provider: "traefik", Admission: admission})
}

func TestGolden(t *testing.T) { traffictest.Golden(t, traefik.New(), "traefik", "testdata/golden") }

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) {
	traffictest.Recorded(t, traefik.New(), "traefik", 6, []traffictest.Difference{{
		Case: "traefik-blue-green", Object: "TraefikService/cart", Version: 1,
		Why: "a weight of 0 is written, because Traefik reads a missing weight as 1",
	}})
}

func TestRolloutContract(t *testing.T) {
	admission := traffictest.NewAdmissionOf(t, "github.com/traefik/traefik/v3",
		"docs/content/reference/dynamic-configuration/traefik.io_traefikservices.yaml")
	traffictest.Run(t, traefik.NewRollout(""), traffictest.Options{
		Provider: "traefik", Admission: admission,
		Rollout: func(_ *rapid.T, ro *argov1.Rollout) {
			ro.Spec.Strategy.Canary.TrafficRouting.Traefik = &argov1.TraefikTrafficRouting{WeightedTraefikServiceName: "shop"}
		},
		Given: func(t traffic.Target) []*unstructured.Unstructured {
			ref := traefik.NewRollout("").Refs(t, release.Route{}, nil)[0]
			obj := traffictest.NewObject(ref, map[string]any{"weighted": map[string]any{"services": []any{
				map[string]any{"name": "cart-stable", "port": int64(80), "weight": int64(100), "scheme": "h2c"},
				map[string]any{"name": "cart-canary", "port": int64(80), "weight": int64(0), "namespace": "web"},
				map[string]any{"name": "cart-canary", "port": int64(80), "weight": int64(3), "namespace": "elsewhere"},
			}}})
			return []*unstructured.Unstructured{obj}
		},
	})
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, traefik.NewRollout(""), "traefik", "testdata/rollout")
}

func TestRolloutAPI(t *testing.T) {
	target := traffic.Target{Rollout: &argov1.Rollout{}}
	got := traefik.NewRollout("traefik.containo.us/v1alpha1").Refs(target, release.Route{}, nil)[0].GVK.String()
	if want := "traefik.containo.us/v1alpha1, Kind=TraefikService"; got != want {
		t.Errorf("writes %s, want %s", got, want)
	}
}
