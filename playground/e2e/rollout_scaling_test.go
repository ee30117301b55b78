//go:build linux

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

var budgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

// rolledScaler uses a metric that does not exist here: the HorizontalPodAutoscaler controller then only enforces the bounds,
// which is sufficient for these tests.
const rolledScaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: cart}
spec:
  scaleTargetRef: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: cart}
  minReplicas: 2
  maxReplicas: 8
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
---
`

// TestAnAutoscalerMayScaleInTheMiddleOfARelease scales with a HorizontalPodAutoscaler and with kubectl scale, which both use
// the scale subresource of the Rollout. Both revisions are scaled, the step and the weights do not change, and no request is
// lost.
func TestAnAutoscalerMayScaleInTheMiddleOfARelease(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "scaled")
	s.apply(cartRoute(t, "scaled.test") + rolledScaler + rolloutManifest(t, "cart", 2, `{canary: {stableService: cart-stable, canaryService: cart-canary, scaleDownDelaySeconds: 3,
	  trafficRouting: {plugins: {argoproj-labs/gatewayAPI: {httpRoute: cart, namespace: scaled}}},
	  steps: [{setWeight: 50}, {pause: {}}, {setWeight: 75}, {pause: {}}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	l := s.startLoad("scaled.test", 80)
	waitForRequests(t, l, 20, "v1")
	s.releaseVersion("cart", "v2")
	s.waitForPausedAt(50)
	s.waitForPods("cart", "v1=2 v2=1")
	checkStep := func(weight int, step int32) {
		t.Helper()
		if status := s.waitForPausedAt(weight).Status; *status.CurrentStepIndex != step || status.HPAReplicas != status.Replicas || status.Selector == "" {
			t.Errorf("after scaling, the status has step %d, HPAReplicas %d, replicas %d, selector %q", *status.CurrentStepIndex, status.HPAReplicas, status.Replicas, status.Selector)
		}
	}

	s.patch(scalers, "cart", `{"spec":{"minReplicas":4}}`)
	s.waitForPods("cart", "v1=4 v2=2")
	checkStep(50, 1)
	s.checkShare(l, 50)
	s.kubectl("", "scale", "rollout/cart", "--replicas=6")
	s.waitForPods("cart", "v1=6 v2=3")
	checkStep(50, 1)
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	s.waitForPausedAt(75)
	s.waitForPods("cart", "v1=6 v2=5")

	s.patch(scalers, "cart", `{"spec":{"minReplicas":1,"maxReplicas":4}}`)
	s.waitForPods("cart", "v1=4 v2=3")
	checkStep(75, 3)
	s.checkShare(l, 75)
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("cart", "v2=4")
	if counts := l.Counts(); counts.Lost > 0 {
		t.Errorf("%d requests were lost: %s", counts.Lost, counts)
	}
	if scaler := convert[autoscalingv2.HorizontalPodAutoscaler](t, s.get(scalers, "cart")); scaler.Status.DesiredReplicas != 4 {
		t.Errorf("the status of the autoscaler is %+v", scaler.Status)
	}
}

const workloadRollout = `
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: cart}
spec:
  replicas: %d
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: cart, scaleDown: %s}
  strategy: {canary: {steps: [{setWeight: 50}, {pause: {}}]}}
---
`

// TestTheDeploymentOfARolloutIsScaledDownAsSpecified covers scaleDown: progressively as the pods of the Rollout become ready,
// at once when the Rollout is healthy, or never.
func TestTheDeploymentOfARolloutIsScaledDownAsSpecified(t *testing.T) {
	t.Parallel()
	for how, sizes := range map[string][]int32{"progressively": {3, 2, 1, 0}, "onsuccess": {3, 0}, "never": {3}} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := startEnvironment(t, "rollout-"+how)
			history := recordHistory[appsv1.Deployment](t, deployments, s.namespace)
			s.apply(deploymentByHand("cart", 3))
			s.waitForDeployment("has made its pods", "cart", func(d appsv1.Deployment) error {
				if d.Status.Replicas != 3 {
					return fmt.Errorf("it has %d", d.Status.Replicas)
				}
				return nil
			})
			s.makePodsReady("app=cart", 3)
			s.apply(fmt.Sprintf(workloadRollout, 3, how))
			s.waitForObject("the Rollout has made its pods", rollouts, "cart", func(object *unstructured.Unstructured) error {
				if created := convert[argov1.Rollout](t, object).Status.Replicas; created != 3 {
					return fmt.Errorf("it has %d", created)
				}
				return nil
			})
			for i := range 3 {
				s.makePodsReady("app=cart,"+argov1.PodTemplateHashLabel, 1)
				s.waitForObject("the Rollout has its pod", rollouts, "cart", func(object *unstructured.Unstructured) error {
					if ready := convert[argov1.Rollout](t, object).Status.ReadyReplicas; int(ready) != i+1 {
						return fmt.Errorf("%d are ready", ready)
					}
					return nil
				})
				if how == "progressively" {
					s.waitForDeployment("is scaled down by a pod", "cart", func(d appsv1.Deployment) error {
						if replicas := *d.Spec.Replicas; replicas > int32(2-i) {
							return fmt.Errorf("it has %d desired replicas", replicas)
						}
						return nil
					})
				}
			}
			s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
			if last := sizes[len(sizes)-1]; last == 0 {
				s.waitForDeployment("has no pods", "cart", func(d appsv1.Deployment) error {
					if *d.Spec.Replicas != 0 || d.Status.Replicas != 0 {
						return fmt.Errorf("it has %d desired replicas and %d pods", *d.Spec.Replicas, d.Status.Replicas)
					}
					return nil
				})
			}

			s.deployVersion("cart", "v2") // a release does not scale the Deployment
			s.keepPodsReady(t)
			s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
			var seen []int32
			states, _ := history.statesFrom(0)
			for _, state := range states {
				if n := *state.object.Spec.Replicas; len(seen) == 0 || seen[len(seen)-1] != n {
					seen = append(seen, n)
				}
			}
			if !slices.Equal(seen, sizes) {
				t.Errorf("the desired replicas of the Deployment were %v, want %v", seen, sizes)
			}
		})
	}
}

// TestTheDeploymentOfARolloutIsReplacedWithoutLostRequests scales the Deployment down while the pods of the Rollout become ready.
func TestTheDeploymentOfARolloutIsReplacedWithoutLostRequests(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout-handover")
	s.apply("apiVersion: v1\nkind: Service\nmetadata: {name: cart}\nspec: {selector: {app: cart}, ports: [{port: 80, targetPort: http}]}\n---\n" +
		deployment(t, "cart", 4))
	s.waitForAvailable("cart", 4)
	l := s.startServiceLoad("cart", 80, 60)
	waitForRequests(t, l, 20, "v1")
	s.apply(fmt.Sprintf(workloadRollout, 4, "progressively"))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForDeployment("has no pods", "cart", func(d appsv1.Deployment) error {
		if d.Status.Replicas != 0 {
			return fmt.Errorf("it has %d", d.Status.Replicas)
		}
		return nil
	})
	waitForRequests(t, l, 60, "v1")
	if counts := l.Counts(); counts.Lost > 0 {
		t.Errorf("%d requests were lost: %s", counts.Lost, counts)
	}
}

// TestADisruptionBudgetHoldsInTheMiddleOfARelease checks that the budget counts the pods of both revisions against the
// replicas of the Rollout. An evicted pod is replaced, the next eviction is refused until then, and the release continues.
func TestADisruptionBudgetHoldsInTheMiddleOfARelease(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollout-budget")
	s.apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: cart}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: cart}}}
---
` + rolloutManifest(t, "cart", 4, `{canary: {maxSurge: 0, maxUnavailable: 1, steps: [{setWeight: 25}, {pause: {}}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.releaseVersion("cart", "v2")
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	s.waitForPods("cart", "v1=3 v2=1")
	s.waitForAllowedEvictions(1)
	before := s.podUIDs("cart")
	canary := s.evictPod("v2")
	if _, err := s.tryEvictPod("v1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second eviction at once: %v", err)
	}
	s.waitForAllowedEvictions(1)
	s.waitForPods("cart", "v1=3 v2=1")
	if after := s.podUIDs("cart"); after[canary] || len(after) != len(before) {
		t.Errorf("pods %v, want another one for %s", after, canary)
	}
	if status := s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep").Status; *status.CurrentStepIndex != 1 {
		t.Errorf("at step %d", *status.CurrentStepIndex)
	}
	s.evictPod("v1")
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForPods("cart", "v2=4")
}

// waitForAllowedEvictions waits until the budget permits n evictions.
func (s *environment) waitForAllowedEvictions(n int32) {
	s.t.Helper()
	s.waitForObject(fmt.Sprintf("the budget allows %d evictions", n), budgets, "cart", func(object *unstructured.Unstructured) error {
		if got := convert[policyv1.PodDisruptionBudget](s.t, object).Status.DisruptionsAllowed; got != n {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}

// evictPod evicts a pod of a version.
func (s *environment) evictPod(version string) types.UID {
	s.t.Helper()
	uid, err := s.tryEvictPod(version)
	if err != nil {
		s.t.Fatalf("evict a pod of %s: %v", version, err)
	}
	return uid
}

func (s *environment) tryEvictPod(version string) (types.UID, error) {
	s.t.Helper()
	for _, object := range s.list(pods) {
		pod := convert[corev1.Pod](s.t, &object)
		if pod.DeletionTimestamp != nil || !strings.HasSuffix(pod.Spec.Containers[0].Image, ":"+version) {
			continue
		}
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod.Name}}
		return pod.UID, shared.Client.PolicyV1().Evictions(s.namespace).Evict(s.t.Context(), eviction)
	}
	s.t.Fatalf("there is no pod of %s", version)
	return "", nil
}
