package traffic_test

import (
	"testing"

	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/kubernetes"
	"github.com/serin-dev/serin/internal/traffic/smi"
)

func registry() traffic.Registry {
	return traffic.Registry{Canary: map[string]traffic.Renderer{
		"kubernetes":         kubernetes.New(),
		"istio":              istio.New(),
		"gatewayapi:v1":      gatewayapi.New(gatewayapi.V1),
		"gatewayapi:v1beta1": gatewayapi.New(gatewayapi.V1Beta1),
		"smi:v1alpha1":       smi.New(smi.V1Alpha1),
	}}
}

// TestNormalize has the table of routing.md, A1.
func TestNormalize(t *testing.T) {
	for _, tt := range []struct {
		provider, want string
		known          bool
	}{
		{"istio", "istio", true},
		{"kubernetes", "kubernetes", true},
		{"linkerd", "linkerd", true},
		{"gatewayapi:v1", "gatewayapi:v1", true},
		{"gatewayapi:v1beta1", "gatewayapi:v1beta1", true},
		{"gatewayapi:v1beta1:mesh", "gatewayapi:v1beta1", true},
		{"gatewayapi", "istio", false},
		{"appmesh", "appmesh", true},
		{"appmesh:v1beta2", "appmesh:v1beta2", true},
		{"appmesh:v1beta1", "istio", false},
		{"gloo-edge", "gloo", true},
		{"smi:v1alpha1", "smi:v1alpha1", true},
		{"smi:v1alpha1:istio", "smi:v1alpha1:istio", true},
		{"smi:v1alpha4", "istio", false},
		{"kubernetes:service", "istio", false},
		{"", "istio", false},
	} {
		if got, known := traffic.Normalize(tt.provider); got != tt.want || known != tt.known {
			t.Errorf("Normalize(%q) = %q, %v, want %q, %v", tt.provider, got, known, tt.want, tt.known)
		}
	}
}

func TestRegistry(t *testing.T) {
	r := registry()
	if rd, ok := r.ForCanary("istio"); !ok || rd != istio.New() {
		t.Errorf("ForCanary(istio) = %v, %v", rd, ok)
	}
	if _, ok := r.ForCanary("unheard-of"); ok {
		t.Errorf("ForCanary(unheard-of) found a renderer")
	}

	if rd, ok := r.ForCanary("smi:v1alpha1:istio"); !ok || rd != smi.New(smi.V1Alpha1) {
		t.Errorf("ForCanary(smi:v1alpha1:istio) = %v, %v", rd, ok)
	}
	for _, name := range []string{"smi:v1alpha1:", "smi:v1alpha4", "smi", "istio:smi"} {
		if _, ok := r.ForCanary(name); ok {
			t.Errorf("ForCanary(%s) found a renderer", name)
		}
	}
}
