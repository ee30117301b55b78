package canary

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// judgeWindow holds the current weight or iteration for one window, then moves on or counts a failed check.
func judgeWindow(s Snapshot, effects []release.Effect) Decision {
	unconfirmed := s.serin().Window != nil && s.serin().Window.Unconfirmed
	if unconfirmed && s.Route.Confirmation != Unconfirmed {
		return s.edit().addEffects(effects...).openWindow().decision(nil) // what is observed begins with the confirmation
	}
	end := s.windowEnd()
	conditions := []gate{canaryReady}
	if s.Plan.HasRouter {
		conditions = append(conditions, canaryEndpoints)
	}
	rollout := s.Plan.hooksOfType(flaggerv1.RolloutHook)
	for i, hook := range rollout {
		conditions = append(conditions, rolloutHooksAsked(hook, rollout[:i]))
	}
	conditions = append(conditions, windowElapsed, routeConfirmed)
	for _, hook := range s.Plan.hooksOfType(flaggerv1.RollbackHook) {
		conditions = append(conditions, rollbackRequested(hook, s.windowAttempt(), end))
	}
	for _, hook := range rollout {
		conditions = append(conditions, rolloutHookPassed(hook))
	}
	conditions = append(conditions, samplesBelongToRevision)
	for _, check := range s.Plan.Checks {
		conditions = append(conditions, metricPasses(check))
	}
	// A canary that fails is rolled back whatever the primary lacks; only advancing waits for the primary.
	conditions = append(conditions, primaryReady)
	conditions = append(conditions, s.advanceGates()...)
	gates := release.EvaluateGates(s, conditions...)
	first := gates.First()
	switch {
	case first == nil:
		return advanceStep(s.edit().addEffects(effects...).addEvents(gates.Events()...), gates)
	case first.Name == "canary-ready", first.Name == "canary-endpoints":
		return awaitCanaryReady(s, gates, effects)
	case first.Name == "primary-ready":
		return observeAgain(s, gates, effects)
	case first.Name == "route-confirmed" && !unconfirmed && s.serin().Window != nil:
		// The window observed something else in part: it starts anew when the router confirms.
		e := s.edit().addEffects(effects...)
		e.serin.Window.Unconfirmed = true
		return e.decision(gates)
	case first.Verdict == release.Fail && isHookGate(first, flaggerv1.RollbackHook):
		return s.edit().addEffects(effects...).addEvents(gates.Events()...).recordIntent(intentRollback, first.Message).decision(gates)
	case first.Verdict == release.Fail:
		return failCheck(s, gates, effects)
	case first.Name == "provider-unreachable" && s.serin().Unreachable == nil:
		return recordProviderUnreachable(s, gates, effects)
	case first.Opener == release.ByUser && (isHookGate(first, flaggerv1.ConfirmTrafficIncreaseHook) || isHookGate(first, flaggerv1.ConfirmPromotionHook)):
		return awaitApproval(s, gates, effects)
	default:
		return keepStatus(s, gates, effects...)
	}
}

// advanceGates are the hooks that must approve what follows the open window.
func (s *Snapshot) advanceGates() []gate {
	var out []gate
	if s.Plan.Strategy == Weighted && (s.liveWeight() > 0 || !s.Route.Mirrored) {
		out = s.trafficGates()
	}
	last := false
	switch s.Plan.Strategy {
	case Weighted:
		last = s.liveWeight() >= s.Plan.MaxWeight
	default:
		last = s.Status.Iterations >= s.Plan.Iterations
	}
	if !last {
		return out
	}
	for _, hook := range s.Plan.hooksOfType(flaggerv1.ConfirmPromotionHook) {
		out = append(out, hookApproves(hook, flaggerv1.CanaryPhaseProgressing, s.windowAttempt(), time.Time{},
			fmt.Sprintf("Confirm-promotion check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for promotion approval %s", s.Plan.qualifiedName(), hook.Name)))
	}
	return out
}

// awaitApproval opens another window at the same weight, because a gate that the user opens is closed. The event is sent once.
func awaitApproval(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	e := s.edit().addEffects(effects...).openWindow()
	e.serin.Unreachable = nil
	told := s.serin().Held == first.Name
	promotion := isHookGate(first, flaggerv1.ConfirmPromotionHook)
	if promotion {
		told = told || s.Status.Phase == flaggerv1.CanaryPhaseWaitingPromotion
		e.enterPhase(flaggerv1.CanaryPhaseWaitingPromotion)
	}
	e.serin.Held = first.Name
	if told {
		first.Events = nil
	}
	e.addEvents(gates.Events()...)
	if !told {
		message := "Canary traffic increase is waiting for approval."
		if promotion {
			message = "Canary promotion is waiting for approval."
		}
		withAlert(e.events, s.isMuted(first.Name), release.Warn, message)
	}
	return e.decision(gates)
}

// observeAgain opens one more window at the same weight while the primary is not ready: what was measured before says
// nothing about the moment at which it is.
func observeAgain(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...).openWindow()
	e.serin.Unreachable = nil
	return e.decision(gates)
}

// failCheck counts one failed check and observes the same weight for another window.
func failCheck(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...).addEvents(gates.Events()...)
	e.status.FailedChecks++
	if _, away := s.recordedUnreachableSince(gates); !away {
		e.serin.Unreachable = nil // else each window in which it stays away counts, without another minute of patience
	}
	return e.openWindow().decision(gates)
}

// recordProviderUnreachable remembers since when a provider cannot be reached, so that a restart is not another minute of patience.
func recordProviderUnreachable(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...)
	if began, ok := s.recordedUnreachableSince(gates); ok {
		since := metav1.NewMicroTime(s.clampToNow(began))
		e.serin.Unreachable = &since
		return e.decision(gates)
	}
	return keepStatus(s, gates, effects...)
}

// recordedUnreachableSince is when the check at which the gates stop began to be asked of a provider that could not be reached.
func (s *Snapshot) recordedUnreachableSince(gates release.Gates) (time.Time, bool) {
	for _, check := range s.Plan.Checks {
		answer, ok := s.Answers[s.metricQuery(check).ID]
		name := gates.First().Name
		if ok && answer.Outcome == release.Unreachable && (name == check.Metric.Name || name == "provider-unreachable") {
			return answer.Began, true
		}
	}
	return time.Time{}, false
}
