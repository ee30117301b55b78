package skipper_test

import (
	"testing"

	"github.com/serin-dev/serin/internal/traffic/skipper"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	traffictest.Run(t, skipper.New(), traffictest.Options{
		Provider: "skipper", Admission: traffictest.IngressAdmission(),
		Canary: traffictest.IngressRef, Given: traffictest.GivenIngress, Copies: true,
	})
}

func TestGolden(t *testing.T) { traffictest.Golden(t, skipper.New(), "skipper", "testdata/golden") }

// TestRecorded compares with Ingresses that Flagger wrote.
func TestRecorded(t *testing.T) {
	traffictest.Recorded(t, skipper.New(), "skipper", 4, []traffictest.Difference{{
		Case: "skipper-weighted", Object: "Ingress/shop-canary", Version: 0,
		Why: "without traffic for the canary its routes never match, also before the first release",
	}})
}
