package gatewayapi_test

import (
	"testing"

	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.NewAdmission(t, "sigs.k8s.io/gateway-api",
		"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml")
	for _, version := range []gatewayapi.Version{gatewayapi.V1, gatewayapi.V1Beta1} {
		t.Run(string(version), func(t *testing.T) {
			traffictest.Run(t, gatewayapi.New(version), traffictest.Options{
				Provider: "gatewayapi:" + string(version), Admission: admission, Canary: gatewayFields,
			})
		})
	}
}

// gatewayFields adds what a gateway needs, and what only gateways read.
func gatewayFields(t *rapid.T, c *flaggerv1.Canary) {
	s := &c.Spec.Service
	s.GatewayRefs = []flaggerv1.GatewayReference{{Name: "edge", Namespace: new("infra")}}
	if rapid.Bool().Draw(t, "second parent") {
		s.GatewayRefs = append(s.GatewayRefs, flaggerv1.GatewayReference{
			Group: new(""), Kind: new("Service"), Name: "cart", Port: new(int32(80)),
		})
	}
	if rapid.Bool().Draw(t, "mirror") {
		s.Mirror = []flaggerv1.RequestMirror{{BackendRef: &flaggerv1.MirrorBackendReference{Name: "shadow", Port: new(int32(80))}}}
	}
	if s.Rewrite != nil {
		s.Rewrite.Type = rapid.SampledFrom([]string{"", "ReplaceFullPath", "ReplacePrefixMatch"}).Draw(t, "rewrite type")
		for i := range s.Match {
			if s.Rewrite.Type == "ReplacePrefixMatch" { // the API takes it with a prefix only
				s.Match[i].URI = &flaggerv1.StringMatch{Prefix: "/cart"}
			}
		}
	}
	s.BackendTimeout = rapid.SampledFrom([]string{"", "2s"}).Draw(t, "backend timeout")
}

func TestGolden(t *testing.T) {
	traffictest.Golden(t, gatewayapi.New(gatewayapi.V1), "gatewayapi:v1", "testdata/golden")
	traffictest.Golden(t, gatewayapi.New(gatewayapi.V1Beta1), "gatewayapi:v1beta1", "testdata/golden-v1beta1")
}

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) {
	traffictest.Recorded(t, gatewayapi.New(gatewayapi.V1), "gatewayapi:v1", 29, nil)
}
