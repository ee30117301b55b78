package smi_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/smi"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

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
