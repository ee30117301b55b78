package canary

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// firstLook asks what must be so before the new revision gets its first request.
func firstLook(s Snapshot, effects []release.Effect) Decision {
	conditions := []gate{primaryReady, canaryReady, canaryEndpoints}
	if ready := release.Look(s, conditions...); ready.Verdict() != release.Pass {
		return notReady(s, ready, effects)
	}
	for _, hook := range s.Plan.hooks(flaggerv1.RollbackHook) {
		conditions = append(conditions, rollbackPolled(hook, "first"))
	}
	pre := s.Plan.hooks(flaggerv1.PreRolloutHook)
	if len(pre) > 0 && !s.serin().Started {
		// That the hooks are asked is said before they are, so that a crash does not ask them of another attempt.
		gates := release.Look(s, conditions...)
		if gates.Verdict() != release.Pass {
			return firstRefused(s, gates, effects)
		}
		e := s.edit().effect(effects...)
		e.serin.Started = true
		return e.tell(s.firstEvents(gates)...).done(gates)
	}
	for _, hook := range pre {
		conditions = append(conditions, preRollout(hook, s.askFrom()))
	}
	if s.Plan.Strategy == Weighted {
		conditions = append(conditions, s.trafficGates()...)
	}
	gates := release.Look(s, conditions...)
	if gates.Verdict() != release.Pass {
		return firstRefused(s, gates, effects)
	}
	e := s.edit().effect(effects...).tell(s.firstEvents(gates)...)
	e.serin.Started, e.serin.Asked = true, nil
	return advance(e, gates)
}

// firstEvents are those of rollback webhooks before the start, and all others after it. Events that were sent when the start was
// recorded, or when a gate was found closed, are not repeated.
func (s *Snapshot) firstEvents(gates release.Gates) []release.Event {
	_, refused := s.asked()
	starts := !s.serin().Started || refused
	var events []release.Event
	if starts {
		for _, gate := range gates {
			if isHook(&gate, flaggerv1.RollbackHook) {
				events = append(events, gate.Events...)
			}
		}
		events = append(events, release.Event{Type: release.Normal, Message: "Starting canary analysis for " + s.Plan.workload()})
		if !refused {
			for _, note := range s.Plan.Notes {
				events = append(events, release.Event{Type: release.Warning, Message: note})
			}
		}
	}
	for _, gate := range gates {
		held := s.serin().Held != "" && !isHook(&gate, flaggerv1.ConfirmTrafficIncreaseHook)
		if !held && !isHook(&gate, flaggerv1.RollbackHook) {
			events = append(events, gate.Events...)
		}
		if gate.Verdict != release.Pass {
			break
		}
	}
	return events
}

// preRollout is a test of the new revision before it has users. A refusal is a failed check.
func preRollout(hook flaggerv1.CanaryWebhook, from time.Time) gate {
	return func(s Snapshot) release.Gate {
		name := hookGate(hook)
		p := s.hookProbe(hook, "first", from)
		answer, ok := s.Answers.To(p)
		switch {
		case !ok && s.Now.Before(from):
			return release.WaitsUntil(name, from, hook.Name+" refused; asked again at "+from.UTC().Format(time.TimeOnly))
		case !ok:
			return s.asksHook(p, hook, flaggerv1.CanaryPhaseProgressing, "waiting for the answer of "+hook.Name)
		case answer.Outcome == release.Yes:
			g := release.Passes(name, "passed")
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Normal, Message: fmt.Sprintf("Pre-rollout check %s passed", hook.Name)}}
			return g
		default:
			g := release.Fails(name, release.ByTime, hook.Name+" failed "+answer.Text)
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement pre-rollout check %s failed %s", s.Plan.full(), hook.Name, answer.Text)}}
			return g
		}
	}
}

// trafficGates are the hooks that must approve every increase of the weight.
func (s *Snapshot) trafficGates() []gate {
	var out []gate
	for _, hook := range s.Plan.hooks(flaggerv1.ConfirmTrafficIncreaseHook) {
		out = append(out, approves(hook, flaggerv1.CanaryPhaseProgressing, s.attempt(), time.Time{},
			fmt.Sprintf("Confirm-traffic-increase check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for traffic increase approval %s", s.Plan.full(), hook.Name)))
	}
	return out
}

// firstRefused is a first look at which something did not pass.
func firstRefused(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	e := s.edit().effect(effects...)
	switch {
	case first.Verdict == release.Fail && isHook(first, flaggerv1.RollbackHook):
		return e.tell(gates.Events()...).intend(intentRollback, first.Message).done(gates)
	case first.Verdict == release.Fail:
		// A pre-rollout hook refused. It is asked again one interval after the refused call.
		asked := metav1.NewMicroTime(s.past(first.Answer.Began))
		e.tell(s.firstEvents(gates)...)
		e.status.FailedChecks++
		e.serin.Started, e.serin.Asked = true, &asked
		return e.done(gates)
	case isHook(first, flaggerv1.ConfirmTrafficIncreaseHook) && first.Opener == release.ByPerson && s.serin().Held != first.Name:
		e.tell(withAlert(s.firstEvents(gates), s.muted(first.Name), release.Warn, "Canary traffic increase is waiting for approval.")...)
		e.serin.Started, e.serin.Asked, e.serin.Held = true, nil, first.Name
		return e.done(gates)
	default:
		return wakeBy(keepStatus(s, gates, effects...), s.polledAgain("first"))
	}
}

func isHook(g *release.Gate, of flaggerv1.HookType) bool {
	return strings.HasPrefix(g.Name, string(of)+"/")
}
