package canary

import (
	"fmt"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// gate is one condition, as a function of the snapshot.
type gate = func(Snapshot) release.Gate

// primaryReady holds everything while the version that serves users is not whole. A primary that Kubernetes gave up, or
// that has not one pod left, protects nobody: then the gate is lifted, so that a fix can ship, and says so.
func primaryReady(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	message := s.primaryMessage()
	switch {
	case primary.Found && primary.Ready:
		return release.Passes("primary-ready", fmt.Sprintf("%d pods available", primary.Available))
	case primary.Found && (primary.Exceeded || primary.Replicas > 0 && primary.Available == 0):
		g := release.Passes("primary-ready", "lifted so that a fix can ship: "+message)
		g.Events = []release.Event{{Type: release.Warning, Message: message + ": the new revision goes on without it", Standing: true}}
		return g
	default:
		return release.WaitsFor("primary-ready", release.ByCluster, message)
	}
}

func (s Snapshot) primaryMessage() string {
	primary := s.Workload.Primary
	if !primary.Found {
		return s.Plan.primary() + " not ready: it does not exist"
	}
	if primary.PodProblem != "" {
		return s.Plan.primary() + " not ready: " + primary.Message + " (" + primary.PodProblem + ")"
	}
	return s.Plan.primary() + " not ready: " + primary.Message
}

// canaryReady holds everything while the new revision has not enough pods, until the progress deadline.
func canaryReady(s Snapshot) release.Gate {
	target := s.Workload.Target
	if target.Ready && target.Replicas > 0 {
		return release.Passes("canary-ready", fmt.Sprintf("%d pods available", target.Available))
	}
	message := s.canaryMessage()
	if target.Exceeded {
		return release.Fails("canary-ready", release.ByCluster, message)
	}
	if deadline, ok := s.deadline(); ok {
		if !s.Now.Before(deadline) {
			return release.Fails("canary-ready", release.ByCluster, message)
		}
		g := release.WaitsFor("canary-ready", release.ByCluster, message)
		g.Until, g.Limit = deadline, "ready by "+deadline.UTC().Format(time.RFC3339)
		return g
	}
	return release.WaitsFor("canary-ready", release.ByCluster, message)
}

func (s Snapshot) canaryMessage() string {
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

// deadline is by when the workload that was asked to change must be ready. It counts from when it was asked, or from
// when it was last seen ready, which the start of a window proves.
func (s Snapshot) deadline() (time.Time, bool) {
	var from time.Time
	if since := s.serin().Since; since != nil {
		from = since.Time
	}
	if start, ok := s.start(); ok && s.Status.Phase != flaggerv1.CanaryPhasePromoting {
		from = release.Later(from, start)
	}
	if from.IsZero() {
		if s.Status.LastTransitionTime.IsZero() {
			return time.Time{}, false
		}
		from = s.Status.LastTransitionTime.Time
	}
	return s.past(from).Add(s.Plan.Deadline), true
}

// routeReadable holds a start while the traffic cannot be seen or was refused by its router.
func routeReadable(s Snapshot) release.Gate {
	switch {
	case !s.Plan.Routed:
		return release.Passes("route", "traffic follows the Services")
	case s.Route.Problem != "":
		return release.WaitsFor("route", release.ByCluster, s.Route.Problem)
	case !s.Route.Found:
		return release.WaitsFor("route", release.ByCluster, "the route does not exist yet")
	case s.Route.Confirmation == Unconfirmed:
		return release.WaitsFor("route", release.ByCluster, s.Route.Reason)
	default:
		return release.Passes("route", fmt.Sprintf("canary has %d %% of the traffic", s.Route.Canary))
	}
}

// windowOver is the gate that time alone opens. The start of a window is in the status, so that a restart neither
// skips a window nor observes one twice.
func windowOver(s Snapshot) release.Gate {
	start, ok := s.start()
	if !ok {
		return release.Passes("window", "none is open")
	}
	length := s.Plan.Window
	if !s.Plan.Routed && s.Plan.Strategy == BlueGreen && s.Status.Iterations > s.Plan.Iterations {
		length = 0 // nothing changed for traffic, so there is nothing to observe
	}
	end := s.past(start).Add(length)
	g := release.Passes("window", fmt.Sprintf("observed for %s", length))
	if s.Now.Before(end) {
		g = release.WaitsUntil("window", end, "observing until "+end.UTC().Format(time.TimeOnly))
	}
	if s.Plan.Raised {
		g.Message += fmt.Sprintf("; the interval was raised to the floor of %s", s.Plan.Window)
	}
	return g
}

// windowEnd is when the answers of the open window may be asked for.
func (s Snapshot) windowEnd() time.Time {
	start, ok := s.start()
	if !ok {
		return time.Time{}
	}
	if !s.Plan.Routed && s.Plan.Strategy == BlueGreen && s.Status.Iterations > s.Plan.Iterations {
		return start
	}
	return start.Add(s.Plan.Window)
}

// attempt names the open window in the identity of its questions.
func (s Snapshot) attempt() string {
	start, ok := s.start()
	if !ok {
		return "first"
	}
	return start.UTC().Format(time.RFC3339Nano)
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
	switch {
	case s.serin().DrainUntil != nil:
		until = s.serin().DrainUntil.Time
	case s.Pruned:
		until = s.Status.LastTransitionTime.Add(s.Plan.Drain + time.Second)
	default:
		return release.Passes("drained", "there was no traffic")
	}
	if longest := s.Now.Add(s.Plan.Drain); until.After(longest) {
		until = longest // a clock that jumped back must not hold pods for a day
	}
	if s.Now.Before(until) {
		return release.WaitsUntil("drained", until, "until "+until.UTC().Format(time.TimeOnly))
	}
	return release.Passes("drained", "")
}

// approves is a hook that must say yes and is asked again, one interval after its last call began, until it does.
func approves(hook flaggerv1.CanaryWebhook, phase flaggerv1.CanaryPhase, attempt string, since time.Time, passed, closed string) gate {
	return func(s Snapshot) release.Gate {
		name := string(hook.Type) + "/" + hook.Name
		p := s.hookProbe(hook, phase, attempt, since)
		answer, ok := s.Answers.To(p)
		if !ok {
			return release.Asks(name, p, "waiting for the answer of "+hook.Name)
		}
		if answer.Outcome == release.Yes {
			g := release.Passes(name, "approved")
			g.Events = []release.Event{{Type: release.Normal, Message: passed}}
			return g
		}
		again := answer.Began.Add(s.Plan.Window)
		if s.Now.Before(again) {
			g := release.WaitsFor(name, release.ByPerson, refusal(hook, answer))
			g.Until = again
			g.Events = []release.Event{{Type: release.Warning, Message: closed}}
			return g
		}
		p.Since = again
		return release.Asks(name, p, refusal(hook, answer)+"; asking again")
	}
}

func refusal(hook flaggerv1.CanaryWebhook, answer release.Answer) string {
	if answer.Text == "" {
		return hook.Name + " has not approved"
	}
	return hook.Name + " has not approved: " + answer.Text
}

// rollbackAsked is a hook whose yes takes the release back. It fails when somebody wants that.
func rollbackAsked(hook flaggerv1.CanaryWebhook, attempt string, since time.Time) gate {
	return func(s Snapshot) release.Gate {
		name := string(hook.Type) + "/" + hook.Name
		p := s.hookProbe(hook, s.Status.Phase, attempt, since)
		answer, ok := s.Answers.To(p)
		switch {
		case !ok:
			return release.Asks(name, p, "asking whether to roll back")
		case answer.Outcome == release.Yes:
			g := release.Fails(name, release.ByPerson, reasonHook)
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
			g.Events = []release.Event{{Type: release.Normal, Message: fmt.Sprintf("Rollback hook %s not signaling a rollback", hook.Name)}}
			return g
		}
	}
}

// rolloutAsked hands out the rollout hooks of a window as soon as it is open, in order, up to the first that refuses.
// The gate passes with any answer: what it said is judged at the end of the window.
func rolloutAsked(hook flaggerv1.CanaryWebhook, before []flaggerv1.CanaryWebhook) gate {
	return func(s Snapshot) release.Gate {
		name := "rollout-asked/" + hook.Name
		for _, earlier := range before {
			if answer, ok := s.Answers.To(s.rolloutProbe(earlier)); ok && answer.Outcome != release.Yes {
				return release.Passes(name, "not asked, because "+earlier.Name+" refused")
			}
		}
		p := s.rolloutProbe(hook)
		if _, ok := s.Answers.To(p); !ok {
			return release.Asks(name, p, "waiting for the answer of "+hook.Name)
		}
		return release.Passes(name, "answered")
	}
}

func (s Snapshot) rolloutProbe(hook flaggerv1.CanaryWebhook) release.Probe {
	start, _ := s.start()
	return s.hookProbe(hook, flaggerv1.CanaryPhaseProgressing, s.attempt(), start)
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
			return release.Passes(name, "passed")
		default:
			g := release.Fails(name, release.ByTime, hook.Name+" failed "+answer.Text)
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
			return release.Asks(name, p, "waiting for the answer")
		}
		g := release.Gate{Name: name, Query: answer.Query}
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
			if wait, held := unreachable(s, p, answer); held {
				wait.Query = answer.Query
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
func unreachable(s Snapshot, p release.Probe, answer release.Answer) (release.Gate, bool) {
	first := s.windowEnd()
	if since := s.serin().Unreachable; since != nil {
		first = s.past(since.Time)
	}
	counted := first.Add(unreachableGrace)
	if !s.Now.Before(counted) {
		return release.Gate{}, false
	}
	again := answer.Began.Add(min(askAgain, s.Plan.Window))
	message := fmt.Sprintf("the metrics provider cannot be reached (%s); counted as a failed check from %s on", answer.Text, counted.UTC().Format(time.TimeOnly))
	if s.Now.Before(again) {
		g := release.WaitsUntil("provider-unreachable", again, message)
		return g, true
	}
	p.Since = again
	return release.Asks("provider-unreachable", p, message), true
}
