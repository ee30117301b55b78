package ambassador_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/ambassador"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestRolloutContract(t *testing.T) {
	admission := traffictest.LocalAdmission(t, "testdata/definitions.yaml")
	for _, api := range []string{"", "getambassador.io/v3alpha1"} {
		t.Run(api, func(t *testing.T) {
			rd := ambassador.NewRollout(api)
			traffictest.Run(t, rd, traffictest.Options{
				Provider: "ambassador", Admission: admission,
				Rollout: func(t *rapid.T, ro *argov1.Rollout) {
					ro.Spec.Strategy.Canary.TrafficRouting.Ambassador = &argov1.AmbassadorTrafficRouting{
						Mappings: rapid.SampledFrom([][]string{{"shop"}, {"shop", "intranet"}}).Draw(t, "mappings"),
					}
				},
				Given: func(t traffic.Target) []*unstructured.Unstructured {
					var out []*unstructured.Unstructured
					for _, ref := range rd.Refs(t, release.Route{}, nil) {
						if ref.Owned {
							continue
						}
						obj := traffictest.NewObject(ref, map[string]any{
							"prefix": "/cart", "service": "cart-stable.web:80", "timeout_ms": int64(3000),
						})
						out = append(out, obj)
					}
					return out
				},
			})
		})
	}
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, ambassador.NewRollout(""), "ambassador", "testdata/rollout")
}

func TestRolloutAPI(t *testing.T) {
	ro := &argov1.Rollout{}
	ro.Spec.Strategy.Canary = &argov1.CanaryStrategy{TrafficRouting: &argov1.RolloutTrafficRouting{
		Ambassador: &argov1.AmbassadorTrafficRouting{Mappings: []string{"shop"}},
	}}
	target := traffic.Target{Rollout: ro}
	for api, want := range map[string]string{
		"":                            "getambassador.io/v2, Kind=Mapping",
		"getambassador.io/v3alpha1":   "getambassador.io/v3alpha1, Kind=Mapping",
		"x.getambassador.io/v3alpha1": "x.getambassador.io/v3alpha1, Kind=AmbassadorMapping",
	} {
		if got := ambassador.NewRollout(api).Refs(target, release.Route{}, nil)[0].GVK.String(); got != want {
			t.Errorf("%q writes %s, want %s", api, got, want)
		}
	}
}
