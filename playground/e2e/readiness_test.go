//go:build linux

package e2e_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// readinessExample is the example with a gateway that is there and a window that never ends in a test: what happens,
// happens because of pods.
func readinessExample(t *testing.T, more ...string) string {
	return readExample(t, "canary-readiness", append([]string{
		"gatewayRefs: [{name: public, namespace: shop}]", "gatewayRefs: [{name: gateway, namespace: playground}]",
	}, more...)...)
}

// why is what `serin why` says about the Canary of the example.
func (s *environment) runWhy() string {
	s.t.Helper()
	// The exit code says how the release stands; what counts here is the text.
	text, _ := exec.CommandContext(s.t.Context(), serin, "why", "api", "-n", s.namespace, "--kubeconfig", shared.Kubeconfig).CombinedOutput()
	return string(text)
}

func TestFirstWeightComesWithTheLastPodThatIsNeededAndNotBefore(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "readiness", "-drain-delay", "0s")
	s.apply(deploymentByHand("api", 10))
	r := s.follow("api")
	// No tick can be what moves this release: a window is an hour, and so is the deadline.
	s.apply(readinessExample(t, "interval: 30s", "interval: 1h", "progressDeadlineSeconds: 60", "progressDeadlineSeconds: 3600"))
	s.waitForDeployment("is there", "api-primary", hasReplicas(10))
	s.makePodsReady("app=api-primary", 9)
	s.waitForDeployment("has nine pods", "api-primary", available(9))
	if text := s.runWhy(); !strings.Contains(text, "9 of 10 (readyThreshold 100%) updated replicas are available") {
		t.Errorf("with nine pods of the primary serin why says:\n%s", text)
	}
	s.makePodsReady("app=api-primary", 1)
	r.waitForPhase("Initialized")
	s.waitForDeployment("is scaled to zero", "api", hasReplicas(0))

	// 75 % of ten are seven.
	r = s.follow("api")
	s.deployVersion("api", "v2")
	s.waitForDeployment("has its pods", "api", hasReplicas(10))
	s.makePodsReady("app=api", 6)
	s.waitForDeployment("has six pods", "api", available(6))
	if text := s.runWhy(); !strings.Contains(text, "6 of 7 (readyThreshold 75%) updated replicas are available") {
		t.Errorf("with six pods serin why says:\n%s", text)
	}
	s.makePodsReady("app=api", 1)
	first := r.waitFor("has its first weight", hasWeight(10))
	s.checkNoWeightBeforePods(r, first)

	// A new revision in the middle: the pods are updated bit by bit, and old ones stay until new ones can serve.
	s.makePodsReady("app=api", 3)
	s.waitForDeployment("has ten pods", "api", available(10))
	begun := s.follow("api")
	s.deployVersion("api", "v3")
	begun.waitFor("begins again", hasWeight(0))
	rolling := func(updated, old int32) func(appsv1.Deployment) error {
		return func(d appsv1.Deployment) error {
			if d.Status.UpdatedReplicas != updated || d.Status.Replicas != updated+old {
				return fmt.Errorf("%d pods are updated and %d are not", d.Status.UpdatedReplicas, d.Status.Replicas-d.Status.UpdatedReplicas)
			}
			return nil
		}
	}
	// Kubernetes makes 13 pods at most and keeps 8 available: 5 new ones beside 8 old, then, with these, 10 beside 3.
	s.waitForDeployment("has half of its new pods", "api", rolling(5, 8))
	if text := s.runWhy(); !strings.Contains(text, "5 out of 10 new replicas have been updated") {
		t.Errorf("with half of the pods updated serin why says:\n%s", text)
	}
	s.makePodsReady("app=api", 5)
	s.waitForDeployment("has all of its new pods", "api", rolling(10, 3))
	if text := s.runWhy(); !strings.Contains(text, "3 old replicas are pending termination") {
		t.Errorf("with old pods serin why says:\n%s", text)
	}
	s.keepPodsReady(t)
	begun.mark = begun.began
	begun.waitFor("begins again", hasWeight(0))
	again := begun.waitFor("has its first weight", hasWeight(10))
	s.checkNoWeightBeforePods(begun, again)
}

// unshifted wants no state between the beginning of a release and its first weight to have had another weight than 0,
// but for the one that the release before left.
func (s *environment) checkNoWeightBeforePods(r *release, first canary) {
	s.t.Helper()
	begun := false
	for _, state := range r.states() {
		weight := state.object.Status.CanaryWeight
		if state.object.Metadata.ResourceVersion == first.Metadata.ResourceVersion {
			return
		}
		begun = begun || weight == 0
		if begun && weight != 0 {
			s.t.Errorf("there was a weight before the pods were ready: %s", state.object)
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

// TestPodsThatNeverRunAreTakenBackAtTheDeadlineAndNamed has real pods: one whose image nobody has, one that crashes, and
// one that Kubernetes gives up before Serin would.
func TestPodsThatNeverRunAreTakenBackAtTheDeadlineAndNamed(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "deadline", "-drain-delay", "0s")
	manifests := ""
	for name, deadline := range map[string]string{"image": "15", "crash": "15", "kubernetes": "3600"} {
		manifests += deployment(t, name, 1) + readinessExample(t, "interval: 30s", "interval: 1h",
			"progressDeadlineSeconds: 60", "progressDeadlineSeconds: "+deadline,
			"name: api", "name: "+name, "api.example.com", name+".deadline.test") + "\n---\n"
	}
	begun := s.follow("")
	s.apply(manifests)
	for _, name := range []string{"image", "crash", "kubernetes"} {
		begun.forCanary(name).waitForPhase("Initialized")
	}
	begun = s.follow("")
	s.patchContainer("image", `{"name":"app","image":"registry.example.com/nobody:1"}`)
	s.patchContainer("crash", `{"name":"app","env":[{"name":"CRASH_AFTER","value":"0s"}]}`)
	// Kubernetes' own deadline is for changes of what runs, so here a second revision comes while the first is observed.
	s.deployVersion("kubernetes", "v2")
	r := begun.forCanary("kubernetes")
	r.waitFor("has its first weight", hasWeight(10))
	s.strategicMergePatch("kubernetes", `{"spec":{"progressDeadlineSeconds":2,"template":{"spec":{"containers":[{"name":"app","env":[{"name":"READY_AFTER","value":"1h"}]}]}}}}`)
	r.waitForEnd("Failed")
	s.checkRolledBackAtDeadline(r, `deployment "kubernetes" exceeded its progress deadline`)

	// A look at a pod that crashes finds it waiting, ended, or started again: all of them name the container.
	for name, reason := range map[string]string{"image": "container app: ImagePullBackOff", "crash": "container app: "} {
		r := begun.forCanary(name)
		r.waitForEnd("Failed")
		s.checkRolledBackAtDeadline(r, reason)
		for _, state := range r.states() {
			if state.object.Status.CanaryWeight != 0 {
				t.Errorf("a release whose pods never ran had traffic: %s", state.object)
			}
		}
	}
}

// gaveUp wants a release to have been rolled back for the reason, and not for failed checks.
func (s *environment) checkRolledBackAtDeadline(r *release, reason string) {
	s.t.Helper()
	r.waitForEvent("Canary failed! Scaling down " + r.name + "." + s.namespace)
	if text := r.waitForEvent("Rolling back " + r.name + "." + s.namespace + " progress deadline exceeded"); !strings.Contains(text, reason) {
		s.t.Errorf("the rollback of %s does not name %s: %s", r.name, reason, text)
	}
	for _, state := range r.states() {
		if state.object.Status.FailedChecks != 0 {
			s.t.Errorf("a release without a single window had failed checks: %s", state.object)
		}
	}
}

func (s *environment) patchContainer(deployment, container string) {
	s.t.Helper()
	s.strategicMergePatch(deployment, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[%s]}}}}`, container))
}
