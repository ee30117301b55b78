package canary

import (
	"fmt"
	"slices"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// rollingBack reports whether traffic returns to the previous revision, or the release is cancelled.
func (s *Snapshot) rollingBack() bool {
	intent := s.serin().Intent
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
		failed := intent == "" && s.Status.FailedChecks >= s.Plan.Threshold
		return failed || intent == intentRollback || intent == intentCancel
	case flaggerv1.CanaryPhasePromoting:
		return intent == intentRollback
	default: // idle, or no release
		return false
	}
}

// takeBack returns to the revision that was promoted before: its template first, where a promotion had begun, then the
// traffic, as far as the primary carries it, then the pods. Traffic never goes to a primary without a pod while the canary
// has one.
func takeBack(s Snapshot) Decision {
	effects := standing(s)
	if s.primaryHasRolledBackTemplate() {
		effects = append(effects, RestoreTemplate{ID: s.restoreID()})
	} else {
		effects = append(effects, ConfigsRestored{ID: s.copyID()})
	}
	if primary := s.Workload.Primary; primary.Found && primary.Replicas == 0 && s.canaryHasTraffic() && s.Workload.Target.serves() {
		effects = append(effects, PrimaryUpFromZero{}) // it was scaled to zero, and only Serin would restore it
	}
	gates := release.Look(s, primaryServes, primaryEndpointsAtOnce)
	if s.rollbackImpossible() {
		return rollbackFailed(s, gates, effects)
	}
	if s.retained() > 0 {
		return rollBackInPart(s, gates, effects)
	}
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	switch {
	case s.trafficReturned():
		return forgetDrain(s, effects)
	case s.canaryHasTraffic() && !s.drainStarted():
		e := s.edit().effect(effects...).effect(RouteIs{}).stamp(release.StampDrain, release.StampLeft).recordThreshold()
		e.forgetCookie()
		return e.done(gates)
	}
	gates = append(gates, release.Look(s, drained)...)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().effect(effects...).effect(ScalerPaused{Paused: true}, DownToZero{})
	if !s.drainStarted() {
		e.tell(s.threshold()...)
	}
	if s.serin().Intent == intentCancel {
		e.phase(flaggerv1.CanaryPhaseSucceeded)
		e.zero()
		e.settle()
		e.serin.Promoted, e.serin.Unfinished = e.serin.Revision, nil
		return e.done(gates)
	}
	return e.fail(s.serin().Reason).done(gates)
}

// primaryHasRolledBackTemplate reports whether the primary has, or had, the template that is rolled back.
func (s *Snapshot) primaryHasRolledBackTemplate() bool {
	return s.Status.Phase == flaggerv1.CanaryPhasePromoting || s.primaryHasTemplate() || s.Workload.Primary.ID == s.restoreID()
}

// drainStarted reports whether the canary lost its traffic and the drain delay began.
func (s *Snapshot) drainStarted() bool { return s.serin().DrainUntil != nil }

// trafficReturned reports whether the canary has traffic again after it lost it: a user changed the route.
func (s *Snapshot) trafficReturned() bool {
	return s.drainStarted() && s.readable() && (s.Route.Canary > 0 || s.Route.Mirrored)
}

// forgetDrain records that a drain has to begin again, before the traffic moves again: after a crash the time of the previous drain
// must not be found.
func forgetDrain(s Snapshot, effects []release.Effect) Decision {
	e := s.edit().effect(effects...)
	e.serin.DrainUntil = nil
	return e.done(nil)
}

// hasUnrecordedTraffic reports whether the canary has traffic that the status does not record, because something else changed the
// route. Traffic that was recorded less than half a drain delay ago counts as recorded.
func (s *Snapshot) hasUnrecordedTraffic() bool {
	last := s.serin().LastTraffic
	known := last != nil && s.Now.Before(last.Add(s.Plan.Drain/2))
	return s.live() > 0 && s.Status.CanaryWeight == 0 && s.Plan.Drain > 0 && !known
}

// notice records that the canary has traffic before that is removed: a crash afterwards must not lose the drain.
func (s *Snapshot) notice() Decision {
	return s.copy().stamp(release.StampLeft).done(nil) // what blocks it, if anything does, blocks it still
}

// sendsTrafficToEmptyTarget reports whether requests are sent to a target without pods while the primary could answer them. A
// former leader that slept may have done that after the rollback; see docs/adr/0004.
func (s *Snapshot) sendsTrafficToEmptyTarget() bool {
	target := s.Workload.Target
	return s.readable() && s.Route.Canary > 0 && s.Plan.scales() && target.Found && target.gone() && s.primaryReachable()
}

// withTrafficRescue adds to the decision about a release at rest that such traffic moves to the primary. Nothing else maintains a
// weight at rest.
func withTrafficRescue(s Snapshot, d Decision) Decision {
	if !s.sendsTrafficToEmptyTarget() || slices.ContainsFunc(d.Effects, takesOff) {
		return d
	}
	d.Effects = append(d.Effects, RouteIs{})
	d.Events = append(d.Events, release.Event{Type: release.Warning, Message: fmt.Sprintf(
		"Routing all traffic of %s to primary: %d%% went to %s, which has no pods", s.Plan.full(), s.Route.Canary, s.Plan.workload())})
	return d
}

// takesOff reports whether an effect leaves the canary without traffic.
func takesOff(effect release.Effect) bool {
	route, ok := effect.(RouteIs)
	return ok && route.Canary == 0
}

// primaryServes holds the traffic where it is while the primary could not answer a single request, and the canary can. It
// holds the part that the primary cannot carry where the traffic can return in parts.
func primaryServes(s Snapshot) release.Gate {
	primary, target := s.Workload.Primary, s.Workload.Target
	restoring := s.primaryHasRolledBackTemplate()
	switch {
	case restoring && primary.ID != s.restoreID():
		return release.WaitsFor("primary-restored", release.ByCluster, s.Plan.primary()+" gets back the template it had before")
	case restoring && !primary.Ready && target.serves():
		return release.WaitsFor("primary-restored", release.ByCluster, s.primaryMessage())
	case s.retained() > 0 && s.carriers() > 0:
		return release.WaitsFor("primary-serves", release.ByCluster, s.retainedMessage())
	case s.canaryHasTraffic() && !s.primaryCanServe() && target.serves():
		return release.WaitsFor("primary-serves", release.ByCluster, s.primaryMessage()+": the canary keeps serving until it is")
	default:
		return release.Passes("primary-serves", pods(primary))
	}
}

// rollbackImpossible reports whether another revision came while there is nothing to return to: the primary exceeded its deadline.
func (s *Snapshot) rollbackImpossible() bool {
	primary := s.Workload.Primary
	replaced := s.Workload.Target.Found && s.Workload.Target.Revision != s.pinnedRevision()
	back := !s.primaryHasRolledBackTemplate() || primary.ID == s.restoreID()
	return replaced && back && (s.canaryHasTraffic() || s.primaryHasRolledBackTemplate()) && primary.Found && primary.Exceeded && !s.primaryCanServe()
}

// rollbackFailed leaves the traffic where it is, like a promotion that failed: the revision that came repairs the primary,
// and would never be looked at while the one before it waits for a primary that does not come.
func rollbackFailed(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	message := withoutPods(s).primaryMessage()
	e := s.edit().effect(effects...).tell(s.threshold()...).tell(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Rollback of %s failed, primary not ready: %s", s.Plan.workload(), message),
		Alert: &release.Alert{Severity: release.Error, Message: "Rollback failed, primary not ready: " + message},
	})
	switch {
	case s.Workload.Primary.ID == s.copyID():
		e.unfinished(s.pinnedRevision(), s.Status.LastAppliedSpec)
	case !s.primaryUnpromoted():
		e.unfinished(s.promotedRevision(), s.Status.LastPromotedSpec)
	}
	return e.failKeepingCanary(s.live(), "Rollback failed").done(gates)
}

// threshold is the event about a release that is rolled back because of failed checks alone.
func (s *Snapshot) threshold() []release.Event {
	if s.Status.FailedChecks < s.Plan.Threshold || s.serin().Intent != "" || s.serin().Intent == intentCancel {
		return nil
	}
	return []release.Event{{
		Type: release.Warning, Message: fmt.Sprintf("Rolling back %s failed checks threshold reached %d", s.Plan.full(), s.Status.FailedChecks),
		Alert: &release.Alert{Severity: release.Error, Message: fmt.Sprintf("Failed checks threshold reached %d", s.Status.FailedChecks), Cause: s.lastFailure()},
	}}
}

// lastFailure is what the last failed check found, as the gates say that were written with its verdict; empty where there
// are none.
func (s *Snapshot) lastFailure() string {
	i := slices.IndexFunc(s.serin().Gates, func(g flaggerv1.GateStatus) bool { return g.Verdict == string(release.Fail) })
	if i < 0 {
		return ""
	}
	gate := s.serin().Gates[i]
	if strings.Contains(gate.Message, gate.Name) {
		return gate.Message
	}
	return gate.Name + ": " + gate.Message
}

// fail ends a release that was rolled back. Every way into Failed sends exactly one error alert that names the cause:
// threshold and deadline sent theirs with the rollback, what the user requested is reported here.
func (e *edit) fail(why string) *edit {
	s := e.s
	waiting := s.Status.Phase == flaggerv1.CanaryPhaseWaiting
	told := !waiting && (s.serin().Intent == intentRollback && !s.byPerson() || len(s.threshold()) > 0)
	e.phase(flaggerv1.CanaryPhaseFailed)
	e.ending = release.EndingFailed
	e.repaired()
	e.zero()
	if waiting {
		e.applied()
		e.status.CanaryWeight = s.live() // no traffic was moved
	}
	e.settle()
	event := release.Event{
		Type: release.Warning, Message: "Canary failed! Scaling down " + s.Plan.full(), Phase: string(flaggerv1.CanaryPhaseFailed),
	}
	if !told {
		event.Alert = &release.Alert{Severity: release.Error, Message: "Canary failed: " + why}
	}
	return e.tell(event).postRollout(intentFailed)
}

// byPerson is true when a hook or a command, not the state of the canary, asked for the rollback.
func (s *Snapshot) byPerson() bool {
	switch s.serin().Reason {
	case reasonHook, reasonAbort:
		return true
	default:
		return false
	}
}

// The reasons of rollbacks, but for deadlines, which say what is not ready.
const (
	reasonHook   = "a rollback was asked for"
	reasonAbort  = "a person aborted the release"
	reasonChecks = "too many checks failed"
)
