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

// continueRollback returns to the previously promoted revision: first it restores the template of the primary, if a promotion had
// begun, then it returns the traffic, as far as the primary can carry it, then it scales the target to zero. Traffic is never
// routed to a primary without pods while the canary has pods.
func continueRollback(s Snapshot) Decision {
	effects := steadyStateEffects(s)
	if s.primaryHasRolledBackTemplate() {
		effects = append(effects, RestoreTemplate{ID: s.restoreID()})
	} else {
		effects = append(effects, ConfigsRestored{ID: s.promotionCopyID()})
	}
	if primary := s.Workload.Primary; primary.Found && primary.Replicas == 0 && s.canaryHasTraffic() && s.Workload.Target.canServe() {
		effects = append(effects, PrimaryScaledUp{}) // something scaled it to zero, and only Serin would scale it up again
	}
	gates := release.EvaluateGates(s, primaryServes, primaryEndpointsAtOnce)
	if s.rollbackImpossible() {
		return rollbackFailed(s, gates, effects)
	}
	if s.retainedWeight() > 0 {
		return rollBackInPart(s, gates, effects)
	}
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	switch {
	case s.trafficReturned():
		return clearDrain(s, effects)
	case s.canaryHasTraffic() && !s.drainStarted():
		e := s.edit().addEffects(effects...).addEffects(TrafficWeight{}).addStamps(release.StampDrain, release.StampTrafficEnded)
		recordThreshold(e)
		e.expireCookie()
		return e.decision(gates)
	}
	gates = append(gates, release.EvaluateGates(s, drainElapsed)...)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().addEffects(effects...).addEffects(ScalerPaused{Paused: true}, TargetScaledToZero{})
	if !s.drainStarted() {
		e.addEvents(thresholdEvent(s)...)
	}
	if s.serin().Intent == intentCancel {
		e.enterPhase(flaggerv1.CanaryPhaseSucceeded)
		e.resetCounters()
		e.clearRunState()
		e.serin.Promoted, e.serin.Unfinished = e.serin.Revision, nil
		return e.decision(gates)
	}
	return failRelease(e, s.serin().Reason).decision(gates)
}

// primaryHasRolledBackTemplate reports whether the primary has, or had, the template that is being rolled back.
func (s *Snapshot) primaryHasRolledBackTemplate() bool {
	return s.Status.Phase == flaggerv1.CanaryPhasePromoting || s.primaryHasTemplate() || s.Workload.Primary.ID == s.restoreID()
}

// drainStarted reports whether the canary lost its traffic and the drain delay began.
func (s *Snapshot) drainStarted() bool { return s.serin().DrainUntil != nil }

// trafficReturned reports whether the canary has traffic again after it lost it: a user changed the route.
func (s *Snapshot) trafficReturned() bool {
	return s.drainStarted() && s.routeReadable() && (s.Route.Canary > 0 || s.Route.Mirrored)
}

// clearDrain removes the previous drain from the status before the traffic moves again, so that a crash in between does not shorten
// the next drain.
func clearDrain(s Snapshot, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...)
	e.serin.DrainUntil = nil
	return e.decision(nil)
}

// hasUnrecordedTraffic reports whether the canary has traffic that the status does not record, because something else changed the
// route. Traffic that was recorded less than half a drain delay ago counts as recorded.
func (s *Snapshot) hasUnrecordedTraffic() bool {
	last := s.serin().LastTraffic
	known := last != nil && s.Now.Before(last.Add(s.Plan.Drain/2))
	return s.liveWeight() > 0 && s.Status.CanaryWeight == 0 && s.Plan.Drain > 0 && !known
}

// recordUnrecordedTraffic records that the canary has traffic, before that traffic is removed: a crash afterwards must not skip the
// drain.
func recordUnrecordedTraffic(s Snapshot) Decision {
	return s.editUnchanged().addStamps(release.StampTrafficEnded).decision(nil) // with the condition Blocked, if there is one
}

// sendsTrafficToEmptyTarget reports whether traffic is routed to a target without pods while the primary could serve it. A former
// leader that was suspended may have written such a route after the rollback; see docs/adr/0004.
func (s *Snapshot) sendsTrafficToEmptyTarget() bool {
	target := s.Workload.Target
	return s.routeReadable() && s.Route.Canary > 0 && s.Plan.canScaleTarget() && target.Found && target.isScaledToZero() && s.primaryReachable()
}

// withTrafficRescue adds to the decision about an idle release that such traffic moves to the primary. This is the only case in
// which Serin changes the weight of an idle release.
func withTrafficRescue(s Snapshot, d Decision) Decision {
	if !s.sendsTrafficToEmptyTarget() || slices.ContainsFunc(d.Effects, removesCanaryTraffic) {
		return d
	}
	d.Effects = append(d.Effects, TrafficWeight{})
	d.Events = append(d.Events, release.Event{Type: release.Warning, Message: fmt.Sprintf(
		"Routing all traffic of %s to primary: %d%% was routed to %s, which has no pods", s.Plan.qualifiedName(), s.Route.Canary, s.Plan.targetName(),
	)})
	return d
}

// removesCanaryTraffic reports whether an effect leaves the canary without traffic.
func removesCanaryTraffic(effect release.Effect) bool {
	route, ok := effect.(TrafficWeight)
	return ok && route.Canary == 0
}

// primaryServes delays the return of the traffic while the primary cannot serve any request and the canary can. Where the traffic
// can return in parts, it delays the part that the primary cannot carry.
func primaryServes(s Snapshot) release.Gate {
	primary, target := s.Workload.Primary, s.Workload.Target
	restoring := s.primaryHasRolledBackTemplate()
	switch {
	case restoring && primary.ID != s.restoreID():
		return release.NewWaitingGate("primary-restored", release.ByCluster, "restoring the previous template of "+s.Plan.primaryName())
	case restoring && !primary.Ready && target.canServe():
		return release.NewWaitingGate("primary-restored", release.ByCluster, primaryMessage(s))
	case s.retainedWeight() > 0 && s.Workload.Primary.servingPods() > 0:
		return release.NewWaitingGate("primary-serves", release.ByCluster, retainedMessage(s))
	case s.canaryHasTraffic() && !s.primaryCanServe() && target.canServe():
		return release.NewWaitingGate("primary-serves", release.ByCluster, primaryMessage(s)+": the canary continues to serve until the primary is ready")
	default:
		return release.NewPassingGate("primary-serves", formatPods(primary))
	}
}

// rollbackImpossible reports whether the target has another revision by now and there is nothing to roll back to, because the
// primary exceeded its deadline.
func (s *Snapshot) rollbackImpossible() bool {
	primary := s.Workload.Primary
	replaced := s.Workload.Target.Found && s.Workload.Target.Revision != s.pinnedRevision()
	back := !s.primaryHasRolledBackTemplate() || primary.ID == s.restoreID()
	return replaced && back && (s.canaryHasTraffic() || s.primaryHasRolledBackTemplate()) && primary.Found && primary.Exceeded && !s.primaryCanServe()
}

// rollbackFailed leaves the route unchanged, like promotionFailed: the new revision of the target can repair the primary, and its
// release could not start while the previous one waits for a primary that does not become ready.
func rollbackFailed(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	message := primaryMessage(withoutPodDetails(s))
	e := s.edit().addEffects(effects...).addEvents(thresholdEvent(s)...).addEvents(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Rollback of %s failed, primary not ready: %s", s.Plan.targetName(), message),
		Alert: &release.Alert{Severity: release.Error, Message: "Rollback failed, primary not ready: " + message},
	})
	switch {
	case s.Workload.Primary.ID == s.promotionCopyID():
		e.recordUnfinishedPromotion(s.pinnedRevision(), s.Status.LastAppliedSpec)
	case !s.primaryUnpromoted():
		e.recordUnfinishedPromotion(s.promotedRevision(), s.Status.LastPromotedSpec)
	}
	return failKeepingCanary(e, s.liveWeight(), "Rollback failed").decision(gates)
}

// thresholdEvent is the event about a release that is rolled back because of failed checks alone.
func thresholdEvent(s Snapshot) []release.Event {
	if s.Status.FailedChecks < s.Plan.Threshold || s.serin().Intent != "" || s.serin().Intent == intentCancel {
		return nil
	}
	return []release.Event{{
		Type: release.Warning, Message: fmt.Sprintf("Rolling back %s failed checks threshold reached %d", s.Plan.qualifiedName(), s.Status.FailedChecks),
		Alert: &release.Alert{Severity: release.Error, Message: fmt.Sprintf("Failed checks threshold reached %d", s.Status.FailedChecks), Cause: lastFailure(s)},
	}}
}

// lastFailure is the message of the last failed check, according to the gates in the status; empty if they contain none.
func lastFailure(s Snapshot) string {
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

// failRelease ends a release that was rolled back. Every transition to Failed sends exactly one error alert that names the cause: the
// threshold and the deadline send theirs when the rollback starts, a rollback that the user requested sends it here.
func failRelease(e *statusEdit, why string) *statusEdit {
	s := e.snapshot
	waiting := s.Status.Phase == flaggerv1.CanaryPhaseWaiting
	alerted := !waiting && (s.serin().Intent == intentRollback && !s.requestedByUser() || len(thresholdEvent(s)) > 0)
	e.enterPhase(flaggerv1.CanaryPhaseFailed)
	e.ending = release.EndingFailed
	recordRepairedPrimary(e)
	e.resetCounters()
	if waiting {
		e.recordAppliedRevision()
		e.status.CanaryWeight = s.liveWeight() // the release moved no traffic
	}
	e.clearRunState()
	event := release.Event{
		Type: release.Warning, Message: "Canary failed! Scaling down " + s.Plan.qualifiedName(), Phase: string(flaggerv1.CanaryPhaseFailed),
	}
	if !alerted {
		event.Alert = &release.Alert{Severity: release.Error, Message: "Canary failed: " + why}
	}
	return recordPostRolloutPending(e.addEvents(event), intentFailed)
}

// requestedByUser reports whether a webhook or a command, not the state of the canary, requested the rollback.
func (s *Snapshot) requestedByUser() bool {
	switch s.serin().Reason {
	case reasonHook, reasonAbort:
		return true
	default:
		return false
	}
}

// The reasons of rollbacks. The reason of a missed deadline is the message of its gate.
const (
	reasonHook   = "a webhook requested the rollback"
	reasonAbort  = "the release was aborted by command"
	reasonChecks = "too many checks failed"
)
