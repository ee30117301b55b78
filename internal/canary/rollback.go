package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// takeBack returns to the revision that was promoted before: its template first, where a promotion had begun, then the
// traffic, then the pods. Traffic never goes to a primary without a pod while the canary has one.
func takeBack(s Snapshot) Decision {
	effects := standing(s)
	if s.Status.Phase == flaggerv1.CanaryPhasePromoting {
		effects = append(effects, RestoreTemplate{ID: s.restoreID()})
	}
	var gates release.Gates
	if s.exposed() || s.Status.Phase == flaggerv1.CanaryPhasePromoting {
		gates = release.Look(s, primaryServes)
		if gates.Verdict() != release.Pass {
			return hold(s, gates, effects...)
		}
	}
	told := s.serin().DrainUntil != nil || s.Pruned && s.live() == 0 && !s.Route.Mirrored && s.Status.CanaryWeight > 0
	if s.exposed() && !told {
		e := s.edit().effect(effects...).tell(s.threshold()...).effect(RouteIs{}).stamp(release.StampDrain, release.StampLeft)
		e.forgetCookie()
		return e.done(gates)
	}
	gates = append(gates, release.Look(s, drained)...)
	if gates.Verdict() != release.Pass {
		return hold(s, gates, effects...)
	}
	e := s.edit().effect(effects...).effect(ScalerPaused{Paused: true}, DownToZero{})
	if !told {
		e.tell(s.threshold()...)
	}
	if s.serin().Intent == intentCancel {
		e.phase(flaggerv1.CanaryPhaseSucceeded)
		e.zero()
		e.settle()
		e.serin.Promoted = e.serin.Revision
		return e.done(gates)
	}
	return e.fail(s.serin().Reason).done(gates)
}

// primaryServes holds the traffic where it is while the primary could not answer a single request, and the canary can.
func primaryServes(s Snapshot) release.Gate {
	primary, target := s.Workload.Primary, s.Workload.Target
	if s.Status.Phase == flaggerv1.CanaryPhasePromoting && primary.ID != s.restoreID() {
		return release.WaitsFor("primary-restored", release.ByCluster, s.Plan.primary()+" gets back the template it had before")
	}
	if s.Status.Phase == flaggerv1.CanaryPhasePromoting && !primary.Ready && target.Available > 0 {
		return release.WaitsFor("primary-restored", release.ByCluster, s.primaryMessage())
	}
	if !primary.serves() && target.Available > 0 && primary.Replicas > 0 {
		return release.WaitsFor("primary-serves", release.ByCluster, s.primaryMessage()+": the canary keeps serving until it is")
	}
	return release.Passes("primary-serves", fmt.Sprintf("%d pods available", primary.Available))
}

// threshold is told when failed checks, and nothing else, take the release back.
func (s Snapshot) threshold() []release.Event {
	if s.Status.FailedChecks < s.Plan.Threshold || s.serin().Intent != "" {
		return nil
	}
	return []release.Event{{
		Type: release.Warning, Message: fmt.Sprintf("Rolling back %s failed checks threshold reached %d", s.Plan.full(), s.Status.FailedChecks),
		Alert: &release.Alert{Severity: release.Error, Message: fmt.Sprintf("Failed checks threshold reached %d", s.Status.FailedChecks)},
	}}
}

// fail ends a release that was taken back. Every way into Failed sends exactly one error alert that names the cause:
// threshold and deadline sent theirs with the rollback, what people asked for is told here.
func (e *edit) fail(why string) *edit {
	byDeadline := e.s.Status.Phase != flaggerv1.CanaryPhaseWaiting && e.s.serin().Intent == intentRollback && !e.s.byPerson()
	byThreshold := e.s.serin().Intent == "" && e.s.Status.FailedChecks >= e.s.Plan.Threshold
	waiting := e.s.Status.Phase == flaggerv1.CanaryPhaseWaiting
	e.phase(flaggerv1.CanaryPhaseFailed)
	e.zero()
	if waiting {
		e.applied()
	}
	e.settle()
	event := release.Event{
		Type: release.Warning, Message: "Canary failed! Scaling down " + e.s.Plan.full(), Phase: string(flaggerv1.CanaryPhaseFailed),
	}
	if !byDeadline && !byThreshold {
		event.Alert = &release.Alert{Severity: release.Error, Message: "Canary failed: " + why}
	}
	if len(e.s.Plan.hooks(flaggerv1.PostRolloutHook)) > 0 && !e.s.Pruned {
		e.serin.Intent = intentFailed
	}
	return e.tell(event)
}

// byPerson is true when a hook or a command, not the state of the canary, asked for the rollback.
func (s Snapshot) byPerson() bool {
	switch s.serin().Reason {
	case reasonHook, reasonAbort:
		return true
	default:
		return false
	}
}

// The reasons of rollbacks that people asked for.
const (
	reasonHook  = "a rollback was asked for"
	reasonAbort = "a person aborted the release"
)
