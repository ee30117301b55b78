//go:build linux

package e2e_test

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestPeopleSteerAReleaseByCommands takes a release back, tries it again, pauses it, and lets it through a gate that
// nobody opens.
func TestPeopleSteerAReleaseByCommands(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "orders", "-drain-delay", "0s")
	hooks := startReceiver(t)
	hooks.setAnswer("/confirm-promotion", answerWith(http.StatusForbidden))
	order := func(verb, want string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), serin, verb, "cart", "-n", s.namespace, "--kubeconfig", shared.Kubeconfig).CombinedOutput()
		if !strings.Contains(string(out), want) {
			t.Fatalf("serin %s cart: %v\n%s", verb, err, out)
		}
	}
	r := s.follow("cart")
	s.apply(deployment(t, "cart", 1) + "---\n" + shortCanary("cart", webhook("confirm-promotion", hooks.url("/confirm-promotion"), "10s")))
	r.waitForPhase("Initialized")
	order("abort", "no release is in progress")

	r = s.follow("cart")
	s.deployVersion("cart", "v2")
	r.waitForPhase("WaitingPromotion")
	order("abort", "canary.flagger.app/cart will be rolled back")
	r.waitForEnd("Failed")
	s.waitForAvailable("cart-primary", 1)

	order("retry", "canary.flagger.app/cart will be released again")
	r.waitForPhase("WaitingPromotion")
	order("pause", "canary.flagger.app/cart is paused")
	order("promote", "canary.flagger.app/cart will be promoted")
	if c := convert[canary](t, s.get(canaries, "cart")); c.Status.Phase != "WaitingPromotion" {
		t.Errorf("a paused release moved on: %s", c)
	}
	order("resume", "canary.flagger.app/cart is resumed")
	r.waitForEnd("Succeeded")
}
