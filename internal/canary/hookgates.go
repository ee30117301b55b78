package canary

import (
	"fmt"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// hookApproves is the gate of a webhook that must approve. It is called again one interval after the start of its last call,
// until it approves. from is the earliest time of the first call.
func hookApproves(hook Hook, phase flaggerv1.CanaryPhase, attempt string, from time.Time, passed, closed string) gate {
	return func(s Snapshot) release.Gate {
		name := hookGateName(hook)
		query := hookQuery(s, hook, attempt, from)
		answer, ok := s.Answers.AnswerTo(query)
		if nextCall := nextHookCallAt(s, query.ID, from); !ok && s.Now.Before(nextCall) {
			g := release.NewWaitingGate(name, release.ByUser, hook.Name+" is called again at "+nextCall.UTC().Format(time.TimeOnly))
			g.Until = nextCall
			return g
		}
		if !ok {
			return hookQueryGate(s, query, hook, phase, "waiting for a response from "+hook.Name)
		}
		if answer.Outcome == release.Yes {
			g := release.NewPassingGate(name, "approved")
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Normal, Message: passed}}
			return g
		}
		nextCall := s.clampToNow(answer.Began).Add(s.Plan.Interval)
		if s.Now.Before(nextCall) {
			g := release.NewWaitingGate(name, release.ByUser, refusalText(hook, answer))
			g.Until, g.Answer = nextCall, &answer
			g.Events = []release.Event{{Type: release.Warning, Message: closed}}
			return g
		}
		query.Since = nextCall
		g := hookQueryGate(s, query, hook, phase, refusalText(hook, answer)+"; calling it again")
		g.Answer = &answer
		return g
	}
}

// nextHookCallAt returns the time from which a hook may be called again that refused according to the status. from follows from
// the call in the status; a later call, made when the interval was shorter, is known only from its answer.
func nextHookCallAt(s Snapshot, id string, from time.Time) time.Time {
	last := s.Answers[id]
	if from.IsZero() || last.Ended.IsZero() {
		return from
	}
	return release.LaterOf(from, s.clampToNow(last.Began).Add(s.Plan.Interval))
}

func refusalText(hook Hook, answer release.Answer) string {
	if answer.Text == "" {
		return hook.Name + " has not approved"
	}
	return hook.Name + " has not approved: " + answer.Text
}

// trafficIncreaseGates are the gates before each weight of the plan, and before the promotion after the last one: the webhooks that
// must approve it. A command of the user replaces the approvals of one step. As in Flagger, the first weight after mirrored traffic
// needs none. A weight that is restored (reconcileLiveWeight), or that users need because a promotion failed (failPromotion), and
// the routes of A/B tests and blue/green do not wait for them.
func trafficIncreaseGates(s Snapshot) []gate {
	if s.Plan.Strategy != Weighted {
		return nil
	}
	endsMirroring := s.currentWindow().open && s.currentWeight() == 0 && s.Route.Mirrored
	if endsMirroring || s.approvedByCommand() {
		return nil
	}
	var out []gate
	for _, hook := range s.Plan.hooksOfType(flaggerv1.ConfirmTrafficIncreaseHook) {
		out = append(out, hookApproves(hook, flaggerv1.CanaryPhaseProgressing, s.currentWindow().attempt(), time.Time{},
			fmt.Sprintf("Confirm-traffic-increase check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for traffic increase approval %s", s.Plan.qualifiedName(), hook.Name)))
	}
	return out
}

// rollbackRequested is the gate of a webhook that may request a rollback. The gate fails when the webhook requests one.
func rollbackRequested(hook Hook, attempt string, since time.Time) gate {
	return func(s Snapshot) release.Gate {
		name := hookGateName(hook)
		query := hookQuery(s, hook, attempt, since)
		answer, ok := s.Answers.AnswerTo(query)
		switch {
		case !ok:
			return hookQueryGate(s, query, hook, s.Status.Phase, "waiting for a response from "+hook.Name)
		case answer.Outcome == release.Yes:
			g := release.NewFailedGate(name, release.ByUser, reasonHook)
			g.Answer = &answer
			g.Events = []release.Event{
				{Type: release.Warning, Message: fmt.Sprintf("Rollback check %s passed", hook.Name)},
				{
					Type: release.Warning, Message: fmt.Sprintf("Rolling back %s manual webhook invoked", s.Plan.qualifiedName()),
					Alert: &release.Alert{Severity: release.Warn, Message: "Rolling back manual webhook invoked"},
				},
			}
			return g
		default:
			g := release.NewPassingGate(name, "no rollback requested")
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Normal, Message: fmt.Sprintf("Rollback hook %s not signaling a rollback", hook.Name)}}
			return g
		}
	}
}

// rollbackRequestPolled is rollbackRequested outside of windows: the webhook is called once per interval.
func rollbackRequestPolled(hook Hook, attempt string) gate {
	return func(s Snapshot) release.Gate {
		since := time.Time{}
		if answer, ok := s.Answers.AnswerTo(hookQuery(s, hook, attempt, since)); ok && answer.Outcome != release.Yes {
			if nextCall := s.clampToNow(answer.Began).Add(s.Plan.Interval); !s.Now.Before(nextCall) {
				since = nextCall
			}
		}
		return rollbackRequested(hook, attempt, since)(s)
	}
}

// nextRollbackPoll returns the time at which the next rollback hook is due to be called again; zero: none is.
func nextRollbackPoll(s Snapshot, attempt string) time.Time {
	var next time.Time
	for _, hook := range s.Plan.hooksOfType(flaggerv1.RollbackHook) {
		answer, ok := s.Answers.AnswerTo(hookQuery(s, hook, attempt, time.Time{}))
		if call := s.clampToNow(answer.Began).Add(s.Plan.Interval); ok && answer.Outcome != release.Yes && s.Now.Before(call) && (next.IsZero() || call.Before(next)) {
			next = call
		}
	}
	return next
}

// rolloutHookQueried is the gate that calls a rollout hook as soon as its window opens. The hooks of a window are called in
// order, up to the first that refuses. The gate passes with any response: rolloutHookPassed evaluates it at the end of the
// window.
func rolloutHookQueried(hook Hook, precedingHooks []Hook) gate {
	return func(s Snapshot) release.Gate {
		name := rolloutAskedGate + hook.Name
		for _, preceding := range precedingHooks {
			if answer, ok := s.Answers.AnswerTo(rolloutHookQuery(s, preceding)); ok && answer.Outcome != release.Yes {
				return release.NewPassingGate(name, "not called because "+preceding.Name+" failed")
			}
		}
		query := rolloutHookQuery(s, hook)
		if _, ok := s.Answers.AnswerTo(query); !ok {
			g := hookQueryGate(s, query, hook, flaggerv1.CanaryPhaseProgressing, "waiting for a response from "+hook.Name)
			g.Name = name
			return g
		}
		return release.NewPassingGate(name, "response received")
	}
}

func rolloutHookQuery(s Snapshot, hook Hook) release.Query {
	return hookQuery(s, hook, s.currentWindow().attempt(), time.Time{})
}

// rolloutHookPassed is the gate that evaluates the response of a rollout hook at the end of its window.
func rolloutHookPassed(hook Hook) gate {
	return func(s Snapshot) release.Gate {
		name := "rollout/" + hook.Name
		answer, ok := s.Answers.AnswerTo(rolloutHookQuery(s, hook))
		switch {
		case !ok:
			return release.NewWaitingGate(name, release.ByAnswer, "evaluated when "+hook.Name+" has responded")
		case answer.Outcome == release.Yes:
			g := release.NewPassingGate(name, "passed")
			g.Answer = &answer
			return g
		default:
			g := release.NewFailedGate(name, release.ByTime, hook.Name+" failed "+answer.Text)
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement external check %s failed %s", s.Plan.qualifiedName(), hook.Name, answer.Text)}}
			return g
		}
	}
}

// refusedHooksCalledAt returns the time at which the hooks that refused were called; false: none refused.
func refusedHooksCalledAt(s Snapshot) (time.Time, bool) {
	calledAt := s.serin().Asked
	if calledAt == nil {
		return time.Time{}, false
	}
	return calledAt.Time, true
}

// callRefusedHooksFrom returns the time from which the hooks that refused may be called again, one window after the last call; zero: at once.
// A recorded call in the future, from a clock that was set back, counts as a call now.
func callRefusedHooksFrom(s Snapshot) time.Time {
	calledAt, ok := refusedHooksCalledAt(s)
	if !ok {
		return time.Time{}
	}
	return s.clampToNow(calledAt).Add(s.Plan.Interval)
}
