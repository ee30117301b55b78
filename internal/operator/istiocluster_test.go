package operator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/serin-dev/serin/internal/traffic/istio/remotecluster"
)

// TestATenantsSecretDoesNotConfigureTheIstioCluster: Secrets of other namespaces are ignored, whatever their labels.
func TestATenantsSecretDoesNotConfigureTheIstioCluster(t *testing.T) {
	secret := func(namespace string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mesh", Labels: map[string]string{remotecluster.SecretLabel: "true"}}}
	}
	reader := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(secret("a-tenant"), secret("serin-system"), secret("istio-system")).Build()
	for _, tt := range []struct{ watched, own, flag, want string }{
		{"", "serin-system", "", "mesh.serin-system"},
		{"", "serin-system", "istio-system", "mesh.istio-system"},
		{"a-tenant", "serin-system", "", "mesh.serin-system"},
		{"", "elsewhere", "", ""},
	} {
		f := Flags{Namespace: tt.watched, IstioPrimarySecretNamespace: tt.flag, Argo: ArgoFlags{OwnNamespace: tt.own}}
		chosen, others, err := findPrimarySecret(t.Context(), reader, f.PrimarySecretNamespace())
		got := ""
		if chosen != nil {
			got = remotecluster.Name(chosen)
		}
		if err != nil || got != tt.want || len(others) > 0 {
			t.Errorf("%+v: chose %q, others %v, error %v", tt, got, others, err)
		}
	}
}
