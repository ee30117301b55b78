//go:build linux

package e2e_test

import (
	"errors"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestReleasesWaitInTheQueue permits one release at a time. Two wait in the queue; the one with the higher priority starts first
// although it was queued later, and the queue survives a restart of Serin.
func TestReleasesWaitInTheQueue(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "turn", "-max-moving", "1", "-drain-delay", "0s")
	hooks := startReceiver(t)
	hooks.setAnswer("/confirm-promotion", answerWith(http.StatusForbidden))
	names := []string{"first", "patient", "urgent"}
	manifests := ""
	for _, name := range names {
		analysis := ""
		if name == "first" {
			analysis = webhook("confirm-promotion", hooks.url("/confirm-promotion"), "10s")
		}
		manifests += deployment(t, name, 1) + "---\n" + shortCanary(name, analysis)
	}
	releases := s.follow("")
	s.apply(strings.ReplaceAll(manifests, "metadata: {name: urgent}\nspec:\n  provider", "metadata: {name: urgent, annotations: {serin.dev/priority: \"5\"}}\nspec:\n  provider"))
	for _, name := range names {
		releases.forCanary(name).waitForPhase("Initialized")
	}

	releases = s.follow("")
	s.deployVersion("first", "v2")
	releases.forCanary("first").waitForPhase("WaitingPromotion")
	for _, name := range names[1:] {
		s.deployVersion(name, "v2")
		releases.forCanary(name).waitFor("waits in the queue", queued)
	}
	wants := func(name, text string) {
		t.Helper()
		out, _ := exec.CommandContext(t.Context(), serin, "why", name, "-n", s.namespace, "--kubeconfig", shared.Kubeconfig, "--controller-flags", "-max-moving=1 -namespace="+s.namespace).CombinedOutput()
		if !strings.Contains(string(out), text) {
			t.Errorf("output of serin why %s does not contain %q:\n%s", name, text, out)
		}
	}
	wants("patient", "2nd of 2 waiting: 1 of at most 1 releases in progress in the cluster")
	wants("urgent", "1st of 2 waiting: 1 of at most 1 releases in progress in the cluster")

	s.killAndRestart("patient", queued)
	hooks.setAnswer("/confirm-promotion", answerWith(http.StatusOK))
	for _, name := range []string{"first", "urgent", "patient"} {
		releases.forCanary(name).waitForEnd("Succeeded")
	}
	all, _ := s.canaries.statesFrom(releases.next)
	moving := map[string]bool{}
	var order []string
	for _, state := range all {
		moves := !slices.Contains([]string{"Initialized", "Succeeded"}, state.object.Status.Phase)
		if moves && !moving[state.name] {
			order = append(order, state.name)
		}
		moving[state.name] = moves
		if moves && len(order) > 1 && moving[order[len(order)-2]] {
			t.Errorf("%s is in progress at the same time as %s", state.name, order[len(order)-2])
		}
	}
	if !slices.Equal(order, []string{"first", "urgent", "patient"}) {
		t.Errorf("the releases started in the order %v", order)
	}
}

func queued(c canary) error {
	if c.Status.Serin.Queue == nil || c.Status.Phase != "Initialized" {
		return errors.New("it is not in the queue")
	}
	return nil
}
