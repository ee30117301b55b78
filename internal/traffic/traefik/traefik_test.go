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

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) {
	traffictest.Recorded(t, traefik.New(), "traefik", 6, []traffictest.Difference{{
		Case: "traefik-blue-green", Object: "TraefikService/cart", Version: 1,
		Why: "a weight of 0 is written, because Traefik reads a missing weight as 1",
	}})
}
