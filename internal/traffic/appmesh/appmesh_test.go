package appmesh_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/traffic/appmesh"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

// providers are the names that the versions have in a Canary.
var providers = map[appmesh.Version]string{appmesh.V1Beta1: "appmesh", appmesh.V1Beta2: "appmesh:v1beta2"}

func TestContract(t *testing.T) {
	for version, provider := range providers {
		t.Run(string(version), func(t *testing.T) {
			traffictest.Run(t, appmesh.New(version), traffictest.Options{
				Provider: provider, Admission: traffictest.LocalAdmission(t, "testdata/crds/"+string(version)+".yaml"), Canary: meshFields,
			})
		})
	}
}

// meshFields adds what App Mesh needs, and what only it reads.
func meshFields(t *rapid.T, c *flaggerv1.Canary) {
	s := &c.Spec.Service
	s.MeshName = "prod"
	s.Backends = rapid.SampledFrom([][]string{nil, {"stock.shop"}, {"stock.shop", "arn:aws:appmesh:eu-west-1:1:mesh/prod/virtualService/bank"}}).Draw(t, "backends")
	s.PortName = rapid.SampledFrom([]string{"", "http", "grpc-api"}).Draw(t, "port name")
	s.TargetPort = rapid.SampledFrom([]*intstr.IntOrString{nil, new(intstr.FromInt32(8080)), new(intstr.FromString("web"))}).Draw(t, "target port")
	if s.Retries != nil {
		s.Retries.RetryOn = rapid.SampledFrom([]string{"", "server-error", "gateway-error, connection-error"}).Draw(t, "retry on")
		s.Retries.PerTryTimeout = rapid.SampledFrom([]string{"", "1s"}).Draw(t, "retry timeout")
	}
	c.Annotations = rapid.SampledFrom([]map[string]string{nil, {"appmesh.flagger.app/accesslog": "enabled"}}).Draw(t, "canary annotations")
}

func TestGolden(t *testing.T) {
	for version, provider := range providers {
		traffictest.Golden(t, appmesh.New(version), provider, "testdata/golden/"+string(version))
	}
}

// TestRecorded compares with objects that Flagger wrote.
func TestRecorded(t *testing.T) {
	traffictest.Recorded(t, appmesh.New(appmesh.V1Beta1), providers[appmesh.V1Beta1], 15, nil)
	traffictest.Recorded(t, appmesh.New(appmesh.V1Beta2), providers[appmesh.V1Beta2], 17, nil)
}
