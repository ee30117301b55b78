package canary

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// gate evaluates one condition for a snapshot.
type gate = func(Snapshot) release.Gate

// primaryReady delays the release while the primary, which serves users, is not ready. A primary that exceeded its progress
// deadline, that has no pods, or whose promotion failed, protects no users: then the gate is lifted, so that a fix can ship, and
// its message and an event report that.
func primaryReady(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	message := primaryMessage(s)
	switch {
	case primary.Found && primary.Ready:
		return release.NewPassingGate("primary-ready", formatPods(primary))
	case s.primaryLost():
		g := release.NewPassingGate("primary-ready", "lifted so that a fix can ship: "+message)
		g.Events = []release.Event{{
			Type: release.Warning, Message: message + ": the release of the new revision continues without it", Persistent: true,
			Alert: &release.Alert{Severity: release.Error, Message: message},
		}}
		return g
	default:
		return release.NewWaitingGate("primary-ready", release.ByCluster, message)
	}
}

// primaryLost reports whether the primary protects no users, so that a fix is urgent.
func (s *Snapshot) primaryLost() bool {
	primary := s.Workload.Primary
	return primary.Found && !primary.Ready && (primary.Exceeded || primary.Replicas > 0 && primary.Available == 0 || s.primaryUnpromoted())
}

func primaryMessage(s Snapshot) string {
	primary, name := s.Workload.Primary, s.Plan.primaryName()
	if !s.Plan.hasReplicaCount() {
		name = "primary daemonset " + name
	}
	if !primary.Found {
		return name + " not ready: it does not exist"
	}
	message := primary.Message
	if message == "" {
		message = "it has no pods"
	}
	if primary.PodProblem != "" {
		message += " (" + primary.PodProblem + ")"
	}
	return name + " not ready: " + message
}

// canaryReady waits until the new revision has enough pods. It fails when the canary makes no progress for the length of the
// deadline.
func canaryReady(s Snapshot) release.Gate {
	target := s.Workload.Target
	if target.Ready && target.Replicas > 0 {
		return release.NewPassingGate("canary-ready", formatPods(target))
	}
	message := canaryMessage(s)
	if target.Exceeded {
		return release.NewFailedGate("canary-ready", release.ByCluster, message)
	}
	return failsAtDeadline(s, release.NewWaitingGate("canary-ready", release.ByCluster, message), s.canaryDeadline())
}

// failsAtDeadline returns the gate, failed when the deadline has passed.
func failsAtDeadline(s Snapshot, g release.Gate, deadline time.Time) release.Gate {
	if !s.Now.Before(deadline) {
		g.Verdict = release.Fail
		return g
	}
	g.Until, g.Limit = deadline, "ready by "+deadline.UTC().Format(time.RFC3339)
	return g
}

// withoutPodDetails returns the snapshot without the problems of pods: Flagger's texts do not contain them.
func withoutPodDetails(s Snapshot) Snapshot {
	s.Workload.Target.PodProblem, s.Workload.Primary.PodProblem = "", ""
	return s
}

func canaryMessage(s Snapshot) string {
	target := s.Workload.Target
	message := target.Message
	if message == "" {
		message = "waiting for rollout to finish: it has no pods yet"
	}
	if target.PodProblem != "" {
		message += " (" + target.PodProblem + ")"
	}
	return fmt.Sprintf("canary %s %s not ready: %s", strings.ToLower(s.Plan.Kind), s.Plan.targetName(), message)
}

// routeAccepted delays the start of a release while the route cannot be read or is rejected by its router.
func routeAccepted(s Snapshot) release.Gate {
	switch {
	case !s.Plan.HasRouter:
		return release.NewPassingGate("route", "traffic is routed by the Services")
	case s.Route.Problem != "":
		return withEvent(release.NewWaitingGate("route", release.ByCluster, s.Route.Problem))
	case !s.Route.Found:
		return release.NewWaitingGate("route", release.ByCluster, "the route does not exist yet")
	case s.Route.Confirmation == Unconfirmed:
		return withEvent(release.NewWaitingGate("route", release.ByCluster, s.Route.Reason))
	default:
		return release.NewPassingGate("route", fmt.Sprintf("canary receives %d%% of the traffic", s.Route.Canary))
	}
}

// withEvent reports the message of a waiting gate in an event as well.
func withEvent(g release.Gate) release.Gate {
	g.Events = []release.Event{{Type: release.Warning, Message: g.Message, Persistent: true}}
	return g
}

// windowElapsed is the gate that only time opens. The start of the window is stored in the status, so that a restart neither
// skips a window nor observes one twice.
func windowElapsed(s Snapshot) release.Gate {
	window := s.openWindow()
	if !window.open {
		return release.NewPassingGate("window", "no window is open")
	}
	length := s.Plan.Window
	if window.unobserved {
		length = 0
	}
	end := s.clampToNow(window.start).Add(length)
	var g release.Gate
	if s.Now.Before(end) {
		g = release.NewTimedGate("window", end, "observing until "+end.UTC().Format(time.TimeOnly))
	} else {
		g = release.NewPassingGate("window", "observed for "+length.String())
	}
	if s.Plan.WindowRaised {
		g.Message += fmt.Sprintf("; the interval was raised to the minimum of %s", s.Plan.Window)
	}
	return g
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

// routeConfirmed delays the evaluation of a window during which the router did not serve the weight yet.
func routeConfirmed(s Snapshot) release.Gate {
	if s.Plan.HasRouter && s.Route.Confirmation == Unconfirmed {
		return release.NewWaitingGate("route-confirmed", release.ByCluster, s.Route.Reason)
	}
	return release.NewPassingGate("route-confirmed", "")
}

// drainElapsed delays the scale-down of pods that have just lost their traffic, so that requests in flight are completed and
// routers with a delay stop sending new ones.
func drainElapsed(s Snapshot) release.Gate {
	var until time.Time
	longest := s.Plan.Drain
	drain, lastTraffic := s.serin().DrainUntil, s.serin().LastTraffic
	switch {
	case drain != nil:
		until = drain.Time
		if lastTraffic != nil {
			until = release.LaterOf(until, lastTraffic.Add(s.Plan.Drain)) // the previous run may have ended a moment ago
		}
	case lastTraffic != nil:
		longest += s.Plan.Drain / 2 // the traffic may have continued for half a drain; see hasUnrecordedTraffic
		until = lastTraffic.Add(longest)
	}
	if until.IsZero() {
		return release.NewPassingGate("drained", "the canary received no traffic")
	}
	if latest := s.Now.Add(longest); until.After(latest) {
		until = latest // a clock that was set back must not keep pods for a day
	}
	if s.Now.Before(until) {
		return release.NewTimedGate("drained", until, "until "+until.UTC().Format(time.TimeOnly))
	}
	// If the router reports that it still serves the previous route, the pods are kept, but not indefinitely.
	if latest := until.Add(s.Plan.Deadline); s.Plan.HasRouter && s.Route.Confirmation == Unconfirmed && s.Now.Before(latest) {
		g := release.NewWaitingGate("drained", release.ByCluster, s.Route.Reason)
		g.Until = latest
		return g
	}
	return release.NewPassingGate("drained", "")
}

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

// samplesBelongToRevision delays the evaluation of the checks, not the weight, while the range of a query still includes requests
// that an earlier revision of the target served.
func samplesBelongToRevision(s Snapshot) release.Gate {
	last := s.serin().LastTraffic
	if last == nil || len(s.Plan.Checks) == 0 {
		return release.NewPassingGate("old-samples", "")
	}
	until := s.clampToNow(last.Time).Add(s.Plan.longestRange())
	if s.Now.Before(until) {
		return release.NewTimedGate("old-samples", until, fmt.Sprintf("the metrics still include an earlier revision until %s", until.UTC().Format(time.TimeOnly)))
	}
	return release.NewPassingGate("old-samples", "")
}

// metricPasses is one check of a window. Its first final answer is valid for the whole window.
func metricPasses(check Check) gate {
	return func(s Snapshot) release.Gate {
		name, p := check.Metric.Name, metricQuery(s, check)
		answer, ok := s.Answers.AnswerTo(p)
		if !ok {
			p.Request = MetricQuery{Check: check}
			return release.NewQueryGate(name, p, "waiting for the query result")
		}
		g := release.Gate{Name: name, Query: answer.Query, Answer: &answer}
		switch answer.Outcome {
		case release.Measured:
			j := judgeValue(check, answer.Value)
			g.Value, g.Limit, g.Verdict, g.Message = j.value, j.limit, release.Pass, j.value+" is within the limit"
			if !j.ok {
				g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, j.text
				g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement %s", s.Plan.qualifiedName(), j.text)}}
			}
			return g
		case release.Unreachable:
			if wait, held := providerUnreachable(s, p, check, answer); held {
				wait.Query, wait.Answer = answer.Query, &answer
				return wait
			}
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, answer.Text
			g.Events = []release.Event{queryFailedText(check, answer)}
			return g
		case release.NoData:
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, "no values found"
			g.Events = []release.Event{noValuesText(s.Plan, check, answer.Text)}
			return g
		default: // Broken: only the user or another window changes that
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, answer.Text
			g.Events = []release.Event{queryFailedText(check, answer)}
			return g
		}
	}
}

// providerUnreachable keeps the window open while an unreachable provider does not count as a failed check yet.
func providerUnreachable(s Snapshot, p release.Query, check Check, answer release.Answer) (release.Gate, bool) {
	counted := providerUnreachableSince(s, answer).Add(unreachableGrace)
	if !s.Now.Before(counted) {
		return release.Gate{}, false
	}
	again := s.clampToNow(answer.Began).Add(min(askAgainInterval, s.Plan.Window))
	message := fmt.Sprintf("the metrics provider is unreachable (%s); this counts as a failed check from %s", answer.Text, counted.UTC().Format(time.TimeOnly))
	if s.Now.Before(again) {
		g := release.NewTimedGate("provider-unreachable", again, message)
		return g, true
	}
	p.Since, p.Request = again, MetricQuery{Check: check}
	return release.NewQueryGate("provider-unreachable", p, message), true
}

// providerUnreachableSince is since when the provider has been unreachable.
func providerUnreachableSince(s Snapshot, answer release.Answer) time.Time {
	if since := s.serin().Unreachable; since != nil {
		return s.clampToNow(since.Time)
	}
	return s.clampToNow(answer.Began)
}

// formatPods formats the number of pods that can serve requests.
func formatPods(c WorkloadState) string { return strconv.Itoa(int(c.Available)) + " pods available" }
