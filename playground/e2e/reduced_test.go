//go:build linux

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/packaging/chart"
)

// TestReducedPermissionsAreSufficient runs a release with features off, with the permissions and the flags that the chart renders
// then, and expects that the API server refuses no request.
func TestReducedPermissionsAreSufficient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		namespace, values string
		release           func(s *environment, start func())
	}{
		{"only-canaries", "apis: [canary]\nconfigTracking: {enabled: false}\n", func(s *environment, start func()) {
			s.apply(deployment(s.t, "left", 1))
			s.waitForAvailable("left", 1)
			r := s.follow("left")
			start()
			s.apply(replaceTexts(s.t, flaggerCanary, "HOST", s.namespace+".test"))
			r.waitForPhase("Initialized")
			s.deployVersion("left", "v2")
			r.waitForEnd("Succeeded")
		}},
		{"only-rollouts", "apis: [rollout]\n", func(s *environment, start func()) {
			start()
			s.apply(rolloutManifest(s.t, "cart", 1, `{canary: {steps: [{setWeight: 50}, {pause: {duration: 1s}}]}}`))
			s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
			s.releaseVersion("cart", "v2")
			s.waitForRolloutPhase("cart", argov1.RolloutPhaseProgressing, "")
			s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
		}},
	} {
		t.Run(tt.namespace, func(t *testing.T) {
			t.Parallel()
			s := newEnvironment(t, tt.namespace)
			kubeconfig, flags := s.installRenderedPermissions(tt.values)
			tt.release(s, func() { s.startSerin(append(flags, "-kubeconfig", kubeconfig, "-enable-leader-election")...) })
			requests, err := shared.Requests()
			if err != nil {
				t.Fatal(err)
			}
			sent := 0
			for _, r := range requests {
				if r.User != serinAccount(s.namespace) {
					continue
				}
				sent++
				if r.Forbidden {
					t.Errorf("the chart with %q does not permit %s %s", tt.values, r.Verb, r.Path)
				}
			}
			if sent == 0 {
				t.Error("the audit log contains no request")
			}
		})
	}
}

// installRenderedPermissions applies the service account and the permissions of the chart with these values, for Serin in one
// namespace. It returns a kubeconfig with them, and the flags of the rendered Deployment that turn features off.
func (s *environment) installRenderedPermissions(values string) (kubeconfig string, flags []string) {
	s.t.Helper()
	rendered, _, err := chart.Render(filepath.Join(repository, "charts", "serin"), values+"namespace: "+s.namespace+"\n", s.namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, object := range rendered {
		switch object.GetKind() {
		case "ServiceAccount", "Role", "RoleBinding":
			s.apply(toJSON(s.t, object))
		case "Deployment":
			flags = append(flags, featureFlags(s.t, object)...)
		}
	}
	if len(flags) == 0 {
		s.t.Fatalf("the chart with %q has no flag that turns features off", values)
	}
	token, err := shared.Client.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.t.Context(), "serin", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	kubeconfig = filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfigWithToken(s.t, token.Status.Token), kubeconfig); err != nil {
		s.t.Fatal(err)
	}
	return kubeconfig, flags
}

// featureFlags returns the flags of a Deployment that select the features which the permissions depend on.
func featureFlags(t *testing.T, deployment *unstructured.Unstructured) (flags []string) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers {
		args, _, _ := unstructured.NestedStringSlice(c.(map[string]any), "args")
		for _, arg := range args {
			if strings.HasPrefix(arg, "-apis=") || strings.HasPrefix(arg, "-enable-config-tracking=") {
				flags = append(flags, arg)
			}
		}
	}
	return flags
}
