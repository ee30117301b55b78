package canary

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// evaluateWindow observes the current weight or iteration for one window, then advances or counts a failed check.
func evaluateWindow(s Snapshot, effects []release.Effect) Decision {
	unconfirmed := s.serin().Window != nil && s.serin().Window.Unconfirmed
	if unconfirmed && s.Route.Confirmation != Unconfirmed {
		return s.edit().addEffects(effects...).startWindow().decision(nil) // the observation starts with the confirmation
	}
	gates := release.EvaluateGates(s, windowGates(s, unconfirmed)...)
	first := gates.First()
	switch {
	case first == nil:
		return advanceOrPromote(s.edit().addEffects(effects...).addEvents(gates.Events()...), gates)
	case first.Name == canaryReadyGate, first.Name == canaryEndpointsGate:
		return awaitCanaryReady(s, gates, effects)
	case first.Name == primaryReadyGate:
		return reopenWindow(s, gates, effects)
	case first.Name == routeConfirmedGate && !unconfirmed && s.serin().Window != nil:
		// The previous route served a part of the window: the window restarts when the router confirms the new one.
		e := s.edit().addEffects(effects...)
		e.serin.Window.Unconfirmed = true
		return e.decision(gates)
	case first.Verdict == release.Fail && isHookGate(first, flaggerv1.RollbackHook):
		return s.edit().addEffects(effects...).addEvents(gates.Events()...).recordIntent(intentRollback, first.Message).decision(gates)
	case first.Verdict == release.Fail:
		return failCheck(s, gates, effects)
	case first.Name == providerUnreachableGate && s.serin().Unreachable == nil:
		return recordProviderUnreachable(s, gates, effects)
	case first.Opener == release.ByUser && (isHookGate(first, flaggerv1.ConfirmTrafficIncreaseHook) || isHookGate(first, flaggerv1.ConfirmPromotionHook)):
		return reopenWindowUntilApproved(s, gates, effects)
	case first.Name == routeConfirmedGate:
		return wakeNoLaterThan(keepStatus(s, gates, effects...), nextRollbackPoll(s, unconfirmedAttempt))
	default:
		return keepStatus(s, gates, effects...)
	}
}

// windowGates returns the gates before the next step, in the order in which they are evaluated.
func windowGates(s Snapshot, unconfirmed bool) []gate {
	gates, end := []gate{canaryReady}, s.currentWindow().end()
	if s.Plan.HasRouter {
		gates = append(gates, canaryEndpoints)
	}
	rollout := s.Plan.hooksOfType(flaggerv1.RolloutHook)
	for i, hook := range rollout {
		gates = append(gates, rolloutHookQueried(hook, rollout[:i]))
	}
	gates = append(gates, windowElapsed)
	for _, hook := range s.Plan.hooksOfType(flaggerv1.RollbackHook) {
		if unconfirmed { // the window may not end for long
			gates = append(gates, rollbackRequestPolled(hook, unconfirmedAttempt))
		} else {
			gates = append(gates, rollbackRequested(hook, s.currentWindow().attempt(), end))
		}
	}
	gates = append(gates, routeConfirmed)
	for _, hook := range rollout {
		gates = append(gates, rolloutHookPassed(hook))
	}
	gates = append(gates, samplesBelongToRevision)
	for _, check := range s.Plan.Checks {
		gates = append(gates, metricPasses(check))
	}
	// A failing canary is rolled back even if the primary is not ready; only advancing waits for the primary.
	gates = append(gates, primaryReady)
	return append(gates, nextStepApprovalGates(s)...)
}

// unconfirmedAttempt identifies the calls of rollback webhooks while a window waits for the router.
const unconfirmedAttempt = "unconfirmed"

// nextStepApprovalGates are the gates of webhooks that must approve the step after the open window.
func nextStepApprovalGates(s Snapshot) []gate {
	out := trafficIncreaseGates(s)
	last := false
	switch s.Plan.Strategy {
	case Weighted:
		last = s.currentWeight() >= s.Plan.MaxWeight
	default:
		last = s.Status.Iterations >= s.Plan.Iterations
	}
	if !last || s.approvedByCommand() {
		return out
	}
	for _, hook := range s.Plan.hooksOfType(flaggerv1.ConfirmPromotionHook) {
		out = append(out, hookApproves(hook, flaggerv1.CanaryPhaseProgressing, s.currentWindow().attempt(), time.Time{},
			fmt.Sprintf("Confirm-promotion check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for promotion approval %s", s.Plan.qualifiedName(), hook.Name)))
	}
	return out
}

// reopenWindowUntilApproved opens another window at the same weight, because the user has not approved the next step yet.
// The event is sent once.
func reopenWindowUntilApproved(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	e := s.edit().addEffects(effects...).startWindow()
	e.serin.Unreachable = nil
	reported := s.serin().Held == first.Name
	promotion := isHookGate(first, flaggerv1.ConfirmPromotionHook)
	if promotion {
		reported = reported || s.Status.Phase == flaggerv1.CanaryPhaseWaitingPromotion
		e.enterPhase(flaggerv1.CanaryPhaseWaitingPromotion)
	}
	e.serin.Held = first.Name
	if reported {
		first.Events = nil
	}
	e.addEvents(gates.Events()...)
	if !reported {
		message := "Canary traffic increase is waiting for approval."
		if promotion {
			message = "Canary promotion is waiting for approval."
		}
		withAlert(e.events, s.Plan.mutesAlerts(first.Name), release.Warn, message)
	}
	return e.decision(gates)
}

// reopenWindow opens another window at the same weight while the primary is not ready. The measurements of this window would be
// outdated when the primary is ready.
func reopenWindow(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...).startWindow()
	e.serin.Unreachable = nil
	return e.decision(gates)
}

// failCheck counts one failed check and observes the same weight for another window.
func failCheck(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...).addEvents(gates.Events()...)
	e.status.FailedChecks++
	if _, unreachable := recordedUnreachableSince(s, gates); !unreachable {
		e.serin.Unreachable = nil // otherwise each further window counts at once, without another grace period
	}
	return e.startWindow().decision(gates)
}

// recordProviderUnreachable records since when a provider has been unreachable, so that a restart does not extend the grace
// period.
func recordProviderUnreachable(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...)
	if began, ok := recordedUnreachableSince(s, gates); ok {
		since := metav1.NewMicroTime(s.clampToNow(began))
		e.serin.Unreachable = &since
		return e.decision(gates)
	}
	return keepStatus(s, gates, effects...)
}

// recordedUnreachableSince returns the time at which the query of the check that the gates wait for was sent to a provider that
// was unreachable.
func recordedUnreachableSince(s Snapshot, gates release.Gates) (time.Time, bool) {
	for _, check := range s.Plan.Checks {
		answer, ok := s.Answers[metricQuery(s, check).ID]
		name := gates.First().Name
		if ok && answer.Outcome == release.Unreachable && (name == check.Metric.Name || name == providerUnreachableGate) {
			return answer.Began, true
		}
	}
	return time.Time{}, false
}
