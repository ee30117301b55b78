//go:build linux

package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// limitedUser is a user with the documented permissions except for those of one API group.
type limitedUser struct {
	namespace string
	rules     []rbacv1.PolicyRule
}

// newLimitedUser creates a user without the permissions for an API group, and a kubeconfig with its credentials.
func newLimitedUser(s *environment, group string) (limitedUser, string) {
	t := s.t
	t.Helper()
	l := limitedUser{namespace: s.namespace}
	for _, name := range documentedRoles {
		role, err := shared.Client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		l.rules = append(l.rules, role.Rules...)
	}
	l.setRules(s, slices.DeleteFunc(slices.Clone(l.rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, group) }))
	s.apply(strings.ReplaceAll(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: limited}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: limited}
subjects: [{kind: ServiceAccount, name: limited, namespace: NAMESPACE}]
`, "NAMESPACE", s.namespace))
	token, err := shared.Client.CoreV1().ServiceAccounts(s.namespace).CreateToken(t.Context(), "limited", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfigWithToken(t, token.Status.Token), file); err != nil {
		t.Fatal(err)
	}
	return l, file
}

// setRules sets the rules of the user's role.
func (l limitedUser) setRules(s *environment, rules []rbacv1.PolicyRule) {
	s.t.Helper()
	s.apply(toJSON(s.t, rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Name: "limited", Namespace: l.namespace}, Rules: rules,
	}))
}

// TestMissingPermissionsBlockOnlyTheReleasesThatNeedThem has more blocked releases than workers.
func TestMissingPermissionsBlockOnlyTheReleasesThatNeedThem(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "denied")
	l, kubeconfig := newLimitedUser(s, "networking.istio.io")
	s.startSerin("-kubeconfig", kubeconfig, "-mesh-provider", "kubernetes", "-threadiness", "1")
	var denied []*release
	for i := range 3 {
		name := fmt.Sprintf("denied-%d", i)
		denied = append(denied, s.follow(name))
		s.apply(deployment(t, name, 1) + canaryOf(name, "istio"))
	}
	for _, r := range denied {
		r.waitFor("reports the missing permission", func(c canary) error {
			if blocked := c.condition("Blocked"); !strings.Contains(blocked.Message, `in API group "networking.istio.io"`) {
				return fmt.Errorf("the message of condition Blocked is %q", blocked.Message)
			}
			return nil
		})
	}
	well := s.follow("well")
	s.apply(deployment(t, "well", 1) + canaryOf("well", "kubernetes"))
	well.waitForPhase("Initialized")

	l.setRules(s, l.rules)
	for _, r := range denied {
		r.waitForPhase("Initialized")
	}
}

func canaryOf(name, provider string) string {
	return fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: %[1]s}
spec:
  provider: %[2]s
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  service: {port: 80, targetPort: http}
  analysis: {interval: 1s, threshold: 2, iterations: 1}
---
`, name, provider)
}
