package canary

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// evaluateBeforeTraffic evaluates the gates before the new revision receives its first request.
func evaluateBeforeTraffic(s Snapshot, effects []release.Effect) Decision {
	conditions := []gate{primaryReady, canaryReady, canaryEndpoints}
	if ready := release.EvaluateGates(s, conditions...); ready.Verdict() != release.Pass {
		return awaitCanaryReady(s, ready, effects)
	}
	for _, hook := range s.Plan.hooksOfType(flaggerv1.RollbackHook) {
		conditions = append(conditions, rollbackRequestPolled(hook, "first"))
	}
	preRolloutHooks := s.Plan.hooksOfType(flaggerv1.PreRolloutHook)
	if len(preRolloutHooks) > 0 && !s.serin().Started {
		// The status records that the hooks are called before they are, so that a crash does not attribute the calls to another
		// attempt.
		gates := release.EvaluateGates(s, conditions...)
		if gates.Verdict() != release.Pass {
			return handleClosedGateBeforeTraffic(s, gates, effects)
		}
		e := s.edit().addEffects(effects...)
		e.serin.Started = true
		return e.addEvents(startEvents(s, gates)...).decision(gates)
	}
	for _, hook := range preRolloutHooks {
		conditions = append(conditions, preRolloutPassed(hook, callRefusedHooksFrom(s)))
	}
	conditions = append(conditions, trafficIncreaseGates(s)...)
	gates := release.EvaluateGates(s, conditions...)
	if gates.Verdict() != release.Pass {
		return handleClosedGateBeforeTraffic(s, gates, effects)
	}
	e := s.edit().addEffects(effects...).addEvents(startEvents(s, gates)...)
	e.serin.Started, e.serin.Asked = true, nil
	return advanceOrPromote(e, gates)
}

// startEvents are the events of gates around the start of the analysis: those of rollback webhooks before the event about the
// start, all others after it. Events that were sent when the start was recorded, or when a gate was closed, are not repeated.
func startEvents(s Snapshot, gates release.Gates) []release.Event {
	_, refused := refusedHooksCalledAt(s)
	starts := !s.serin().Started || refused
	var events []release.Event
	if starts {
		for _, gate := range gates {
			if isHookGate(&gate, flaggerv1.RollbackHook) {
				events = append(events, gate.Events...)
			}
		}
		events = append(events, release.Event{Type: release.Normal, Message: "Starting canary analysis for " + s.Plan.targetName()})
		if !refused {
			for _, warning := range s.Plan.Warnings {
				events = append(events, release.Event{Type: release.Warning, Message: warning})
			}
		}
	}
	for _, gate := range gates {
		reported := s.serin().Held != "" && !isHookGate(&gate, flaggerv1.ConfirmTrafficIncreaseHook)
		if !reported && !isHookGate(&gate, flaggerv1.RollbackHook) {
			events = append(events, gate.Events...)
		}
		if gate.Verdict != release.Pass {
			break
		}
	}
	return events
}

// preRolloutPassed is the gate of a webhook that tests the new revision before it receives traffic. A refusal is a failed check.
func preRolloutPassed(hook Hook, from time.Time) gate {
	return func(s Snapshot) release.Gate {
		name := hookGateName(hook)
		query := hookQuery(s, hook, "first", from)
		answer, ok := s.Answers.AnswerTo(query)
		switch {
		case !ok && s.Now.Before(from):
			return release.NewTimedGate(name, from, hook.Name+" failed; called again at "+from.UTC().Format(time.TimeOnly))
		case !ok:
			return hookQueryGate(s, query, hook, flaggerv1.CanaryPhaseProgressing, "waiting for a response from "+hook.Name)
		case answer.Outcome == release.Yes:
			g := release.NewPassingGate(name, "passed")
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Normal, Message: fmt.Sprintf("Pre-rollout check %s passed", hook.Name)}}
			return g
		default:
			g := release.NewFailedGate(name, release.ByTime, hook.Name+" failed "+answer.Text)
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement pre-rollout check %s failed %s", s.Plan.qualifiedName(), hook.Name, answer.Text)}}
			return g
		}
	}
}

// handleClosedGateBeforeTraffic decides about a release whose gates before the first request do not all pass: it rolls back, counts a failed
// check, or waits.
func handleClosedGateBeforeTraffic(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	e := s.edit().addEffects(effects...)
	switch {
	case first.Verdict == release.Fail && isHookGate(first, flaggerv1.RollbackHook):
		return e.addEvents(gates.Events()...).recordIntent(intentRollback, first.Message).decision(gates)
	case first.Verdict == release.Fail:
		// A pre-rollout hook refused. It is called again one interval after that call.
		calledAt := metav1.NewMicroTime(s.clampToNow(first.Answer.Began))
		e.addEvents(startEvents(s, gates)...)
		e.status.FailedChecks++
		e.serin.Started, e.serin.Asked = true, &calledAt
		return e.decision(gates)
	case isHookGate(first, flaggerv1.ConfirmTrafficIncreaseHook) && first.Opener == release.ByUser && s.serin().Held != first.Name:
		e.addEvents(withAlert(startEvents(s, gates), s.Plan.mutesAlerts(first.Name), release.Warn, "Canary traffic increase is waiting for approval.")...)
		e.serin.Started, e.serin.Asked, e.serin.Held = true, nil, first.Name
		return e.decision(gates)
	default:
		return wakeNoLaterThan(keepStatus(s, gates, effects...), nextRollbackPoll(s, "first"))
	}
}
