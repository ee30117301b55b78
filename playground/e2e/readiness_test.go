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
	return example(t, "canary-readiness", append([]string{
		"gatewayRefs: [{name: public, namespace: shop}]", "gatewayRefs: [{name: gateway, namespace: playground}]",
	}, more...)...)
}

// why is what `serin why` says about the Canary of the example.
func (s *stage) why() string {
	s.t.Helper()
	// The exit code says how the release stands; what counts here is the text.
	text, _ := exec.CommandContext(s.t.Context(), serin, "why", "api", "-n", s.namespace, "--kubeconfig", shared.Kubeconfig).CombinedOutput()
	return string(text)
}

func TestFirstWeightComesWithTheLastPodThatIsNeededAndNotBefore(t *testing.T) {
	t.Parallel()
	s := enter(t, "readiness", "-drain-delay", "0s")
	s.apply(deploymentByHand("api", 10))
	r := s.follow("api")
	// No tick can be what moves this release: a window is an hour, and so is the deadline.
	s.apply(readinessExample(t, "interval: 30s", "interval: 1h", "progressDeadlineSeconds: 60", "progressDeadlineSeconds: 3600"))
	s.awaitDeployment("is there", "api-primary", replicated(10))
	s.makeReady("app=api-primary", 9)
	s.awaitDeployment("has nine pods", "api-primary", available(9))
	if text := s.why(); !strings.Contains(text, "9 of 10 (readyThreshold 100%) updated replicas are available") {
		t.Errorf("with nine pods of the primary serin why says:\n%s", text)
	}
	s.makeReady("app=api-primary", 1)
	r.reaches("Initialized")
	s.awaitDeployment("is scaled to zero", "api", replicated(0))

	// 75 % of ten are seven.
	r = s.follow("api")
	s.ship("api", "v2")
	s.awaitDeployment("has its pods", "api", replicated(10))
	s.makeReady("app=api", 6)
	s.awaitDeployment("has six pods", "api", available(6))
	if text := s.why(); !strings.Contains(text, "6 of 7 (readyThreshold 75%) updated replicas are available") {
		t.Errorf("with six pods serin why says:\n%s", text)
	}
	s.makeReady("app=api", 1)
	first := r.until("has its first weight", hasWeight(10))
	s.unshifted(r, first)

	// A new revision in the middle: the pods are updated bit by bit, and old ones stay until new ones can serve.
	s.makeReady("app=api", 3)
	s.awaitDeployment("has ten pods", "api", available(10))
	begun := s.follow("api")
	s.ship("api", "v3")
	begun.until("begins again", hasWeight(0))
	rolling := func(updated, old int32) func(appsv1.Deployment) error {
		return func(d appsv1.Deployment) error {
			if d.Status.UpdatedReplicas != updated || d.Status.Replicas != updated+old {
				return fmt.Errorf("%d pods are updated and %d are not", d.Status.UpdatedReplicas, d.Status.Replicas-d.Status.UpdatedReplicas)
			}
			return nil
		}
	}
	// Kubernetes makes 13 pods at most and keeps 8 available: 5 new ones beside 8 old, then, with these, 10 beside 3.
	s.awaitDeployment("has half of its new pods", "api", rolling(5, 8))
	if text := s.why(); !strings.Contains(text, "5 out of 10 new replicas have been updated") {
		t.Errorf("with half of the pods updated serin why says:\n%s", text)
	}
	s.makeReady("app=api", 5)
	s.awaitDeployment("has all of its new pods", "api", rolling(10, 3))
	if text := s.why(); !strings.Contains(text, "3 old replicas are pending termination") {
		t.Errorf("with old pods serin why says:\n%s", text)
	}
	s.keepReady(t)
	begun.mark = begun.began
	begun.until("begins again", hasWeight(0))
	again := begun.until("has its first weight", hasWeight(10))
	s.unshifted(begun, again)
}

// unshifted wants no state between the beginning of a release and its first weight to have had another weight than 0,
// but for the one that the release before left.
func (s *stage) unshifted(r *release, first canary) {
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
	s := enter(t, "deadline", "-drain-delay", "0s")
	manifests := ""
	for name, deadline := range map[string]string{"image": "15", "crash": "15", "kubernetes": "3600"} {
		manifests += deployment(t, name, 1) + readinessExample(t, "interval: 30s", "interval: 1h",
			"progressDeadlineSeconds: 60", "progressDeadlineSeconds: "+deadline,
			"name: api", "name: "+name, "api.example.com", name+".deadline.test") + "\n---\n"
	}
	begun := s.follow("")
	s.apply(manifests)
	for _, name := range []string{"image", "crash", "kubernetes"} {
		begun.of(name).reaches("Initialized")
	}
	begun = s.follow("")
	s.patchContainer("image", `{"name":"app","image":"registry.example.com/nobody:1"}`)
	s.patchContainer("crash", `{"name":"app","env":[{"name":"CRASH_AFTER","value":"0s"}]}`)
	// Kubernetes' own deadline is for changes of what runs, so here a second revision comes while the first is observed.
	s.ship("kubernetes", "v2")
	r := begun.of("kubernetes")
	r.until("has its first weight", hasWeight(10))
	s.strategic("kubernetes", `{"spec":{"progressDeadlineSeconds":2,"template":{"spec":{"containers":[{"name":"app","env":[{"name":"READY_AFTER","value":"1h"}]}]}}}}`)
	r.ends("Failed")
	s.gaveUp(r, `deployment "kubernetes" exceeded its progress deadline`)

	// A look at a pod that crashes finds it waiting, ended, or started again: all of them name the container.
	for name, reason := range map[string]string{"image": "container app: ImagePullBackOff", "crash": "container app: "} {
		r := begun.of(name)
		r.ends("Failed")
		s.gaveUp(r, reason)
		for _, state := range r.states() {
			if state.object.Status.CanaryWeight != 0 {
				t.Errorf("a release whose pods never ran had traffic: %s", state.object)
			}
		}
	}
}

// gaveUp wants a release to have been rolled back for the reason, and not for failed checks.
func (s *stage) gaveUp(r *release, reason string) {
	s.t.Helper()
	r.tells("Canary failed! Scaling down " + r.name + "." + s.namespace)
	if text := r.tells("Rolling back " + r.name + "." + s.namespace + " progress deadline exceeded"); !strings.Contains(text, reason) {
		s.t.Errorf("the rollback of %s does not name %s: %s", r.name, reason, text)
	}
	for _, state := range r.states() {
		if state.object.Status.FailedChecks != 0 {
			s.t.Errorf("a release without a single window had failed checks: %s", state.object)
		}
	}
}

func (s *stage) patchContainer(deployment, container string) {
	s.t.Helper()
	s.strategic(deployment, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[%s]}}}}`, container))
}
