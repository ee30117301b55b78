//go:build linux

package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
)

// TestARoleOfOneNamespaceIsSufficient runs a release with the permissions that the chart and config/namespaced grant for one
// namespace, with leader election.
func TestARoleOfOneNamespaceIsSufficient(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "one-namespace")
	for _, name := range []string{"namespaced/role.yaml", "namespaced/binding.yaml", "manager/serviceaccount.yaml"} {
		text, err := os.ReadFile(filepath.Join(repository, "config", name))
		if err != nil {
			t.Fatal(err)
		}
		manifest := string(text)
		if strings.Contains(manifest, "kind: RoleBinding") {
			manifest = replaceTexts(t, manifest, "kind: ServiceAccount\n  name: serin", "kind: ServiceAccount\n  name: serin\n  namespace: one-namespace")
		}
		s.apply(manifest)
	}
	token, err := shared.Client.CoreV1().ServiceAccounts(s.namespace).CreateToken(t.Context(), "serin", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfigWithToken(t, token.Status.Token), kubeconfig); err != nil {
		t.Fatal(err)
	}
	s.apply(deployment(t, "left", 1))
	s.waitForAvailable("left", 1)
	r := s.follow("left")
	s.startSerin("-kubeconfig", kubeconfig, "-enable-leader-election")
	s.apply(replaceTexts(t, flaggerCanary, "HOST", "one-namespace.test"))
	r.waitForPhase("Initialized")
	s.deployVersion("left", "v2")
	r.waitForEnd("Succeeded")
	s.waitForObject("the lease is held", leases, "serin", func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("there is none")
		}
		return nil
	})
	if log := shared.Tail(s.processName(), 200); strings.Contains(log, "forbidden") {
		t.Errorf("a request was forbidden:\n%s", log)
	}
}
