package canary

import (
	"fmt"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// hookApproves is the gate of a webhook that must approve. It is called again one interval after the start of its last call, until
// it approves. from is the earliest time of the first call.
func hookApproves(hook flaggerv1.CanaryWebhook, phase flaggerv1.CanaryPhase, attempt string, from time.Time, passed, closed string) gate {
	return func(s Snapshot) release.Gate {
		name := hookGateName(hook)
		p := hookQuery(s, hook, attempt, from)
		answer, ok := s.Answers.AnswerTo(p)
		if again := askHookAgainAt(s, p.ID, from); !ok && s.Now.Before(again) {
			g := release.NewWaitingGate(name, release.ByUser, hook.Name+" is called again at "+again.UTC().Format(time.TimeOnly))
			g.Until = again
			return g
		}
		if !ok {
			return hookQueryGate(s, p, hook, phase, "waiting for a response from "+hook.Name)
		}
		if answer.Outcome == release.Yes {
			g := release.NewPassingGate(name, "approved")
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Normal, Message: passed}}
			return g
		}
		again := s.clampToNow(answer.Began).Add(s.Plan.Window)
		if s.Now.Before(again) {
			g := release.NewWaitingGate(name, release.ByUser, refusalText(hook, answer))
			g.Until, g.Answer = again, &answer
			g.Events = []release.Event{{Type: release.Warning, Message: closed}}
			return g
		}
		p.Since = again
		g := hookQueryGate(s, p, hook, phase, refusalText(hook, answer)+"; calling it again")
		g.Answer = &answer
		return g
	}
}

// askHookAgainAt is when a hook may be called again that refused according to the status: it may have been called since then,
// when the interval was shorter.
func askHookAgainAt(s Snapshot, id string, from time.Time) time.Time {
	last := s.Answers[id]
	if from.IsZero() || last.Ended.IsZero() {
		return from
	}
	return release.LaterOf(from, s.clampToNow(last.Began).Add(s.Plan.Window))
}

func refusalText(hook flaggerv1.CanaryWebhook, answer release.Answer) string {
	if answer.Text == "" {
		return hook.Name + " has not approved"
	}
	return hook.Name + " has not approved: " + answer.Text
}

// rollbackRequested is the gate of a webhook that may request a rollback. The gate fails when the webhook requests one.
func rollbackRequested(hook flaggerv1.CanaryWebhook, attempt string, since time.Time) gate {
	return func(s Snapshot) release.Gate {
		name := hookGateName(hook)
		p := hookQuery(s, hook, attempt, since)
		answer, ok := s.Answers.AnswerTo(p)
		switch {
		case !ok:
			return hookQueryGate(s, p, hook, s.Status.Phase, "waiting for a response from "+hook.Name)
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
func rollbackRequestPolled(hook flaggerv1.CanaryWebhook, attempt string) gate {
	return func(s Snapshot) release.Gate {
		since := time.Time{}
		if answer, ok := s.Answers.AnswerTo(hookQuery(s, hook, attempt, since)); ok && answer.Outcome != release.Yes {
			if again := s.clampToNow(answer.Began).Add(s.Plan.Window); !s.Now.Before(again) {
				since = again
			}
		}
		return rollbackRequested(hook, attempt, since)(s)
	}
}

// nextRollbackPoll is when the next rollback hook is due to be called again; zero: none is.
func nextRollbackPoll(s Snapshot, attempt string) time.Time {
	var next time.Time
	for _, hook := range s.Plan.hooksOfType(flaggerv1.RollbackHook) {
		answer, ok := s.Answers.AnswerTo(hookQuery(s, hook, attempt, time.Time{}))
		if again := s.clampToNow(answer.Began).Add(s.Plan.Window); ok && answer.Outcome != release.Yes && s.Now.Before(again) && (next.IsZero() || again.Before(next)) {
			next = again
		}
	}
	return next
}

// rolloutHooksAsked calls the rollout hooks of a window as soon as it opens, in order, up to the first that refuses. The gate
// passes with any response: rolloutHookPassed evaluates the response at the end of the window.
func rolloutHooksAsked(hook flaggerv1.CanaryWebhook, before []flaggerv1.CanaryWebhook) gate {
	return func(s Snapshot) release.Gate {
		name := rolloutAskedGate + hook.Name
		for _, earlier := range before {
			if answer, ok := s.Answers.AnswerTo(rolloutHookQuery(s, earlier)); ok && answer.Outcome != release.Yes {
				return release.NewPassingGate(name, "not called because "+earlier.Name+" failed")
			}
		}
		p := rolloutHookQuery(s, hook)
		if _, ok := s.Answers.AnswerTo(p); !ok {
			g := hookQueryGate(s, p, hook, flaggerv1.CanaryPhaseProgressing, "waiting for a response from "+hook.Name)
			g.Name = name
			return g
		}
		return release.NewPassingGate(name, "response received")
	}
}

func rolloutHookQuery(s Snapshot, hook flaggerv1.CanaryWebhook) release.Query {
	return hookQuery(s, hook, s.openWindow().attempt(), time.Time{})
}

// rolloutHookPassed is the verdict of a rollout hook at the end of its window.
func rolloutHookPassed(hook flaggerv1.CanaryWebhook) gate {
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

// refusedHooksAskedAt is when the hooks that refused were called; they are called again one window later.
func (s *Snapshot) refusedHooksAskedAt() (time.Time, bool) {
	asked := s.serin().Asked
	if asked == nil {
		return time.Time{}, false
	}
	return asked.Time, true
}

// askRefusedHooksFrom is when those hooks may be called again; zero: at once. A call in the future counts as a call now.
func (s *Snapshot) askRefusedHooksFrom() time.Time {
	asked, ok := s.refusedHooksAskedAt()
	if !ok {
		return time.Time{}
	}
	return s.clampToNow(asked).Add(s.Plan.Window)
}
