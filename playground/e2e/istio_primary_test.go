//go:build linux

package e2e_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/cluster"
)

const (
	meshServer = "mesh-apiserver"
	meshPort   = 6444
)

// meshRBAC grants the permissions that docs/rollout-routers.md requires in the cluster with Istio's objects.
const meshRBAC = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: serin, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: serin-istio}
rules:
  - apiGroups: [networking.istio.io]
    resources: [virtualservices, destinationrules]
    verbs: [get, list, watch, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: serin-istio}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: serin-istio}
subjects: [{kind: ServiceAccount, name: serin, namespace: NAMESPACE}]
`

const meshServices = `
apiVersion: v1
kind: Service
metadata: {name: cart-stable}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart-canary}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
`

const meshRoute = `
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: {name: cart, namespace: NAMESPACE, annotations: {team: blue}}
spec:
  hosts: [cart]
  http:
  - name: main
    timeout: 7s
    route:
    - {destination: {host: cart-stable}, weight: 100}
    - {destination: {host: cart-canary}, weight: 0}
`

const meshSteps = `{canary: {canaryService: cart-canary, stableService: cart-stable,
  trafficRouting: {managedRoutes: [{name: testers}], istio: {virtualService: {name: cart, routes: [main]}}},
  steps: [{setWeight: 25}, {setHeaderRoute: {name: testers, match: [{headerName: x-tester, headerValue: {exact: "1"}}]}}, {pause: {}}, {setWeight: 50}, {pause: {}}]}}`

// mesh is an environment with a second cluster, which contains Istio's objects.
type mesh struct {
	*environment
	other *cluster.SecondCluster
}

// newMesh starts the second cluster, and creates the Secret with its kubeconfig in the namespace of the Rollouts. token is
// the secret part of the kubeconfig.
func newMesh(s *environment) (m mesh, token string) {
	t := s.t
	t.Helper()
	other, err := shared.StartSecondCluster(t.Context(), meshServer, meshPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Kill(meshServer); err != nil {
			t.Error(err)
		}
	})
	m = mesh{s, other}
	m.kubectlRemote("", "apply", "--server-side", "-f", istioCRDs)
	m.kubectlRemote("", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	m.kubectlRemote(strings.ReplaceAll(meshRBAC, "NAMESPACE", s.namespace), "apply", "--server-side", "-f", "-")
	answer, err := other.Client.CoreV1().ServiceAccounts(s.namespace).CreateToken(t.Context(), "serin", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token = answer.Status.Token
	config, err := clientcmd.LoadFromFile(other.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: istio-remote-secret-mesh, labels: {istio.argoproj.io/primary-cluster: "true"}}
data: {mesh: %s}
`, base64.StdEncoding.EncodeToString(text)))
	return m, token
}

func (m mesh) kubectlRemote(input string, args ...string) {
	m.t.Helper()
	if _, err := shared.Kubectl(m.t.Context(), input, append(args, "--kubeconfig="+m.other.Kubeconfig)...); err != nil {
		m.t.Fatal(err)
	}
}

// waitForRoute waits until the rules of the VirtualService in the second cluster have these destinations.
func (m mesh) waitForRoute(want ...string) {
	m.t.Helper()
	m.waitForObjectIn(m.other.Dynamic, fmt.Sprintf("the remote route has destinations %v", want), virtuals, "cart", func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("it does not exist")
		}
		var got []string
		for _, rule := range convert[virtualService](m.t, object).Spec.HTTP {
			got = append(got, rule.destinations())
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("the destinations are %v", got)
		}
		return nil
	})
}

// waitForGateMessage waits until a gate of the Rollout contains a text.
func (s *environment) waitForGateMessage(name, gate, text string) {
	s.t.Helper()
	s.waitForObject(fmt.Sprintf("gate %[2]s of Rollout %[1]s contains %[3]q", name, gate, text), rollouts, name, func(object *unstructured.Unstructured) error {
		var status argov1.RolloutStatus
		if object != nil {
			status = convert[argov1.Rollout](s.t, object).Status
		}
		if status.Serin == nil {
			return errors.New("it has no gates")
		}
		for _, g := range status.Serin.Gates {
			if g.Name == gate && strings.Contains(g.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("its gates are %+v", status.Serin.Gates)
	})
}

// TestIstioOfRolloutsInAnotherCluster has the workloads in one cluster and the route in another, whose API server is stopped
// and started.
func TestIstioOfRolloutsInAnotherCluster(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "mesh")
	m, token := newMesh(s)
	s.startSerin("-allow-loopback-hooks") // the second API server is on this host
	s.apply(meshServices + rolloutManifest(t, "cart", 2, meshSteps))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseDegraded, "VirtualService cart.mesh not found")
	m.kubectlRemote(strings.ReplaceAll(meshRoute, "NAMESPACE", s.namespace), "apply", "-f", "-")
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")

	s.releaseVersion("cart", "v2")
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	m.waitForRoute("cart-canary=100", "cart-stable=75 cart-canary=25")
	m.patchRoute(`[{"op":"replace","path":"/spec/http/1/route/1/weight","value":90},{"op":"replace","path":"/spec/http/1/route/0/weight","value":10}]`)
	m.waitForRoute("cart-canary=100", "cart-stable=75 cart-canary=25")

	// The second cluster is unreachable during a release: this release waits and reports the reason, and other releases continue.
	if err := shared.Kill(meshServer); err != nil {
		t.Fatal(err)
	}
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	s.waitForEventOf("Rollout", "cart", "ReconciliationError", "does not respond (connect: connection refused)")
	s.apply(rolloutManifest(t, "other", 1, "{canary: {}}"))
	s.waitForRolloutPhase("other", argov1.RolloutPhaseHealthy, "")
	s.waitForGateMessage("cart", "router", "the cluster of Secret istio-remote-secret-mesh.mesh")
	m.restartAPIServer()
	m.waitForRoute("cart-canary=100", "cart-stable=50 cart-canary=50")
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")

	// The second cluster is unreachable when Serin starts.
	if err := shared.Kill(meshServer); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Restart(s.processName()); err != nil {
		t.Fatal(err)
	}
	s.releaseVersion("other", "v2")
	s.waitForPods("other", "v2=1")
	s.waitForGateMessage("cart", "router", "does not respond")
	m.restartAPIServer()
	m.patchRoute(`[{"op":"replace","path":"/spec/http/1/route/1/weight","value":90},{"op":"replace","path":"/spec/http/1/route/0/weight","value":10}]`)
	m.waitForRoute("cart-canary=100", "cart-stable=50 cart-canary=50")

	s.delete(rollouts, "cart")
	m.waitForRoute("cart-stable=50 cart-canary=50") // the weights remain, the managed route is removed
	if _, err := shared.Dynamic.Resource(virtuals).Namespace(s.namespace).Get(t.Context(), "cart", metav1.GetOptions{}); err == nil {
		t.Error("there is a VirtualService in the cluster of the workloads")
	}
	log := shared.Tail(s.processName(), 100_000)
	if !strings.Contains(log, "Routes Rollouts with Istio in the cluster of a Secret") || strings.Contains(log, token) || strings.Contains(log, fmt.Sprint(":", meshPort)) {
		t.Error("the log does not report the cluster of Istio's objects, or contains the token or the address")
	}
}

// patchRoute applies a JSON patch to the VirtualService in the second cluster.
func (m mesh) patchRoute(patch string) {
	m.t.Helper()
	_, err := m.other.Dynamic.Resource(virtuals).Namespace(m.namespace).Patch(m.t.Context(), "cart", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
}

// restartAPIServer starts the second API server again.
func (m mesh) restartAPIServer() {
	m.t.Helper()
	if _, err := shared.Restart(meshServer); err != nil {
		m.t.Fatal(err)
	}
	m.waitForObjectIn(m.other.Dynamic, "the second API server is reachable", virtuals, "cart", func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("nothing yet")
		}
		return nil
	})
}
