package kuma_test

import (
	"testing"

	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/traffic/kuma"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	traffictest.Run(t, kuma.New(), traffictest.Options{
		Provider: "kuma", Admission: traffictest.LocalAdmission(t, "testdata/crds/trafficroutes.yaml"),
		Canary: func(t *rapid.T, c *flaggerv1.Canary) {
			c.Annotations = rapid.SampledFrom([]map[string]string{nil, {"kuma.io/mesh": "prod"}}).Draw(t, "canary annotations")
		},
	})
}

func TestGolden(t *testing.T) { traffictest.Golden(t, kuma.New(), "kuma", "testdata/golden") }

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) { traffictest.Recorded(t, kuma.New(), "kuma", 4, nil) }
