package canary

import (
	"fmt"
	"slices"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// intent is what was decided and is being carried out. A pruned status has no room for it; what it stands for is seen in
// what the API's own fields say. See rollback for the intent to roll back.
func (s *Snapshot) intent() string {
	if !s.Pruned {
		return s.serin().Intent
	}
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
		if s.Workload.Same && !s.copied() && s.Workload.Target.Revision == s.pinned() {
			return intentCancel // what was taken up is what the primary runs
		}
	case flaggerv1.CanaryPhasePromoting:
		if s.Status.FailedChecks >= s.Plan.Threshold {
			return intentRollback
		}
	default: // at rest nothing is carried out
	}
	return ""
}

// rollback records that the release is going to be taken back, and why.
func (e *edit) rollback(why string) *edit {
	if e.s.Pruned {
		e.status.FailedChecks = max(e.status.FailedChecks, e.s.Plan.Threshold) // the one intent that such a status can hold
	}
	return e.intend(intentRollback, why)
}

// takeBack returns to the revision that was promoted before: its template first, where a promotion had begun, then the
// traffic, as far as the primary carries it, then the pods. Traffic never goes to a primary without a pod while the canary
// has one.
func takeBack(s Snapshot) Decision {
	effects := standing(s)
	if s.restoring() {
		effects = append(effects, RestoreTemplate{ID: s.restoreID()})
	} else {
		effects = append(effects, ConfigsRestored{ID: s.copyID()})
	}
	if primary := s.Workload.Primary; primary.Found && primary.Replicas == 0 && s.exposed() && s.Workload.Target.serves() {
		effects = append(effects, PrimaryUpFromZero{}) // somebody took its pods away, and nobody else would bring them back
	}
	gates := release.Look(s, primaryServes, primaryEndpointsAtOnce)
	if s.stranded() {
		return rollbackFailed(s, gates, effects)
	}
	if s.retained() > 0 {
		return rollBackInPart(s, gates, effects)
	}
	if gates.Verdict() != release.Pass {
		return hold(s, gates, effects...)
	}
	switch {
	case s.leaks():
		return forgetDrain(s, effects)
	case s.exposed() && !s.left():
		e := s.edit().effect(effects...).effect(RouteIs{}).stamp(release.StampDrain, release.StampLeft).recordThreshold()
		e.taken()
		e.forgetCookie()
		return e.done(gates)
	}
	gates = append(gates, release.Look(s, drained)...)
	if gates.Verdict() != release.Pass {
		return hold(s, gates, effects...)
	}
	e := s.edit().effect(effects...).effect(ScalerPaused{Paused: true}, DownToZero{})
	if !s.left() {
		e.tell(s.threshold()...)
	}
	if s.intent() == intentCancel {
		e.phase(flaggerv1.CanaryPhaseSucceeded)
		e.zero()
		e.settle()
		e.serin.Promoted, e.serin.Unfinished = e.serin.Revision, nil
		return e.done(gates)
	}
	return e.fail(s.serin().Reason).done(gates)
}

// restoring is true when the primary has, or had, the template that is being taken back.
func (s *Snapshot) restoring() bool {
	return s.Status.Phase == flaggerv1.CanaryPhasePromoting || s.copied() || s.Workload.Primary.ID == s.restoreID()
}

// left is true when the traffic was taken off the canary, and the drain began. A pruned status says so by its weight alone:
// as long as that is not 0, the moment at which it was written is not the moment at which the traffic left.
func (s *Snapshot) left() bool { return s.serin().DrainUntil != nil }

// leaks is true when the traffic was taken off the canary and somebody has put it back.
func (s *Snapshot) leaks() bool {
	return (s.left() || s.handing()) && s.readable() && (s.Route.Canary > 0 || s.Route.Mirrored)
}

// handing is true, where the status is pruned, from when a workload that is taken over was to lose its requests. The one
// thing that such a status can say it with is a revision, which it has none of before.
func (s *Snapshot) handing() bool {
	return s.Pruned && s.Status.Phase == flaggerv1.CanaryPhaseInitializing && s.Status.LastAppliedSpec != ""
}

// forgetDrain says that a drain has to begin again, before the traffic is taken off again: a crash after that must not
// find the moment of the drain before.
func forgetDrain(s Snapshot, effects []release.Effect) Decision {
	e := s.edit().effect(effects...)
	e.serin.DrainUntil = nil
	if s.handing() {
		e.status.LastAppliedSpec = ""
	}
	return e.done(nil)
}

// unnoticed is true when the canary has users that the status does not know of, because somebody else sent them there.
// What was noticed less than half a drain ago counts as known; where the status is pruned, the weight is what it knows.
func (s *Snapshot) unnoticed() bool {
	last := s.serin().LastTraffic
	known := last != nil && s.Now.Before(last.Add(s.Plan.Drain/2)) && !s.Pruned
	return s.live() > 0 && s.Status.CanaryWeight == 0 && s.Plan.Drain > 0 && !known
}

// notice writes down that there are users, before they are taken away: a crash after that must not forget the drain.
func (s *Snapshot) notice() Decision {
	e := s.copy() // what blocks it, if anything does, blocks it still
	if s.Pruned {
		e.status.CanaryWeight = s.live()
	}
	return e.stamp(release.StampLeft).done(nil)
}

// deserted is true when users are sent to a target that has no pods, and the primary could answer them. A process that did
// not know yet that another one leads may have done that after the rollback; see docs/adr/0004.
func (s *Snapshot) deserted() bool {
	target := s.Workload.Target
	return s.readable() && s.Route.Canary > 0 && s.Plan.scales() && target.Found && target.gone() && s.primaryCarries()
}

// rescued is what was decided for a release at rest, but that such users go to the primary. Nothing else holds a weight at
// rest.
func rescued(s Snapshot, d Decision) Decision {
	if !s.deserted() || slices.ContainsFunc(d.Effects, takesOff) {
		return d
	}
	d.Effects = append(d.Effects, RouteIs{})
	d.Events = append(d.Events, release.Event{Type: release.Warning, Message: fmt.Sprintf(
		"Routing all traffic of %s to primary: %d%% went to %s, which has no pods", s.Plan.full(), s.Route.Canary, s.Plan.workload())})
	return d
}

// taken records, where the status is pruned, that the canary has no traffic any more, and with it the moment.
func (e *edit) taken() {
	if e.s.Pruned {
		e.status.CanaryWeight = 0
	}
}

// takesOff is true of the effect that leaves the canary without users.
func takesOff(effect release.Effect) bool {
	route, ok := effect.(RouteIs)
	return ok && route.Canary == 0
}

// primaryServes holds the traffic where it is while the primary could not answer a single request, and the canary can. It
// holds the part that the primary cannot carry where the traffic can return in parts.
func primaryServes(s Snapshot) release.Gate {
	primary, target := s.Workload.Primary, s.Workload.Target
	restoring := s.restoring()
	switch {
	case restoring && primary.ID != s.restoreID():
		return release.WaitsFor("primary-restored", release.ByCluster, s.Plan.primary()+" gets back the template it had before")
	case restoring && !primary.Ready && target.serves():
		return release.WaitsFor("primary-restored", release.ByCluster, s.primaryMessage())
	case s.retained() > 0 && s.carriers() > 0:
		return release.WaitsFor("primary-serves", release.ByCluster, s.retainedMessage())
	case s.exposed() && !s.primaryStands() && target.serves():
		return release.WaitsFor("primary-serves", release.ByCluster, s.primaryMessage()+": the canary keeps serving until it is")
	default:
		return release.Passes("primary-serves", pods(primary))
	}
}

// stranded is true when another revision came while there is nothing to go back to: Kubernetes gave the primary up.
func (s *Snapshot) stranded() bool {
	primary := s.Workload.Primary
	replaced := s.Workload.Target.Found && s.Workload.Target.Revision != s.pinned()
	back := !s.restoring() || primary.ID == s.restoreID()
	return replaced && back && (s.exposed() || s.restoring()) && primary.Found && primary.Exceeded && !s.primaryStands()
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
		e.unfinished(s.pinned(), s.Status.LastAppliedSpec)
	case !s.orphaned():
		e.unfinished(s.promoted(), s.Status.LastPromotedSpec)
	}
	return e.forsaken(s.live(), "Rollback failed").done(gates)
}

// threshold is told when failed checks, and nothing else, take the release back.
func (s *Snapshot) threshold() []release.Event {
	if s.Status.FailedChecks < s.Plan.Threshold || s.serin().Intent != "" || s.intent() == intentCancel {
		return nil
	}
	return []release.Event{{
		Type: release.Warning, Message: fmt.Sprintf("Rolling back %s failed checks threshold reached %d", s.Plan.full(), s.Status.FailedChecks),
		Alert: &release.Alert{Severity: release.Error, Message: fmt.Sprintf("Failed checks threshold reached %d", s.Status.FailedChecks), Cause: s.lastFailure()},
	}}
}

// lastFailure is what the last failed check found, as the gates say that were written with its verdict; empty where the
// stored definition drops them.
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

// fail ends a release that was taken back. Every way into Failed sends exactly one error alert that names the cause:
// threshold and deadline sent theirs with the rollback, what people asked for is told here.
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
