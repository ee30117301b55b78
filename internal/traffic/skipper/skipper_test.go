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

// TestRecorded looks at Ingresses that Flagger wrote: one that is kept here, and all recordings where they are present.
func TestRecorded(t *testing.T) {
	compared := traffictest.Recorded(t, skipper.New(), "skipper",
		[]string{"testdata/recorded", "../../../../shared/conformance/flagger"}, []traffictest.Difference{{
			Case: "skipper-weighted", Object: "Ingress/shop-canary", Version: 0,
			Why: "without traffic for the canary its routes never hold, also before the first release",
		}})
	if compared < 3 {
		t.Errorf("compared %d versions: where are the recordings?", compared)
	}
}
