//go:build linux

package e2e_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// readinessExample returns the example with the gateway that exists here.
func readinessExample(t *testing.T, more ...string) string {
	return readExample(t, "canary-readiness", append([]string{
		"gatewayRefs: [{name: public, namespace: shop}]", "gatewayRefs: [{name: gateway, namespace: playground}]",
	}, more...)...)
}

// runWhy returns the output of serin why for the Canary of the example.
func (s *environment) runWhy() string {
	s.t.Helper()
	// The exit code reports the state of the release; only the output is used here.
	text, _ := exec.CommandContext(s.t.Context(), serin, "why", "api", "-n", s.namespace, "--kubeconfig", shared.Kubeconfig).CombinedOutput()
	return string(text)
}

func TestFirstWeightRequiresTheReadyThreshold(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "readiness", "-drain-delay", "0s")
	s.apply(deploymentByHand("api", 10))
	r := s.follow("api")
	// Only pods can advance this release: the window and the deadline are an hour.
	s.apply(readinessExample(t, "interval: 30s", "interval: 1h", "progressDeadlineSeconds: 60", "progressDeadlineSeconds: 3600"))
	s.waitForDeployment("is there", "api-primary", hasReplicas(10))
	s.makePodsReady("app=api-primary", 9)
	s.waitForDeployment("has nine pods", "api-primary", available(9))
	if text := s.runWhy(); !strings.Contains(text, "9 of 10 (readyThreshold 100%) updated replicas are available") {
		t.Errorf("output of serin why with nine pods of the primary:\n%s", text)
	}
	s.makePodsReady("app=api-primary", 1)
	r.waitForPhase("Initialized")
	s.waitForDeployment("is scaled to zero", "api", hasReplicas(0))

	// 75 % of ten pods are seven.
	r = s.follow("api")
	s.deployVersion("api", "v2")
	s.waitForDeployment("has its pods", "api", hasReplicas(10))
	s.makePodsReady("app=api", 6)
	s.waitForDeployment("has six pods", "api", available(6))
	if text := s.runWhy(); !strings.Contains(text, "6 of 7 (readyThreshold 75%) updated replicas are available") {
		t.Errorf("output of serin why with six pods:\n%s", text)
	}
	s.makePodsReady("app=api", 1)
	first := r.waitFor("has its first weight", hasWeight(10))
	s.checkNoWeightBeforePods(r, first)

	// A new revision during the release: the pods are updated gradually, and old pods remain until new ones are available.
	s.makePodsReady("app=api", 3)
	s.waitForDeployment("has ten pods", "api", available(10))
	observed := s.follow("api")
	s.deployVersion("api", "v3")
	observed.waitFor("begins again", hasWeight(0))
	rolling := func(updated, old int32) func(appsv1.Deployment) error {
		return func(d appsv1.Deployment) error {
			if d.Status.UpdatedReplicas != updated || d.Status.Replicas != updated+old {
				return fmt.Errorf("%d pods are updated and %d are not", d.Status.UpdatedReplicas, d.Status.Replicas-d.Status.UpdatedReplicas)
			}
			return nil
		}
	}
	// Kubernetes creates at most 13 pods and keeps 8 available: first 5 new and 8 old ones, then 10 new and 3 old ones.
	s.waitForDeployment("has half of its new pods", "api", rolling(5, 8))
	if text := s.runWhy(); !strings.Contains(text, "5 out of 10 new replicas have been updated") {
		t.Errorf("output of serin why with half of the pods updated:\n%s", text)
	}
	s.makePodsReady("app=api", 5)
	s.waitForDeployment("has all of its new pods", "api", rolling(10, 3))
	if text := s.runWhy(); !strings.Contains(text, "3 old replicas are pending termination") {
		t.Errorf("output of serin why with old pods:\n%s", text)
	}
	s.keepPodsReady(t)
	observed.next = observed.first
	observed.waitFor("begins again", hasWeight(0))
	again := observed.waitFor("has its first weight", hasWeight(10))
	s.checkNoWeightBeforePods(observed, again)
}

// checkNoWeightBeforePods checks that the weight was 0 in all states from the start of a release to its first weight. The
// first states may have the weight of the previous release.
func (s *environment) checkNoWeightBeforePods(r *release, first canary) {
	s.t.Helper()
	started := false
	for _, state := range r.states() {
		weight := state.object.Status.CanaryWeight
		if state.object.Metadata.ResourceVersion == first.Metadata.ResourceVersion {
			return
		}
		started = started || weight == 0
		if started && weight != 0 {
			s.t.Errorf("the weight was set before the pods were ready: %s", state.object)
		}
	}
}

func available(n int32) func(appsv1.Deployment) error {
	return func(d appsv1.Deployment) error {
		if d.Status.AvailableReplicas != n {
			return fmt.Errorf("%d pods are available, want %d", d.Status.AvailableReplicas, n)
		}
		return nil
	}
}

// TestReleaseIsRolledBackAtTheProgressDeadlineWithItsReason has real pods: one whose image does not exist, one that crashes,
// and one for which the progress deadline of Kubernetes is exceeded before that of Serin.
func TestReleaseIsRolledBackAtTheProgressDeadlineWithItsReason(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "deadline", "-drain-delay", "0s")
	manifests := ""
	for name, deadline := range map[string]string{"image": "15", "crash": "15", "kubernetes": "3600"} {
		manifests += deployment(t, name, 1) + readinessExample(t, "interval: 30s", "interval: 1h",
			"progressDeadlineSeconds: 60", "progressDeadlineSeconds: "+deadline,
			"name: api", "name: "+name, "api.example.com", name+".deadline.test") + "\n---\n"
	}
	observed := s.follow("")
	s.apply(manifests)
	for _, name := range []string{"image", "crash", "kubernetes"} {
		observed.forCanary(name).waitForPhase("Initialized")
	}
	observed = s.follow("")
	s.patchContainer("image", `{"name":"app","image":"registry.example.com/missing:1"}`)
	s.patchContainer("crash", `{"name":"app","env":[{"name":"CRASH_AFTER","value":"0s"}]}`)
	// The deadline of Kubernetes applies to rollouts of a Deployment, so a second revision is deployed while the first is
	// observed.
	s.deployVersion("kubernetes", "v2")
	r := observed.forCanary("kubernetes")
	r.waitFor("has its first weight", hasWeight(10))
	s.strategicMergePatch("kubernetes", `{"spec":{"progressDeadlineSeconds":2,"template":{"spec":{"containers":[{"name":"app","env":[{"name":"READY_AFTER","value":"1h"}]}]}}}}`)
	r.waitForEnd("Failed")
	s.checkRolledBackAtDeadline(r, `deployment "kubernetes" exceeded its progress deadline`)

	// The container of a crashing pod is waiting, terminated or running: all messages name the container.
	for name, reason := range map[string]string{"image": "container app: ImagePullBackOff", "crash": "container app: "} {
		r := observed.forCanary(name)
		r.waitForEnd("Failed")
		s.checkRolledBackAtDeadline(r, reason)
		for _, state := range r.states() {
			if state.object.Status.CanaryWeight != 0 {
				t.Errorf("a release without available pods received traffic: %s", state.object)
			}
		}
	}
}

// checkRolledBackAtDeadline checks that a release was rolled back for the reason, and not for failed checks.
func (s *environment) checkRolledBackAtDeadline(r *release, reason string) {
	s.t.Helper()
	r.waitForEvent("Canary failed! Scaling down " + r.name + "." + s.namespace)
	if text := r.waitForEvent("Rolling back " + r.name + "." + s.namespace + " progress deadline exceeded"); !strings.Contains(text, reason) {
		s.t.Errorf("the rollback of %s does not name %s: %s", r.name, reason, text)
	}
	for _, state := range r.states() {
		if state.object.Status.FailedChecks != 0 {
			s.t.Errorf("a release without a window has failed checks: %s", state.object)
		}
	}
}

func (s *environment) patchContainer(deployment, container string) {
	s.t.Helper()
	s.strategicMergePatch(deployment, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[%s]}}}}`, container))
}
