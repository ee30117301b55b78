//go:build linux

package e2e_test

import (
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/load"
)

// cartRoute returns the Services and the route of Rollout cart for a host.
func cartRoute(t *testing.T, host string) string {
	return replaceTexts(t, rolledRoute, "rolled.test", host)
}

// checkShare checks that version v2 receives the weight's share of the requests.
func (s *environment) checkShare(l *load.Load, weight int) {
	s.t.Helper()
	counts := s.countSettled(l)
	low, high := load.BinomialBounds(counts.Requests, float64(weight)/100, boundTail)
	if got := counts.ByVersion["v2"].Requests; got < low || got > high {
		s.t.Errorf("at weight %d v2 got %d of %d requests, want %d to %d", weight, got, counts.Requests, low, high)
	}
}

// TestADynamicStableScaleLosesNoRequest scales the stable revision down with its traffic, and up again before its traffic on
// an abort.
func TestADynamicStableScaleLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "shrinking")
	s.apply(cartRoute(t, "shrinking.test") + rolloutManifest(t, "cart", 4, `{canary: {stableService: cart-stable, canaryService: cart-canary, dynamicStableScale: true, abortScaleDownDelaySeconds: 600,
	  trafficRouting: {plugins: {argoproj-labs/gatewayAPI: {httpRoute: cart, namespace: shrinking}}},
	  steps: [{setWeight: 25}, {pause: {}}, {setWeight: 75}, {pause: {}}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	l := s.startLoad("shrinking.test", 80)
	waitForRequests(t, l, 20, "v1")
	s.releaseVersion("cart", "v2")
	s.waitForPausedAt(25)
	s.waitForPods("cart", "v1=3 v2=1")
	s.checkShare(l, 25)
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	s.waitForPausedAt(75)
	s.waitForPods("cart", "v1=1 v2=3")
	s.checkShare(l, 75)
	s.patchRolloutStatus("cart", `{"abort":true}`)
	s.waitForPods("cart", "v1=4 v2=3") // the canary remains for its scale-down delay
	s.checkShare(l, 0)
	if counts := l.Counts(); counts.Lost > 0 {
		t.Errorf("%d requests were lost: %s", counts.Lost, counts)
	}
}

// TestAnUnbalancedPlanIsExecutedWithAWarning routes nine tenths of the requests to one of four pods.
func TestAnUnbalancedPlanIsExecutedWithAWarning(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "unbalanced")
	s.apply(cartRoute(t, "unbalanced.test") + rolloutManifest(t, "cart", 4, `{canary: {stableService: cart-stable, canaryService: cart-canary,
	  trafficRouting: {plugins: {argoproj-labs/gatewayAPI: {httpRoute: cart, namespace: unbalanced}}},
	  steps: [{setCanaryScale: {weight: 10}}, {pause: {}}, {setWeight: 90}, {pause: {}}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	l := s.startLoad("unbalanced.test", 80)
	waitForRequests(t, l, 20, "v1")
	s.releaseVersion("cart", "v2")
	s.waitForPausedAt(0)
	s.waitForEventOf("Rollout", "cart", "TrafficImbalance", "step 3 (setWeight: 90) routes 90/100 of the traffic to 1 pod")
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	s.waitForPausedAt(90)
	s.waitForPods("cart", "v1=4 v2=1")
	s.checkShare(l, 90)
}
