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
		return s.edit().effect(effects...).window().done(nil) // what is observed begins with the confirmation
	}
	end := s.windowEnd()
	conditions := []gate{canaryReady}
	if s.Plan.Routed {
		conditions = append(conditions, canaryEndpoints)
	}
	rollout := s.Plan.hooks(flaggerv1.RolloutHook)
	for i, hook := range rollout {
		conditions = append(conditions, rolloutAsked(hook, rollout[:i]))
	}
	conditions = append(conditions, windowOver, routeConfirmed)
	for _, hook := range s.Plan.hooks(flaggerv1.RollbackHook) {
		conditions = append(conditions, rollbackAsked(hook, s.attempt(), end))
	}
	for _, hook := range rollout {
		conditions = append(conditions, rolloutJudged(hook))
	}
	conditions = append(conditions, oldSamples)
	for _, check := range s.Plan.Checks {
		conditions = append(conditions, passes(check))
	}
	// A canary that fails is rolled back whatever the primary lacks; only advancing waits for the primary.
	conditions = append(conditions, primaryReady)
	conditions = append(conditions, s.moveGates()...)
	gates := release.Look(s, conditions...)
	first := gates.First()
	switch {
	case first == nil:
		return advance(s.edit().effect(effects...).tell(gates.Events()...), gates)
	case first.Name == "canary-ready", first.Name == "canary-endpoints":
		return notReady(s, gates, effects)
	case first.Name == "primary-ready":
		return observeAgain(s, gates, effects)
	case first.Name == "route-confirmed" && !unconfirmed && s.serin().Window != nil:
		// The window observed something else in part: it starts anew when the router confirms.
		e := s.edit().effect(effects...)
		e.serin.Window.Unconfirmed = true
		return e.done(gates)
	case first.Verdict == release.Fail && isHook(first, flaggerv1.RollbackHook):
		return s.edit().effect(effects...).tell(gates.Events()...).intend(intentRollback, first.Message).done(gates)
	case first.Verdict == release.Fail:
		return failCheck(s, gates, effects)
	case first.Name == "provider-unreachable" && s.serin().Unreachable == nil:
		return awayFrom(s, gates, effects)
	case first.Opener == release.ByPerson && (isHook(first, flaggerv1.ConfirmTrafficIncreaseHook) || isHook(first, flaggerv1.ConfirmPromotionHook)):
		return awaitApproval(s, gates, effects)
	default:
		return keepStatus(s, gates, effects...)
	}
}

// moveGates are the hooks that must approve what follows the open window.
func (s *Snapshot) moveGates() []gate {
	var out []gate
	if s.Plan.Strategy == Weighted && (s.live() > 0 || !s.Route.Mirrored) {
		out = s.trafficGates()
	}
	last := false
	switch s.Plan.Strategy {
	case Weighted:
		last = s.live() >= s.Plan.Max
	default:
		last = s.Status.Iterations >= s.Plan.Iterations
	}
	if !last {
		return out
	}
	for _, hook := range s.Plan.hooks(flaggerv1.ConfirmPromotionHook) {
		out = append(out, approves(hook, flaggerv1.CanaryPhaseProgressing, s.attempt(), time.Time{},
			fmt.Sprintf("Confirm-promotion check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for promotion approval %s", s.Plan.full(), hook.Name)))
	}
	return out
}

// awaitApproval opens another window at the same weight, because a gate that the user opens is closed. The event is sent once.
func awaitApproval(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	e := s.edit().effect(effects...).window()
	e.serin.Unreachable = nil
	told := s.serin().Held == first.Name
	promotion := isHook(first, flaggerv1.ConfirmPromotionHook)
	if promotion {
		told = told || s.Status.Phase == flaggerv1.CanaryPhaseWaitingPromotion
		e.phase(flaggerv1.CanaryPhaseWaitingPromotion)
	}
	e.serin.Held = first.Name
	if told {
		first.Events = nil
	}
	e.tell(gates.Events()...)
	if !told {
		message := "Canary traffic increase is waiting for approval."
		if promotion {
			message = "Canary promotion is waiting for approval."
		}
		withAlert(e.events, s.muted(first.Name), release.Warn, message)
	}
	return e.done(gates)
}

// observeAgain opens one more window at the same weight while the primary is not ready: what was measured before says
// nothing about the moment at which it is.
func observeAgain(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().effect(effects...).window()
	e.serin.Unreachable = nil
	return e.done(gates)
}

// failCheck counts one failed check and observes the same weight for another window.
func failCheck(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().effect(effects...).tell(gates.Events()...)
	e.status.FailedChecks++
	if _, away := s.away(gates); !away {
		e.serin.Unreachable = nil // else each window in which it stays away counts, without another minute of patience
	}
	return e.window().done(gates)
}

// awayFrom remembers since when a provider cannot be reached, so that a restart is not another minute of patience.
func awayFrom(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().effect(effects...)
	if began, ok := s.away(gates); ok {
		since := metav1.NewMicroTime(s.past(began))
		e.serin.Unreachable = &since
		return e.done(gates)
	}
	return keepStatus(s, gates, effects...)
}

// away is when the check at which the gates stop began to be asked of a provider that could not be reached.
func (s *Snapshot) away(gates release.Gates) (time.Time, bool) {
	for _, check := range s.Plan.Checks {
		answer, ok := s.Answers[s.metricProbe(check).ID]
		name := gates.First().Name
		if ok && answer.Outcome == release.Unreachable && (name == check.Metric.Name || name == "provider-unreachable") {
			return answer.Began, true
		}
	}
	return time.Time{}, false
}
