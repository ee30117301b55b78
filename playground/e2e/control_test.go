//go:build linux

package e2e_test

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
)

// TestCommandsControlARelease aborts, retries, pauses, resumes and approves a release whose webhook never confirms the promotion,
// and promotes another one without its analysis. Tools that use kstatus, such as Flux, see each state.
func TestCommandsControlARelease(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "orders", "-drain-delay", "0s")
	webhooks := startReceiver(t)
	webhooks.setAnswer("/confirm-promotion", answerWith(http.StatusForbidden))
	runCommand := func(command, wantOutput string) {
		t.Helper()
		args := append(strings.Fields(command), "cart", "-n", s.namespace, "--kubeconfig", shared.Kubeconfig)
		out, err := exec.CommandContext(t.Context(), serin, args...).CombinedOutput()
		if !strings.Contains(string(out), wantOutput) {
			t.Fatalf("serin %s cart: %v\n%s\nwant output with %q", command, err, out, wantOutput)
		}
	}
	expectStatus := func(want kstatus.Status) {
		t.Helper()
		got, err := kstatus.Compute(s.get(canaries, "cart"))
		if err != nil || got.Status != want {
			t.Errorf("kstatus of %s: %v, error %v, want %s", convert[canary](t, s.get(canaries, "cart")), got, err, want)
		}
	}
	r := s.follow("cart")
	s.apply(deployment(t, "cart", 1) + "---\n" + shortCanary("cart", webhook("confirm-promotion", webhooks.url("/confirm-promotion"), "10s")))
	r.waitForPhase("Initialized")
	expectStatus(kstatus.CurrentStatus)
	runCommand("abort", "no release is in progress")

	r = s.follow("cart")
	s.deployVersion("cart", "v2")
	r.waitForPhase("WaitingPromotion")
	expectStatus(kstatus.InProgressStatus)
	runCommand("abort", "canary.flagger.app/cart will be rolled back")
	r.waitForEnd("Failed")
	expectStatus(kstatus.FailedStatus)
	s.waitForAvailable("cart-primary", 1)

	runCommand("retry", "canary.flagger.app/cart will be released again")
	r.waitForPhase("WaitingPromotion")
	runCommand("pause", "canary.flagger.app/cart is paused")
	runCommand("promote --full", "refused: Canary cart in namespace "+s.namespace+" is paused")
	runCommand("promote --reason=approved", "canary.flagger.app/cart will take the next step when its checks pass after it is resumed with: serin resume canary/cart")
	if c := convert[canary](t, s.get(canaries, "cart")); c.Status.Phase != "WaitingPromotion" {
		t.Errorf("a paused release continued: %s", c)
	}
	runCommand("resume", "canary.flagger.app/cart is resumed")
	r.waitForEnd("Succeeded")
	expectStatus(kstatus.CurrentStatus)
	runCommand("history", "the release was aborted by command")
	if n := s.countEvents("cart", "promote requested by "); n != 1 {
		t.Errorf("the approval is recorded in %d events, want 1", n)
	}

	r = s.follow("cart")
	s.deployVersion("cart", "v3")
	r.waitForPhase("WaitingPromotion")
	runCommand("promote --full --wait --timeout 1m", "canary.flagger.app/cart will be promoted without further analysis")
	r.waitForEnd("Succeeded")
}
