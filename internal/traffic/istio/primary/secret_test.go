package primary_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/internal/traffic/istio/primary"
)

// hidden is in all that no sentence may repeat.
const hidden = "h1dden"

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: mesh
contexts: [{name: mesh, context: {cluster: mesh, user: serin}}]
clusters: [{name: mesh, cluster: {server: "https://h1dden.example.com:6443"}}]
users: [{name: serin, user: {token: h1dden}}]
`

func secret(values ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "mesh"}, Data: map[string][]byte{}}
	for i, value := range values {
		s.Data[string(rune('a'+i))] = []byte(value)
	}
	return s
}

func TestASecretLeadsToACluster(t *testing.T) {
	cfg, err := primary.Config(secret(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "https://h1dden.example.com:6443" || cfg.BearerToken != hidden {
		t.Errorf("it leads to %s with a token of %d bytes", cfg.Host, len(cfg.BearerToken))
	}
}

// TestASecretThatLeadsNowhere is refused with its name, the reason and what to do, and with nothing of what is in it.
func TestASecretThatLeadsNowhere(t *testing.T) {
	for _, tc := range []struct{ name, from, to, want string }{
		{"no kubeconfig", kubeconfig, "h1dden: [", "its value is no kubeconfig"},
		{"a value that cannot be decoded", "token: h1dden", "client-certificate-data: h1dden", "its value is no kubeconfig"},
		{"an empty value", kubeconfig, "", "its value is no kubeconfig"},
		{"another kind", "token: h1dden", "token: [h1dden]", "its value is no kubeconfig"},
		{"no context", "current-context: mesh", "", "current-context"},
		{"a context of nobody", "user: serin}", "user: h1dden}", "names a cluster or a user that is not there"},
		{"no server", `server: "https://h1dden.example.com:6443"`, "", "is not an https URL"},
		{"a server in the clear", "https://", "http://", "is not an https URL"},
		{"a user in the URL", "https://", "https://admin:h1dden@", "is not an https URL"},
		{"a program", "token: h1dden", "exec: {apiVersion: client.authentication.k8s.io/v1, command: h1dden, interactiveMode: Never}", "(exec, auth-provider)"},
		{"a provider of credentials", "token: h1dden", "auth-provider: {name: h1dden}", "(exec, auth-provider)"},
		{"a file with a token", "token: h1dden", "tokenFile: /h1dden", "names a file with credentials"},
		{"a file with a certificate", "token: h1dden", "client-certificate: /h1dden", "names a file with credentials"},
		{"a file with a key", "token: h1dden", "client-key: /h1dden", "names a file with credentials"},
		{"a file with an authority", `6443"}`, `6443", certificate-authority: /h1dden}`, "names a file with a certificate authority"},
		{"an authority that is none", `6443"}`, `6443", certificate-authority-data: aDFkZGVu}`, "no client can be made"},
		{"a program for another user", "users: [", "users: [{name: other, user: {exec: {apiVersion: v1, command: h1dden}}}, ", "(exec, auth-provider)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !strings.Contains(kubeconfig, tc.from) {
				t.Fatalf("the kubeconfig has no %q", tc.from)
			}
			wants(t, secret(strings.Replace(kubeconfig, tc.from, tc.to, 1)), tc.want)
		})
	}
	t.Run("no value", func(t *testing.T) { wants(t, secret(), "has 0 values instead of one") })
	t.Run("two values", func(t *testing.T) { wants(t, secret(kubeconfig, kubeconfig), "has 2 values instead of one") })
}

func wants(t *testing.T, s *corev1.Secret, text string) {
	t.Helper()
	cfg, err := primary.Config(s)
	if err == nil {
		t.Fatalf("it leads to %s", cfg.Host)
	}
	if said := err.Error(); !strings.Contains(said, text) || !strings.HasPrefix(said, "Secret mesh.istio-system ") ||
		!strings.Contains(said, "restart Serin") || strings.Contains(said, hidden) {
		t.Errorf("it says %q, want %q and nothing of the Secret", said, text)
	}
}

func TestTheFirstOfSeveralSecretsCounts(t *testing.T) {
	var all []corev1.Secret
	for _, key := range [][2]string{{"shop", "a"}, {"mesh", "b"}, {"mesh", "a"}} {
		all = append(all, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key[0], Name: key[1]}})
	}
	chosen, others := primary.Choose(all)
	if chosen == nil || primary.Name(chosen) != "a.mesh" || !slices.Equal(others, []string{"b.mesh", "a.shop"}) {
		t.Errorf("chosen is %v, others are %v", chosen, others)
	}
	if chosen, others := primary.Choose(nil); chosen != nil || others != nil {
		t.Errorf("of none it chooses %v", chosen)
	}
}
