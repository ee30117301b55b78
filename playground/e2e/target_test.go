//go:build linux

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestNoRequestIsLostWhileTheTargetIsReplaced changes spec.targetRef during a release, and back, under load: the Services and the route
// remain, and the former primary serves until the next one is ready.
func TestNoRequestIsLostWhileTheTargetIsReplaced(t *testing.T) {
	t.Parallel()
	a := loadedEnvironment{environment: startEnvironment(t, "target")}
	a.apply(deployment(t, "cart", 2) + strings.ReplaceAll(deployment(t, "basket", 2), "demo:v1", "demo:v3"))
	a.waitForAvailable("cart", 2)
	a.waitForAvailable("basket", 2)
	r := a.follow("cart")
	a.apply(replaceTexts(t, cartCanary, "port: 80\n", "name: web\n    port: 80\n", "cart.test", "target.test", "interval: 3s", "interval: 60s", "revertOnDeletion: true", "revertOnDeletion: false"))
	r.waitForPhase("Initialized")
	a.gateway, a.service = a.startLoad("target.test", 40), a.startServiceLoad("web", 80, 10)
	waitForRequests(t, a.gateway, 10, "v1")

	r = a.follow("cart")
	a.checkNoRequestLostDuring("", func() {
		a.deployVersion("cart", "v2")
		waitForRequests(t, a.gateway, 10, "v2") // it has its first weight
		a.retarget("basket")
		r.waitForEvent("spec.targetRef was changed to Deployment/basket during the release")
		r.waitForPhase("Failed")
		r.waitForPhase("Initializing")
		r.waitForPhase("Initialized")
		waitForRequests(t, a.gateway, 40, "v3")
		waitForRequests(t, a.service, 10, "v3")
		a.waitForPodsDeleted("app=cart")
		a.waitForPodsDeleted("app=basket")
	})
	a.waitForAvailable("cart-primary", 2) // it remains

	r = a.follow("cart")
	a.checkNoRequestLostDuring("", func() {
		a.retarget("cart")
		r.waitForEvent("Serin continues with it")
		waitForRequests(t, a.service, 10, "v1") // its primary serves again
		r.waitForPhase("Progressing")
		waitForRequests(t, a.gateway, 10, "v2") // the version that was not analysed receives its first weight
	})
	a.waitForAvailable("basket-primary", 2)
}

// retarget makes a Deployment the target of Canary cart.
func (s *environment) retarget(name string) {
	s.t.Helper()
	s.patch(canaries, "cart", fmt.Sprintf(`{"spec":{"targetRef":{"name":%q}}}`, name))
}
