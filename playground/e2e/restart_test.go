//go:build linux

package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// canaryWithHooks returns a Canary whose release reaches every phase, and waits for the user in two of them.
func canaryWithHooks(hooks *receiver) string {
	return fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: cart}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  service: {port: 8080, hosts: [%[1]s], gatewayRefs: [{name: gateway, namespace: playground}]}
  analysis:
    interval: 2s
    threshold: 2
    stepWeights: [30, 60]
    metrics:
    - {name: request-success-rate, interval: 5s, thresholdRange: {min: 99}}
    webhooks:
    - {name: start, type: confirm-rollout, url: %[2]q}
    - {name: accept, type: pre-rollout, url: %[3]q}
    - {name: load, type: rollout, url: %[4]q}
    - {name: finish, type: confirm-promotion, url: %[5]q}
`, restartHost, hooks.url("/start"), hooks.url("/accept"), hooks.url("/load"), hooks.url("/finish"))
}

const restartHost = "restart.test"

// restartWindow is the interval of canaryWithHooks.
const restartWindow = 2 * time.Second

// TestReleaseSurvivesARestartInEachPhase sends SIGKILL to Serin in each phase of a release.
func TestReleaseSurvivesARestartInEachPhase(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "restart")
	hooks := startReceiver(t)
	hooks.setAnswer("/start", answerWith(http.StatusForbidden))
	hooks.setAnswer("/finish", answerWith(http.StatusForbidden))
	// Pods become ready after a delay, so that Serin is killed before the end of the phase.
	s.apply(deployment(t, "cart", 1, "READY_AFTER", "1s"))
	r := s.follow("cart")
	s.apply(canaryWithHooks(hooks))
	killedIn := func(phase string) {
		t.Helper()
		r.waitForPhase(phase)
		s.killAndRestart("cart", inPhase(phase))
	}
	killedIn("Initializing")
	r.waitForPhase("Initialized")
	l := s.startLoad(restartHost, 30)
	waitForRequests(t, l, 1, "v1")

	r = s.follow("cart")
	s.deployVersion("cart", "v2", "READY_AFTER", "1s")
	killedIn("Waiting")
	asked := len(hooks.callsTo("/start"))
	hooks.waitForCall("/start", asked+1) // it continues to call the webhook
	hooks.setAnswer("/start", answerWith(http.StatusOK))
	killedIn("Progressing") // before the first weight
	firstWeight := func(c canary) error {
		if c.Status.CanaryWeight != 30 || c.window() == "" {
			return errors.New("not at the first weight")
		}
		return nil
	}
	open := r.waitFor("has its first weight", firstWeight)
	s.killAndRestart("cart", firstWeight)
	after := r.waitFor("has its last weight", func(c canary) error {
		if c.Status.CanaryWeight != 60 {
			return errors.New("not yet")
		}
		return nil
	})
	if length := after.Status.Serin.Window.Start.Sub(open.Status.Serin.Window.Start.Time); length < restartWindow {
		t.Errorf("the window in which Serin was killed took %s, want at least %s", length, restartWindow)
	}
	killedIn("WaitingPromotion")
	hooks.setAnswer("/finish", answerWith(http.StatusOK))
	killedIn("Promoting")
	killedIn("Finalising")
	end := r.waitForEnd("Succeeded")
	s.waitForPodsDeleted("app=cart")
	waitForRequests(t, l, 30, "v2")
	l.Stop()

	if st := end.Status; st.CanaryWeight != 0 || st.FailedChecks != 0 || st.LastAppliedSpec == "" || st.LastAppliedSpec != st.LastPromotedSpec {
		t.Errorf("status at the end is %+v", st)
	}
	if counts := l.Counts(); counts.Failed() != 0 {
		t.Errorf("requests failed: %s", counts)
	}
	var phases []string
	for _, state := range r.states() {
		if phase := state.object.Status.Phase; len(phases) == 0 || phases[len(phases)-1] != phase {
			phases = append(phases, phase)
		}
	}
	// The first state is that before the release.
	phases = slices.DeleteFunc(phases, func(phase string) bool { return phase == "Initialized" })
	want := []string{"Waiting", "Progressing", "WaitingPromotion", "Promoting", "Finalising", "Succeeded"}
	if diff := cmp.Diff(want, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}

	// Each window takes at least the interval, however often Serin was killed during it.
	windows := r.windows()
	for i, w := range windows[1:] {
		if length := w.start.Sub(windows[i].start); length < restartWindow {
			t.Errorf("window %d (weight %d) was %s long, want at least %s", i, windows[i].weight, length, restartWindow)
		}
	}
	// Each window has its own query. A query in progress when Serin was killed is sent once more, with the same key.
	loads := callsByKey(hooks.callsTo("/load"))
	if len(loads) != len(windows) {
		t.Errorf("%d windows sent %d different queries to the rollout hook: %v", len(windows), len(loads), loads)
	}
	accepts := callsByKey(hooks.callsTo("/accept"))
	if len(accepts) != 1 {
		t.Errorf("the pre-rollout hook received %d different queries, want one: %v", len(accepts), accepts)
	}
	for path, questions := range map[string]map[string]int{"/load": loads, "/accept": accepts} {
		for key, times := range questions {
			if times > 2 || key == "" {
				t.Errorf("webhook %s was called %d times with key %q, want at most twice", path, times, key)
			}
		}
	}
}

// TestRollbackSurvivesARestart kills Serin between the decision to roll back and the end of the rollback.
func TestRollbackSurvivesARestart(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rollback", "-drain-delay", "3s")
	hooks := startReceiver(t)
	s.apply(deployment(t, "cart", 1))
	r := s.follow("cart")
	s.apply(strings.ReplaceAll(canaryWithHooks(hooks), restartHost, "rollback.test"))
	r.waitForPhase("Initialized")
	l := s.startLoad("rollback.test", 40)
	waitForRequests(t, l, 1, "v1")

	r = s.follow("cart")
	s.deployVersion("cart", "v2", "ERROR_PERCENT", "50")
	r.waitFor("reaches its threshold", func(c canary) error {
		if c.Status.FailedChecks < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	s.killAndRestart("cart", inPhase("Progressing"))
	r.waitForEnd("Failed")
	s.waitForPodsDeleted("app=cart")
	waitForRequests(t, l, 30, "v1")
	if counts := l.Counts(); counts.Failed() != counts.ByVersion["v2"].Errors {
		t.Errorf("requests failed that the bad version did not fail: %s", counts)
	}
	for _, w := range r.windows() {
		if w.weight > 30 {
			t.Errorf("a version with errors had weight %d", w.weight)
		}
	}
}
