package istio_test

import (
	"testing"

	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.NewAdmission(t, "istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml")
	t.Run("http", func(t *testing.T) {
		traffictest.Run(t, istio.New(), traffictest.Options{Provider: "istio", Admission: admission, Canary: istioFields, Whole: whole})
	})
	t.Run("tcp", func(t *testing.T) {
		traffictest.Run(t, istio.New(), traffictest.Options{
			Provider: "istio", Admission: admission, Whole: whole,
			Canary: func(t *rapid.T, c *flaggerv1.Canary) {
				istioFields(t, c)
				c.Spec.Service.AppProtocol = rapid.SampledFrom([]string{"tcp", "TCP"}).Draw(t, "protocol")
			},
		})
	})
}

// istioFields adds what only Istio reads.
func istioFields(t *rapid.T, c *flaggerv1.Canary) {
	s := &c.Spec.Service
	s.Gateways = rapid.SampledFrom([][]string{nil, {"mesh"}, {"infra/public"}, {"mesh", "infra/public"}}).Draw(t, "gateways")
	if rapid.Bool().Draw(t, "policy") {
		s.TrafficPolicy = policy(`{"loadBalancer":{"simple":"LEAST_REQUEST"},"connectionPool":{"http":{"http2MaxRequests":100}}}`)
	}
	if rapid.Bool().Draw(t, "delegation") {
		s.Delegation, s.Hosts, s.Gateways = true, nil, nil
	}
}

func TestGolden(t *testing.T) { traffictest.Golden(t, istio.New(), "istio", "testdata/golden") }

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) { traffictest.Recorded(t, istio.New(), "istio", 302, differences) }

var differences = differencesIn("VirtualService/cart", map[string]map[int]string{
	"istio-ab-header-cookie": {1: "a sole destination has all the weight, not what the primary has in the other rule"},
	"revert-on-deletion": {
		0: "the user's own object", 1: keptMetadata, 2: keptMetadata, 3: keptMetadata, 4: "the user's own object again",
	},
	"revert-on-deletion-last-applied": {0: "the user's own object", 1: keptMetadata, 2: "the user's own object again"},
	"service-drift":                   {1: "the user's edit", 2: "what was made for the release has no original"},
})

const keptMetadata = "the user's labels and annotations stay, and the original is noted in our own annotation"

func differencesIn(object string, cases map[string]map[int]string) []traffictest.Difference {
	var out []traffictest.Difference
	for name, versions := range cases {
		for version, why := range versions {
			out = append(out, traffictest.Difference{Case: name, Object: object, Version: version, Why: why})
		}
	}
	return out
}

// whole is what the Canary gives as it is, in the terms of Istio.
var whole = []string{"DestinationRule spec.trafficPolicy"}
