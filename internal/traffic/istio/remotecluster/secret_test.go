package remotecluster_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/traffic/istio/remotecluster"
)

// hidden is part of everything that no message may contain.
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

func TestConfigReturnsTheClusterOfTheSecret(t *testing.T) {
	cfg, err := remotecluster.Config(secret(kubeconfig), outbound.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "https://h1dden.example.com:6443" || cfg.BearerToken != hidden {
		t.Errorf("got the host %s and a token of %d bytes", cfg.Host, len(cfg.BearerToken))
	}
}

// TestInvalidSecretsAreRefused with the name of the Secret, the reason and the solution, and without its content.
func TestInvalidSecretsAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, from, to, want string }{
		{"no kubeconfig", kubeconfig, "h1dden: [", "its value is no kubeconfig"},
		{"a value that cannot be decoded", "token: h1dden", "client-certificate-data: h1dden", "its value is no kubeconfig"},
		{"an empty value", kubeconfig, "", "its value is no kubeconfig"},
		{"another kind", "token: h1dden", "token: [h1dden]", "its value is no kubeconfig"},
		{"no context", "current-context: mesh", "", "current-context"},
		{"a context without a user", "user: serin}", "user: h1dden}", "names a cluster or a user that does not exist"},
		{"no server", `server: "https://h1dden.example.com:6443"`, "", "is not an https URL"},
		{"a server in the clear", "https://", "http://", "is not an https URL"},
		{"a server on this host", "https://h1dden.example.com:6443", "https://127.0.0.1:6443", "the server of its kubeconfig may not be called"},
		{"a metadata service", "https://h1dden.example.com:6443", "https://[fd00:c1::a9fe:a9fe]", "the server of its kubeconfig may not be called"},
		{"a proxy on this host", `h1dden.example.com:6443"`, `h1dden.example.com:6443", proxy-url: "http://localhost:3128"`, "the proxy-url of its kubeconfig"},
		{"a proxy that is a metadata service", `h1dden.example.com:6443"`, `h1dden.example.com:6443", proxy-url: "http://169.254.169.254"`, "the proxy-url of its kubeconfig"},
		{"a user in the URL", "https://", "https://admin:h1dden@", "is not an https URL"},
		{"a program", "token: h1dden", "exec: {apiVersion: client.authentication.k8s.io/v1, command: h1dden, interactiveMode: Never}", "(exec, auth-provider)"},
		{"a provider of credentials", "token: h1dden", "auth-provider: {name: h1dden}", "(exec, auth-provider)"},
		{"a file with a token", "token: h1dden", "tokenFile: /h1dden", "names a file with credentials"},
		{"a file with a certificate", "token: h1dden", "client-certificate: /h1dden", "names a file with credentials"},
		{"a file with a key", "token: h1dden", "client-key: /h1dden", "names a file with credentials"},
		{"a file with an authority", `6443"}`, `6443", certificate-authority: /h1dden}`, "names a file with a certificate authority"},
		{"an invalid authority", `6443"}`, `6443", certificate-authority-data: aDFkZGVu}`, "no client can be created"},
		{"a program for another user", "users: [", "users: [{name: other, user: {exec: {apiVersion: v1, command: h1dden}}}, ", "(exec, auth-provider)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !strings.Contains(kubeconfig, tc.from) {
				t.Fatalf("the kubeconfig has no %q", tc.from)
			}
			wantConfigError(t, secret(strings.Replace(kubeconfig, tc.from, tc.to, 1)), tc.want)
		})
	}
	t.Run("no value", func(t *testing.T) { wantConfigError(t, secret(), "has 0 values instead of one") })
	t.Run("two values", func(t *testing.T) { wantConfigError(t, secret(kubeconfig, kubeconfig), "has 2 values instead of one") })
}

func wantConfigError(t *testing.T, s *corev1.Secret, text string) {
	t.Helper()
	cfg, err := remotecluster.Config(s, outbound.Policy{})
	if err == nil {
		t.Fatalf("got the host %s, want an error", cfg.Host)
	}
	if message := err.Error(); !strings.Contains(message, text) || !strings.HasPrefix(message, "Secret mesh.istio-system ") ||
		!strings.Contains(message, "restart Serin") || strings.Contains(message, hidden) {
		t.Errorf("got %q, want %q and no content of the Secret", message, text)
	}
}

func TestTheFirstOfSeveralSecretsIsUsed(t *testing.T) {
	var all []corev1.Secret
	for _, key := range [][2]string{{"shop", "a"}, {"mesh", "b"}, {"mesh", "a"}} {
		all = append(all, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key[0], Name: key[1]}})
	}
	chosen, others := remotecluster.Choose(all)
	if chosen == nil || remotecluster.Name(chosen) != "a.mesh" || !slices.Equal(others, []string{"b.mesh", "a.shop"}) {
		t.Errorf("got %v and the others %v", chosen, others)
	}
	if chosen, others := remotecluster.Choose(nil); chosen != nil || others != nil {
		t.Errorf("got %v without Secrets", chosen)
	}
}

// TestThePolicyAppliesToConnectionsOfASecret by the dialed address, whatever the names in the kubeconfig are.
func TestThePolicyAppliesToConnectionsOfASecret(t *testing.T) {
	cfg, err := remotecluster.Config(secret(strings.Replace(kubeconfig, `6443"`, `6443", proxy-url: "http://proxy.example.com"`, 1)), outbound.Policy{ProxyResolves: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.Dial(t.Context(), "tcp", "localhost:443"); !isRefused(err) {
		t.Errorf("a name that is on this host: %v", err)
	}
	requests := 0
	client := http.Client{Transport: cfg.WrapTransport(roundTripper(func(r *http.Request) error {
		requests++
		proxy, err := cfg.Proxy(r)
		if err != nil || proxy == nil || proxy.Host != "proxy.example.com" {
			t.Errorf("the proxy for %s is %v, %v", r.URL.Host, proxy, err)
		}
		if _, err := cfg.Dial(r.Context(), "tcp", "localhost:80"); !isRefused(err) {
			t.Errorf("a proxy that is on this host: %v", err)
		}
		return errors.New("not sent")
	}))}
	if _, err := client.Get(cfg.Host); err == nil || requests != 1 { //nolint:bodyclose // nothing answers
		t.Errorf("got %v after %d requests", err, requests)
	}
}

func isRefused(err error) bool {
	_, refused := errors.AsType[*outbound.RefusedError](err)
	return refused
}

type roundTripper func(*http.Request) error

func (a roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return nil, a(r) }
