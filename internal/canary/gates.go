package canary

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// gate is one condition, as a function of the snapshot.
type gate = func(Snapshot) release.Gate

// primaryReady holds everything while the version that serves users is not whole. A primary that Kubernetes gave up,
// that has no pod left, or whose promotion failed, protects no users: then the gate is lifted, so that a fix can ship,
// and says so.
func primaryReady(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	message := s.primaryMessage()
	switch {
	case primary.Found && primary.Ready:
		return release.Passes("primary-ready", pods(primary))
	case s.primaryLost():
		g := release.Passes("primary-ready", "lifted so that a fix can ship: "+message)
		g.Events = []release.Event{{
			Type: release.Warning, Message: message + ": the new revision goes on without it", Standing: true,
			Alert: &release.Alert{Severity: release.Error, Message: message},
		}}
		return g
	default:
		return release.WaitsFor("primary-ready", release.ByCluster, message)
	}
}

// primaryLost reports whether the primary protects no users, so that a fix is urgent.
func (s *Snapshot) primaryLost() bool {
	primary := s.Workload.Primary
	return primary.Found && !primary.Ready && (primary.Exceeded || primary.Replicas > 0 && primary.Available == 0 || s.primaryUnpromoted())
}

func (s *Snapshot) primaryMessage() string {
	primary, name := s.Workload.Primary, s.Plan.primary()
	if !s.Plan.counted() {
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

// canaryReady holds everything while the new revision has not enough pods, until it has made no progress for the length
// of the deadline.
func canaryReady(s Snapshot) release.Gate {
	target := s.Workload.Target
	if target.Ready && target.Replicas > 0 {
		return release.Passes("canary-ready", pods(target))
	}
	message := s.canaryMessage()
	if target.Exceeded {
		return release.Fails("canary-ready", release.ByCluster, message)
	}
	return dueBy(s, release.WaitsFor("canary-ready", release.ByCluster, message), s.canaryDeadline())
}

// dueBy is a gate that fails at the deadline.
func dueBy(s Snapshot, g release.Gate, deadline time.Time) release.Gate {
	if !s.Now.Before(deadline) {
		g.Verdict = release.Fail
		return g
	}
	g.Until, g.Limit = deadline, "ready by "+deadline.UTC().Format(time.RFC3339)
	return g
}

// withoutPods is the snapshot without what was seen of single pods: the texts that the API promises do not name any.
func withoutPods(s Snapshot) *Snapshot {
	s.Workload.Target.PodProblem, s.Workload.Primary.PodProblem = "", ""
	return &s
}

func (s *Snapshot) canaryMessage() string {
	target := s.Workload.Target
	message := target.Message
	if message == "" {
		message = "waiting for rollout to finish: it has no pods yet"
	}
	if target.PodProblem != "" {
		message += " (" + target.PodProblem + ")"
	}
	return fmt.Sprintf("canary %s %s not ready: %s", strings.ToLower(s.Plan.Kind), s.Plan.workload(), message)
}

// routeReadable holds a start while the traffic cannot be seen or was refused by its router.
func routeReadable(s Snapshot) release.Gate {
	switch {
	case !s.Plan.Routed:
		return release.Passes("route", "traffic follows the Services")
	case s.Route.Problem != "":
		return told(release.WaitsFor("route", release.ByCluster, s.Route.Problem))
	case !s.Route.Found:
		return release.WaitsFor("route", release.ByCluster, "the route does not exist yet")
	case s.Route.Confirmation == Unconfirmed:
		return told(release.WaitsFor("route", release.ByCluster, s.Route.Reason))
	default:
		return release.Passes("route", fmt.Sprintf("canary has %d %% of the traffic", s.Route.Canary))
	}
}

// told makes what a gate waits for an event as well, for as long as it does.
func told(g release.Gate) release.Gate {
	g.Events = []release.Event{{Type: release.Warning, Message: g.Message, Standing: true}}
	return g
}

// windowOver is the gate that time alone opens. The start of a window is in the status, so that a restart neither
// skips a window nor observes one twice.
func windowOver(s Snapshot) release.Gate {
	start, ok := s.start()
	if !ok {
		return release.Passes("window", "none is open")
	}
	length := s.Plan.Window
	if s.unobserved() {
		length = 0
	}
	end := s.past(start).Add(length)
	var g release.Gate
	if s.Now.Before(end) {
		g = release.WaitsUntil("window", end, "observing until "+end.UTC().Format(time.TimeOnly))
	} else {
		g = release.Passes("window", "observed for "+length.String())
	}
	if s.Plan.Raised {
		g.Message += fmt.Sprintf("; the interval was raised to the floor of %s", s.Plan.Window)
	}
	return g
}

// unobserved is true in the last window of blue/green where no router moves traffic: nothing changed for users, so there
// is nothing to observe. A window that follows because a check failed or a gate was closed is a window like any other, or
// both would be asked again and again at once.
func (s *Snapshot) unobserved() bool {
	return s.serin().Window != nil && s.serin().Window.Unobserved
}

// windowEnd is when the answers of the open window may be asked for; zero: at once.
func (s *Snapshot) windowEnd() time.Time {
	start, ok := s.start()
	if !ok || s.unobserved() {
		return time.Time{}
	}
	return start.Add(s.Plan.Window)
}

// attempt names the open window in the identity of its questions.
func (s *Snapshot) attempt() string {
	start, ok := s.start()
	if !ok {
		return "first"
	}
	return strconv.FormatInt(start.UnixMicro(), 36)
}

// asked is when hooks that refused, and that are asked again one window later, were asked.
func (s *Snapshot) asked() (time.Time, bool) {
	asked := s.serin().Asked
	if asked == nil {
		return time.Time{}, false
	}
	return asked.Time, true
}

// askFrom is from when on those hooks are asked again; zero: at once. A refusal in the future counts as one of now.
func (s *Snapshot) askFrom() time.Time {
	asked, ok := s.asked()
	if !ok {
		return time.Time{}
	}
	return s.past(asked).Add(s.Plan.Window)
}

// routeConfirmed holds the judgement of a window during which the router did not yet serve the weight.
func routeConfirmed(s Snapshot) release.Gate {
	if s.Plan.Routed && s.Route.Confirmation == Unconfirmed {
		return release.WaitsFor("route-confirmed", release.ByCluster, s.Route.Reason)
	}
	return release.Passes("route-confirmed", "")
}

// drained holds pods that have just lost their traffic: requests under way end, and routers follow late.
func drained(s Snapshot) release.Gate {
	var until time.Time
	longest := s.Plan.Drain
	drain, left := s.serin().DrainUntil, s.serin().LastTraffic
	switch {
	case drain != nil:
		until = drain.Time
		if left != nil {
			until = release.Later(until, left.Add(s.Plan.Drain)) // the run before this one may have ended a moment ago
		}
	case left != nil:
		longest += s.Plan.Drain / 2 // it may have gone on for half a drain; see unnoticed
		until = left.Add(longest)
	}
	if until.IsZero() {
		return release.Passes("drained", "there was no traffic")
	}
	if latest := s.Now.Add(longest); until.After(latest) {
		until = latest // a clock that jumped back must not hold pods for a day
	}
	if s.Now.Before(until) {
		return release.WaitsUntil("drained", until, "until "+until.UTC().Format(time.TimeOnly))
	}
	// Where the router can tell that it still serves the old route, it is waited for, but not indefinitely.
	if latest := until.Add(s.Plan.Deadline); s.Plan.Routed && s.Route.Confirmation == Unconfirmed && s.Now.Before(latest) {
		g := release.WaitsFor("drained", release.ByCluster, s.Route.Reason)
		g.Until = latest
		return g
	}
	return release.Passes("drained", "")
}

// approves is a hook that must say yes and is asked again, one interval after its last call began, until it does. from
// is the first moment at which it may be asked.
func approves(hook flaggerv1.CanaryWebhook, phase flaggerv1.CanaryPhase, attempt string, from time.Time, passed, closed string) gate {
	return func(s Snapshot) release.Gate {
		name := hookGate(hook)
		p := s.hookProbe(hook, attempt, from)
		answer, ok := s.Answers.To(p)
		if again := s.askAgain(p.ID, from); !ok && s.Now.Before(again) {
			g := release.WaitsFor(name, release.ByPerson, hook.Name+" is asked again at "+again.UTC().Format(time.TimeOnly))
			g.Until = again
			return g
		}
		if !ok {
			return s.asksHook(p, hook, phase, "waiting for the answer of "+hook.Name)
		}
		if answer.Outcome == release.Yes {
			g := release.Passes(name, "approved")
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Normal, Message: passed}}
			return g
		}
		again := s.past(answer.Began).Add(s.Plan.Window)
		if s.Now.Before(again) {
			g := release.WaitsFor(name, release.ByPerson, refusal(hook, answer))
			g.Until, g.Answer = again, &answer
			g.Events = []release.Event{{Type: release.Warning, Message: closed}}
			return g
		}
		p.Since = again
		g := s.asksHook(p, hook, phase, refusal(hook, answer)+"; asking again")
		g.Answer = &answer
		return g
	}
}

// askAgain is from when on a hook is asked again that the status says was refused: it may have been asked since then, when
// the interval was a shorter one.
func (s *Snapshot) askAgain(id string, from time.Time) time.Time {
	last := s.Answers[id]
	if from.IsZero() || last.Ended.IsZero() {
		return from
	}
	return release.Later(from, s.past(last.Began).Add(s.Plan.Window))
}

func refusal(hook flaggerv1.CanaryWebhook, answer release.Answer) string {
	if answer.Text == "" {
		return hook.Name + " has not approved"
	}
	return hook.Name + " has not approved: " + answer.Text
}

// rollbackAsked is the gate of a webhook that may request a rollback. It fails when it does.
func rollbackAsked(hook flaggerv1.CanaryWebhook, attempt string, since time.Time) gate {
	return func(s Snapshot) release.Gate {
		name := hookGate(hook)
		p := s.hookProbe(hook, attempt, since)
		answer, ok := s.Answers.To(p)
		switch {
		case !ok:
			return s.asksHook(p, hook, s.Status.Phase, "asking whether to roll back")
		case answer.Outcome == release.Yes:
			g := release.Fails(name, release.ByPerson, reasonHook)
			g.Answer = &answer
			g.Events = []release.Event{
				{Type: release.Warning, Message: fmt.Sprintf("Rollback check %s passed", hook.Name)},
				{
					Type: release.Warning, Message: fmt.Sprintf("Rolling back %s manual webhook invoked", s.Plan.full()),
					Alert: &release.Alert{Severity: release.Warn, Message: "Rolling back manual webhook invoked"},
				},
			}
			return g
		default:
			g := release.Passes(name, "no rollback is asked for")
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Normal, Message: fmt.Sprintf("Rollback hook %s not signaling a rollback", hook.Name)}}
			return g
		}
	}
}

// rollbackPolled is rollbackAsked where no window tells when to ask: once per interval.
func rollbackPolled(hook flaggerv1.CanaryWebhook, attempt string) gate {
	return func(s Snapshot) release.Gate {
		since := time.Time{}
		if answer, ok := s.Answers.To(s.hookProbe(hook, attempt, since)); ok && answer.Outcome != release.Yes {
			if again := s.past(answer.Began).Add(s.Plan.Window); !s.Now.Before(again) {
				since = again
			}
		}
		return rollbackAsked(hook, attempt, since)(s)
	}
}

// polledAgain is when the next of the rollback hooks is asked again; zero: when none waits for that.
func (s *Snapshot) polledAgain(attempt string) time.Time {
	var next time.Time
	for _, hook := range s.Plan.hooks(flaggerv1.RollbackHook) {
		answer, ok := s.Answers.To(s.hookProbe(hook, attempt, time.Time{}))
		if again := s.past(answer.Began).Add(s.Plan.Window); ok && answer.Outcome != release.Yes && s.Now.Before(again) && (next.IsZero() || again.Before(next)) {
			next = again
		}
	}
	return next
}

// rolloutAsked hands out the rollout hooks of a window as soon as it is open, in order, up to the first that refuses.
// The gate passes with any answer: what it said is judged at the end of the window.
func rolloutAsked(hook flaggerv1.CanaryWebhook, before []flaggerv1.CanaryWebhook) gate {
	return func(s Snapshot) release.Gate {
		name := rolloutAskedGate + hook.Name
		for _, earlier := range before {
			if answer, ok := s.Answers.To(s.rolloutProbe(earlier)); ok && answer.Outcome != release.Yes {
				return release.Passes(name, "not asked, because "+earlier.Name+" refused")
			}
		}
		p := s.rolloutProbe(hook)
		if _, ok := s.Answers.To(p); !ok {
			g := s.asksHook(p, hook, flaggerv1.CanaryPhaseProgressing, "waiting for the answer of "+hook.Name)
			g.Name = name
			return g
		}
		return release.Passes(name, "answered")
	}
}

func (s *Snapshot) rolloutProbe(hook flaggerv1.CanaryWebhook) release.Probe {
	return s.hookProbe(hook, s.attempt(), time.Time{})
}

// rolloutJudged is the verdict of a rollout hook at the end of its window.
func rolloutJudged(hook flaggerv1.CanaryWebhook) gate {
	return func(s Snapshot) release.Gate {
		name := "rollout/" + hook.Name
		answer, ok := s.Answers.To(s.rolloutProbe(hook))
		switch {
		case !ok:
			return release.WaitsFor(name, release.ByAnswer, "judged when "+hook.Name+" has answered")
		case answer.Outcome == release.Yes:
			g := release.Passes(name, "passed")
			g.Answer = &answer
			return g
		default:
			g := release.Fails(name, release.ByTime, hook.Name+" failed "+answer.Text)
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement external check %s failed %s", s.Plan.full(), hook.Name, answer.Text)}}
			return g
		}
	}
}

// oldSamples holds the judgement, not the weight, while a query would still look at what an earlier revision of the
// target answered to users.
func oldSamples(s Snapshot) release.Gate {
	last := s.serin().LastTraffic
	if last == nil || len(s.Plan.Checks) == 0 {
		return release.Passes("old-samples", "")
	}
	until := s.past(last.Time).Add(s.Plan.oldest())
	if s.Now.Before(until) {
		return release.WaitsUntil("old-samples", until, fmt.Sprintf("the metrics still show an earlier revision until %s", until.UTC().Format(time.TimeOnly)))
	}
	return release.Passes("old-samples", "")
}

// passes is one check of a window. Its first final answer holds for the window.
func passes(check Check) gate {
	return func(s Snapshot) release.Gate {
		name, p := check.Metric.Name, s.metricProbe(check)
		answer, ok := s.Answers.To(p)
		if !ok {
			p.Question = MetricQuestion{Check: check}
			return release.Asks(name, p, "waiting for the answer")
		}
		g := release.Gate{Name: name, Query: answer.Query, Answer: &answer}
		switch answer.Outcome {
		case release.Measured:
			j := judge(check, answer.Value)
			g.Value, g.Limit, g.Verdict, g.Message = j.value, j.limit, release.Pass, j.value+" is within the limit"
			if !j.ok {
				g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, j.text
				g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement %s", s.Plan.full(), j.text)}}
			}
			return g
		case release.Unreachable:
			if wait, held := unreachable(s, p, check, answer); held {
				wait.Query, wait.Answer = answer.Query, &answer
				return wait
			}
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, answer.Text
			g.Events = []release.Event{queryFailed(check, answer)}
			return g
		case release.NoData:
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, "no values found"
			g.Events = []release.Event{noValues(s.Plan, check, answer.Text)}
			return g
		default: // Broken: nothing but a person or another window changes it
			g.Verdict, g.Opener, g.Message = release.Fail, release.ByTime, answer.Text
			g.Events = []release.Event{queryFailed(check, answer)}
			return g
		}
	}
}

// unreachable holds the window open while a provider that cannot be reached does not count yet.
func unreachable(s Snapshot, p release.Probe, check Check, answer release.Answer) (release.Gate, bool) {
	counted := s.unreachableSince(answer).Add(unreachableGrace)
	if !s.Now.Before(counted) {
		return release.Gate{}, false
	}
	again := s.past(answer.Began).Add(min(askAgain, s.Plan.Window))
	message := fmt.Sprintf("the metrics provider cannot be reached (%s); counted as a failed check from %s on", answer.Text, counted.UTC().Format(time.TimeOnly))
	if s.Now.Before(again) {
		g := release.WaitsUntil("provider-unreachable", again, message)
		return g, true
	}
	p.Since, p.Question = again, MetricQuestion{Check: check}
	return release.Asks("provider-unreachable", p, message), true
}

// unreachableSince is since when the provider cannot be reached.
func (s *Snapshot) unreachableSince(answer release.Answer) time.Time {
	if since := s.serin().Unreachable; since != nil {
		return s.past(since.Time)
	}
	return s.past(answer.Began)
}

// pods says how many pods of a copy can answer.
func pods(c Copy) string { return strconv.Itoa(int(c.Available)) + " pods available" }
