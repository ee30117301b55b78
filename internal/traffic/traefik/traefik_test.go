package traefik_test

import (
	"testing"

	"github.com/serin-dev/serin/internal/traffic/traefik"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.NewAdmissionOf(t, "github.com/traefik/traefik/v3",
		"docs/content/reference/dynamic-configuration/traefik.io_traefikservices.yaml")
	traffictest.Run(t, traefik.New(), traffictest.Options{Provider: "traefik", Admission: admission})
}

func TestGolden(t *testing.T) { traffictest.Golden(t, traefik.New(), "traefik", "testdata/golden") }

// TestRecorded looks at routes that Flagger wrote: one that is kept here, and all recordings where they are present.
func TestRecorded(t *testing.T) {
	compared := traffictest.Recorded(t, traefik.New(), "traefik",
		[]string{"testdata/recorded", "../../../../shared/conformance/flagger"}, []traffictest.Difference{{
			Case: "traefik-blue-green", Object: "TraefikService/cart", Version: 1,
			Why: "a weight of 0 is written, because Traefik takes one that is left out for 1",
		}})
	if compared < 3 {
		t.Errorf("compared %d versions: where are the recordings?", compared)
	}
}
