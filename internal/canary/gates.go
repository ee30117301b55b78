package canary

import (
	"fmt"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// gate evaluates one condition for a snapshot.
type gate = func(Snapshot) release.Gate

// primaryReady delays the release while the primary, which serves users, is not ready. The gate is lifted for a primary that
// exceeded its progress deadline, that has no pods, or whose promotion failed: waiting protects no users then, and only a new
// revision can fix it. The message of the gate and an event report that.
func primaryReady(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	message := primaryMessage(s)
	switch {
	case primary.Found && primary.Ready:
		return release.NewPassingGate(primaryReadyGate, formatPods(primary))
	case primaryLost(s):
		g := release.NewPassingGate(primaryReadyGate, "lifted so that a fix can ship: "+message)
		g.Events = []release.Event{{
			Type: release.Warning, Message: message + ": the release of the new revision continues without it", Persistent: true,
			Alert: &release.Alert{Severity: release.Error, Message: message},
		}}
		return g
	default:
		return release.NewWaitingGate(primaryReadyGate, release.ByCluster, message)
	}
}

// canaryReady waits until the new revision has enough pods. It fails when the canary makes no progress for the length of the
// deadline.
func canaryReady(s Snapshot) release.Gate {
	target := s.Workload.Target
	if target.Ready && target.Replicas > 0 {
		return release.NewPassingGate(canaryReadyGate, formatPods(target))
	}
	message := canaryMessage(s)
	if target.DeadlineExceeded {
		return release.NewFailedGate(canaryReadyGate, release.ByCluster, message)
	}
	return failsAtDeadline(s, release.NewWaitingGate(canaryReadyGate, release.ByCluster, message), canaryDeadline(s), rolledBack)
}

// The consequences of a gate that fails at its deadline.
const (
	rolledBack     = "the release is rolled back"
	promotionFails = "the promotion fails"
)

// failsAtDeadline returns the gate, failed when the deadline has passed.
func failsAtDeadline(s Snapshot, g release.Gate, deadline time.Time, consequence string) release.Gate {
	if !s.Now.Before(deadline) {
		g.Verdict = release.Fail
		return g
	}
	g.Otherwise = consequence
	g.Until, g.Limit = deadline, "ready by "+deadline.UTC().Format(time.RFC3339)
	return g
}

// withoutPodDetails returns the snapshot without the problems of pods: Flagger's texts do not contain them.
func withoutPodDetails(s Snapshot) Snapshot {
	s.Workload.Target.PodProblem, s.Workload.Primary.PodProblem = "", ""
	return s
}

// canaryMessage explains why the canary is not ready.
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
	case s.Route.Confirmation == Unconfirmed && !s.Plan.SkipAnalysis && !shipsUnanalyzed(s): // otherwise the canary gets no traffic
		opener, message := unconfirmedReason(s)
		return withEvent(release.NewWaitingGate("route", opener, message))
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
	window := s.currentWindow()
	if !window.open {
		return release.NewPassingGate("window", "no window is open")
	}
	length := s.Plan.Interval
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
	if s.Plan.IntervalRaised {
		g.Message += fmt.Sprintf("; the interval was raised to the minimum of %s", s.Plan.Interval)
	}
	return g
}

// routeConfirmed delays the evaluation of a window during which the router did not serve the weight yet.
func routeConfirmed(s Snapshot) release.Gate {
	if s.Plan.HasRouter && s.Route.Confirmation == Unconfirmed {
		opener, message := unconfirmedReason(s)
		return release.NewWaitingGate(routeConfirmedGate, opener, message)
	}
	return release.NewPassingGate(routeConfirmedGate, "")
}

// unconfirmedReason returns why the router has not applied the route, and who can end the wait. If no controller has reported on a
// Gateway in time, the user has to act.
func unconfirmedReason(s Snapshot) (opener release.Opener, message string) {
	overdue, due := s.isReportOverdue()
	switch {
	case overdue:
		return release.ByUser, s.Route.Unreported.Message
	case !due.IsZero():
		return release.ByCluster, "waiting for the report of a controller: " + s.Route.Reason
	default:
		return release.ByCluster, s.Route.Reason
	}
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
		longest += s.Plan.Drain / 2 // the traffic may have continued for half a drain delay; see hasUnrecordedTraffic
		until = lastTraffic.Add(longest)
	}
	if until.IsZero() {
		return release.NewPassingGate("drained", "the canary received no traffic")
	}
	if latest := s.Now.Add(longest); until.After(latest) {
		until = latest // otherwise pods would remain for a day if the clock was set back by a day
	}
	if s.Now.Before(until) {
		return release.NewTimedGate("drained", until, "until "+until.UTC().Format(time.TimeOnly))
	}
	// While the router reports that it still serves the previous route, the pods remain, but not indefinitely.
	_, unreported := s.isReportOverdue()
	if latest := until.Add(s.Plan.Deadline); s.Plan.HasRouter && s.Route.Confirmation == Unconfirmed && unreported.IsZero() && s.Now.Before(latest) {
		g := release.NewWaitingGate("drained", release.ByCluster, s.Route.Reason)
		g.Until = latest
		return g
	}
	return release.NewPassingGate("drained", "")
}

// formatPods formats the number of pods that can serve requests.
func formatPods(w WorkloadState) string { return release.Count(int(w.Available), "pod") + " available" }
