//go:build linux

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/load"
)

// stableAndCanaryServices are the Services of the two revisions of Rollout cart.
const stableAndCanaryServices = `
apiVersion: v1
kind: Service
metadata: {name: cart-stable}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart-canary}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: http}]}
---
`

const rolledRoute = stableAndCanaryServices + `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart}
spec:
  parentRefs: [{name: gateway, namespace: playground}]
  hostnames: [rolled.test]
  rules: [{backendRefs: [{name: cart-stable, port: 80}, {name: cart-canary, port: 80, weight: 0}]}]
---
`

// TestARolloutSharesRequestsByGatewayAPI runs a release under load: clients observe each weight, no request is lost, not even
// when the Rollout is deleted, and its Services are restored.
func TestARolloutSharesRequestsByGatewayAPI(t *testing.T) {
	s := startEnvironment(t, "rolled")
	s.apply(rolledRoute + rolloutManifest(t, "cart", 2, `{canary: {stableService: cart-stable, canaryService: cart-canary,
	  trafficRouting: {plugins: {argoproj-labs/gatewayAPI: {httpRoute: cart, namespace: rolled}}},
	  steps: [{setWeight: 20}, {pause: {}}, {setWeight: 60}, {pause: {}}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	l := s.startLoad("rolled.test", 80)
	waitForRequests(t, l, 20, "v1")

	s.releaseVersion("cart", "v2")
	for _, weight := range []int{20, 60} {
		paused := s.waitForPausedAt(weight)
		if w := paused.Status.Canary.Weights; w == nil || int(w.Canary.Weight) != weight || int(w.Stable.Weight) != 100-weight {
			t.Errorf("at weight %d the weights in the status are %s", weight, toJSON(t, w))
		}
		waitForRequests(t, l, 1, "v2")
		counts := s.countSettled(l)
		low, high := load.BinomialBounds(counts.Requests, float64(weight)/100, boundTail)
		if got := counts.ByVersion["v2"].Requests; got < low || got > high {
			t.Errorf("at weight %d v2 got %d of %d requests, want %d to %d", weight, got, counts.Requests, low, high)
		}
		s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	}
	healthy := s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.countSettled(l)
	if after := waitForRequests(t, l, 60); after.ByVersion["v1"].Requests > 0 {
		t.Errorf("v1 answers after the promotion: %s", after)
	}
	service := convert[corev1.Service](t, s.get(services, "cart-stable"))
	if got := service.Spec.Selector[argov1.PodTemplateHashLabel]; got != healthy.Status.StableRS || service.Annotations[argov1.ManagedByAnnotation] != "cart" {
		t.Errorf("the stable Service selects %v, managed by %q", service.Spec.Selector, service.Annotations[argov1.ManagedByAnnotation])
	}
	if counts := l.Counts(); counts.Lost > 0 {
		t.Errorf("%d requests were lost: %s", counts.Lost, counts)
	}

	s.delete(rollouts, "cart")
	for _, name := range []string{"cart-stable", "cart-canary"} {
		s.waitForObject("Service "+name+" is restored", services, name, func(object *unstructured.Unstructured) error {
			if object == nil {
				return errors.New("it is gone")
			}
			service := convert[corev1.Service](t, object)
			if diff := cmp.Diff(map[string]string{"app": "cart"}, service.Spec.Selector); diff != "" || service.Annotations[argov1.ManagedByAnnotation] != "" {
				return fmt.Errorf("it selects %v, managed by %q", service.Spec.Selector, service.Annotations[argov1.ManagedByAnnotation])
			}
			return nil
		})
	}
	s.events.waitForState(t, "there is an event of the deletion", 0, func(e state[corev1.Event]) error {
		if e.object.Reason != "RolloutDeleted" || e.object.Message != "Rollout cart/rolled is deleted." {
			return fmt.Errorf("%s: %s", e.object.Reason, e.object.Message)
		}
		return nil
	})
}

// waitForPausedAt waits until Rollout cart is paused at a weight.
func (s *environment) waitForPausedAt(weight int) argov1.Rollout {
	s.t.Helper()
	var found argov1.Rollout
	s.waitForObject(fmt.Sprintf("Rollout cart is paused at weight %d", weight), rollouts, "cart", func(object *unstructured.Unstructured) error {
		found = convert[argov1.Rollout](s.t, object)
		status := found.Status
		if status.Phase != argov1.RolloutPhasePaused || status.Canary.Weights == nil || int(status.Canary.Weights.Canary.Weight) != weight {
			return errors.New(toJSON(s.t, status))
		}
		return nil
	})
	return found
}

// countSettled waits until the gateway serves the route, and returns the counts of the requests after that.
func (s *environment) countSettled(l *load.Load) load.Counts {
	s.t.Helper()
	from := time.Now().Add(settleTime)
	waitForRequests(s.t, l, 400)
	return l.Between(from, time.Now())
}

// TestPodsCarryTheMetadataOfTheirRole checks that the metadata is changed without a restart, and removed with the role.
func TestPodsCarryTheMetadataOfTheirRole(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout-roles")
	s.apply(rolloutManifest(t, "cart", 2, `{canary: {canaryMetadata: {labels: {role: canary}, annotations: {since: today}}, stableMetadata: {labels: {role: stable}},
	  steps: [{setWeight: 50}, {pause: {}}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForRoles("v1 stable, v1 stable")
	s.releaseVersion("cart", "v2")
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	s.waitForRoles("v1 stable, v2 canary today")
	before := s.podUIDs("cart")
	s.patch(rollouts, "cart", `{"spec":{"strategy":{"canary":{"canaryMetadata":{"annotations":{"since":"yesterday"}}}}}}`)
	s.waitForRoles("v1 stable, v2 canary yesterday")
	if diff := cmp.Diff(before, s.podUIDs("cart")); diff != "" {
		t.Errorf("pods were replaced for their metadata: %s", diff)
	}
	s.patchRolloutStatus("cart", `{"promoteFull":true}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForRoles("v2 stable, v2 stable")
}

// waitForRoles waits until the pods have these versions and roles.
func (s *environment) waitForRoles(want string) {
	s.t.Helper()
	s.waitForObject("the pods are "+want, rollouts, "cart", func(*unstructured.Unstructured) error {
		list, err := shared.Client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=cart"})
		if err != nil {
			s.t.Fatal(err)
		}
		var parts []string
		for _, version := range []string{"v1", "v2"} {
			for _, pod := range list.Items {
				image := pod.Spec.Containers[0].Image
				if pod.DeletionTimestamp == nil && strings.HasSuffix(image, ":"+version) {
					parts = append(parts, strings.TrimSpace(version+" "+pod.Labels["role"]+" "+pod.Annotations["since"]))
				}
			}
		}
		if got := strings.Join(parts, ", "); got != want {
			return errors.New(got)
		}
		return nil
	})
}

// TestSerinDoesNotActWhileArgoRolloutsRuns checks that Serin does nothing while Argo Rollouts holds its Lease, and acts after
// that.
func TestSerinDoesNotActWhileArgoRolloutsRuns(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "rollout-peer")
	lease, err := shared.Client.CoordinationV1().Leases(s.namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "argo-rollouts-controller-lock"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("argo-rollouts-7_1"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.apply(rolloutManifest(t, "cart", 1, `{canary: {}}`) + "---\n" + analysisRun("once", "metrics: [{name: one, successCondition: 'result[0] == 1', provider: {prometheus: {address: "+shared.PrometheusURL+", query: vector(1)}}}]"))
	s.startSerin("-allow-loopback-hooks", "-other-controller-namespaces="+s.namespace) // in other namespaces a Lease without a Deployment is ignored
	s.events.waitForState(t, "there is an event that names Argo Rollouts", 0, func(e state[corev1.Event]) error {
		if e.object.Reason != "LeftToArgoRollouts" || !strings.Contains(e.object.Message, "is held by argo-rollouts-7_1") {
			return fmt.Errorf("%s: %s", e.object.Reason, e.object.Message)
		}
		return nil
	})
	if status := convert[argov1.Rollout](t, s.get(rollouts, "cart")).Status; status.Phase != "" {
		t.Errorf("Serin wrote the status, which belongs to Argo Rollouts: %s", toJSON(t, status))
	}
	if status := convert[argov1.AnalysisRun](t, s.get(analysisRuns, "once")).Status; status.Phase != "" {
		t.Errorf("Serin measured for an AnalysisRun of Argo Rollouts: %s", toJSON(t, status))
	}
	sh, of := commandRunner{t, shared.Kubeconfig}, []string{"-n", s.namespace, "--controller-flags=-namespace=" + s.namespace + " -other-controller-namespaces=" + s.namespace}
	why := sh.run(codeUserAction, append([]string{"why", "rollout/cart"}, of...)...)
	sh.checkOutput(why, "It waits for peer: Argo Rollouts acts on this Rollout (Lease argo-rollouts-controller-lock of namespace rollout-peer is held by argo-rollouts-7_1), so Serin does not", "Action required")
	table := sh.run(codeDone, append([]string{"get"}, of...)...)
	sh.checkOutput(table, "peer (user)")
	t.Logf("output for the user:\n%s\n%s", table.stdout, why.stdout)
	s.delete(leases, lease.Name)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("cart", "v1=1")
	s.waitForRun("once", "is measured after that", inRunPhase(argov1.AnalysisPhaseSuccessful))
	sh.checkOutput(sh.run(codeDone, append([]string{"why", "rollout/cart"}, of...)...), "is idle (Healthy")
}

// instanceLeaseRBAC grants permissions for the Leases of an Argo Rollouts with instance ID blue or green.
const instanceLeaseRBAC = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: serin-instances}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [argo-rollouts-controller-lock-blue, argo-rollouts-controller-lock-green], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: serin-instances}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: serin-instances}
subjects: [{kind: ServiceAccount, name: serin, namespace: default}]
`

// TestAnInstanceServesOnlyObjectsWithItsID has a Rollout with and one without the instance ID.
func TestAnInstanceServesOnlyObjectsWithItsID(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "rollout-instance")
	s.apply(instanceLeaseRBAC)
	s.startSerin("-instance-id", "blue")
	s.apply(rolloutManifest(t, "other", 1, `{canary: {}}`) + rolloutManifest(t, "cart", 1, `{canary: {}}`))
	s.patch(rollouts, "cart", `{"metadata":{"labels":{"argo-rollouts.argoproj.io/controller-instance-id":"blue"}}}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	if status := convert[argov1.Rollout](t, s.get(rollouts, "other")).Status; status.Phase != "" {
		t.Errorf("a Rollout without an instance ID was served: %s", toJSON(t, status))
	}
}

// TestEachInstanceLeadsWithItsOwnLease runs two instances with leader election in one namespace. Both act at the same time, each on
// its own Rollout.
func TestEachInstanceLeadsWithItsOwnLease(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "rollout-instances")
	s.apply(instanceLeaseRBAC)
	instances := []string{"blue", "green"}
	for _, id := range instances {
		s.startProcess(serin, s.processName()+"-"+id, "-apis", "rollout", "-instance-id", id, "-enable-leader-election")
		s.apply(rolloutManifest(t, id, 1, `{canary: {steps: [{setWeight: 50}, {pause: {}}]}}`))
		s.patch(rollouts, id, `{"metadata":{"labels":{"`+argov1.InstanceIDLabel+`":"`+id+`"}}}`)
	}
	s.apply(rolloutManifest(t, "neither", 1, `{canary: {}}`))
	holders := map[string]string{}
	for _, id := range instances {
		s.waitForRolloutPhase(id, argov1.RolloutPhaseHealthy, "")
		s.waitForObject("instance "+id+" holds its Lease", leases, "serin-"+id, func(object *unstructured.Unstructured) error {
			if object == nil {
				return errors.New("there is none")
			}
			holders[id], _, _ = unstructured.NestedString(object.Object, "spec", "holderIdentity")
			if holders[id] == "" {
				return errors.New("it has no holder")
			}
			return nil
		})
	}
	if holders["blue"] == holders["green"] {
		t.Errorf("both Leases are held by %s", holders["blue"])
	}
	for _, id := range instances {
		s.releaseVersion(id, "v2")
	}
	for _, id := range instances { // each was still leading when it began the release
		s.waitForRolloutPhase(id, argov1.RolloutPhasePaused, "")
	}
	if status := convert[argov1.Rollout](t, s.get(rollouts, "neither")).Status; status.Phase != "" {
		t.Errorf("a Rollout without an instance ID was served: %s", toJSON(t, status))
	}
}

// TestARolloutAndACanaryNeverReleaseOneWorkload checks that the later one reports the conflict, and continues when the other
// is deleted.
func TestARolloutAndACanaryNeverReleaseOneWorkload(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout-rival", "-mesh-provider", "kubernetes")
	s.apply(deployment(t, "cart", 1) + `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: cart}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  service: {port: 80, targetPort: http}
  analysis: {interval: 3s, threshold: 2, iterations: 2}
`)
	s.follow("cart").waitForPhase("Initialized")
	s.apply(`
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: later}
spec:
  replicas: 1
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  strategy: {canary: {}}
`)
	s.waitForRolloutPhase("later", argov1.RolloutPhaseDegraded, "Canary cart already releases Deployment cart")
	s.delete(canaries, "cart")
	s.waitForRolloutPhase("later", argov1.RolloutPhaseHealthy, "")
}
