package smi_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/smi"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

// providers are all providers that use a TrafficSplit.
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

// TestRecorded compares with splits that Flagger wrote.
func TestRecorded(t *testing.T) {
	for provider, versions := range map[string]int{"linkerd": 4, "smi:v1alpha2": 4, "smi:v1alpha3": 4} {
		traffictest.Recorded(t, smi.New(providers[provider]), provider, versions, nil)
	}
}

func TestRolloutContract(t *testing.T) {
	admission := traffictest.LocalAdmission(t, "testdata/crds/trafficsplits.yaml")
	for _, version := range []smi.Version{"", smi.V1Alpha2, smi.V1Alpha3} {
		t.Run(string(version), func(t *testing.T) {
			traffictest.Run(t, smi.NewRollout(version), traffictest.Options{
				Provider: "smi", Admission: admission,
				Rollout: func(t *rapid.T, ro *argov1.Rollout) {
					ro.Spec.Strategy.Canary.TrafficRouting.SMI = rapid.SampledFrom([]*argov1.SMITrafficRouting{
						{}, {RootService: "cart", TrafficSplitName: "split"},
					}).Draw(t, "routing")
				},
				Given: func(traffic.Target) []*unstructured.Unstructured { return nil },
			})
		})
	}
}

func TestRolloutGolden(t *testing.T) {
	for version, folder := range map[smi.Version]string{smi.V1Alpha1: "quantities", smi.V1Alpha3: "integers"} {
		traffictest.Golden(t, smi.NewRollout(version), "smi", "testdata/rollout/"+folder)
	}
}
