package smi_test

import (
	"testing"

	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/traffic/smi"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

// providers are all that a TrafficSplit serves.
var providers = map[string]smi.Version{
	"linkerd": smi.V1Alpha1, "osm": smi.V1Alpha2,
	"smi:v1alpha1": smi.V1Alpha1, "smi:v1alpha2": smi.V1Alpha2, "smi:v1alpha3": smi.V1Alpha3,
	"smi:v1alpha1:istio": smi.V1Alpha1, "smi:v1alpha3:istio": smi.V1Alpha3,
}

func TestContract(t *testing.T) {
	admission := traffictest.LocalAdmission(t, "testdata/crds/trafficsplits.yaml")
	for provider, version := range providers {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			traffictest.Run(t, smi.New(version), traffictest.Options{
				Provider: provider, Admission: admission,
				Canary: func(t *rapid.T, c *flaggerv1.Canary) {
					c.Spec.Service.Gateways = rapid.SampledFrom([][]string{nil, {"mesh", "infra/public"}}).Draw(t, "gateways")
				},
			})
		})
	}
}

func TestGolden(t *testing.T) {
	traffictest.Golden(t, smi.New(smi.V1Alpha1), "linkerd", "testdata/golden/linkerd")
	traffictest.Golden(t, smi.New(smi.V1Alpha2), "osm", "testdata/golden/osm")
	traffictest.Golden(t, smi.New(smi.V1Alpha1), "smi:v1alpha1:istio", "testdata/golden/istio")
}

// TestRecorded looks at splits that Flagger wrote: a few that are kept here, and all recordings where they are present.
func TestRecorded(t *testing.T) {
	for _, provider := range []string{"linkerd", "smi:v1alpha2", "smi:v1alpha3"} {
		compared := traffictest.Recorded(t, smi.New(providers[provider]), provider,
			[]string{"testdata/recorded", "../../../../shared/conformance/flagger"}, nil)
		if compared < 4 {
			t.Errorf("%s: compared %d versions: where are the recordings?", provider, compared)
		}
	}
}
