package canary

import (
	"fmt"
	"slices"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// mustRollBack reports whether traffic returns to the previous revision, or the release is cancelled.
func (s *Snapshot) mustRollBack() bool {
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
	gates := release.EvaluateGates(s, primaryCanTakeTrafficBack, primaryEndpointsForRollback)
	if s.rollbackImpossible() {
		return failRollback(s, gates, effects)
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
		e.addEvents(thresholdEvents(s)...)
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

// primaryCanTakeTrafficBack delays the return of the traffic while the primary cannot serve any request and the canary can. Where the traffic
// can return in parts, it delays the part that the primary cannot carry.
func primaryCanTakeTrafficBack(s Snapshot) release.Gate {
	primary, target := s.Workload.Primary, s.Workload.Target
	restoring := s.primaryHasRolledBackTemplate()
	switch {
	case restoring && primary.ID != s.restoreID():
		return release.NewWaitingGate("primary-restored", release.ByCluster, "restoring the previous template of "+s.Plan.primaryName())
	case restoring && !primary.Ready && target.canServe():
		return release.NewWaitingGate("primary-restored", release.ByCluster, primaryMessage(s))
	case s.retainedWeight() > 0 && s.Workload.Primary.servingPods() > 0:
		return release.NewWaitingGate("primary-serves", release.ByCluster, retainedWeightMessage(s))
	case s.canaryHasTraffic() && !s.primaryCanServe() && target.canServe():
		return release.NewWaitingGate("primary-serves", release.ByCluster, primaryMessage(s)+": the canary continues to serve until the primary is ready")
	default:
		return release.NewPassingGate("primary-serves", formatPods(primary))
	}
}

// rollbackImpossible reports whether there is nothing to roll back to, because the primary exceeded its deadline, and the
// target has another revision by now, which can repair the primary.
func (s *Snapshot) rollbackImpossible() bool {
	primary := s.Workload.Primary
	replaced := s.Workload.Target.Found && s.Workload.Target.Revision != s.pinnedRevision()
	restored := !s.primaryHasRolledBackTemplate() || primary.ID == s.restoreID()
	return replaced && restored && (s.canaryHasTraffic() || s.primaryHasRolledBackTemplate()) && primary.Found && primary.DeadlineExceeded && !s.primaryCanServe()
}

// failRollback leaves the route unchanged, like failPromotion: the new revision of the target can repair the primary, and its
// release could not start while the previous one waits for a primary that does not become ready.
func failRollback(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	message := primaryMessage(withoutPodDetails(s))
	e := s.edit().addEffects(effects...).addEvents(thresholdEvents(s)...).addEvents(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Rollback of %s failed, primary not ready: %s", s.Plan.targetName(), message),
		Alert: &release.Alert{Severity: release.Error, Message: "Rollback failed, primary not ready: " + message},
	})
	switch {
	case s.Workload.Primary.ID == s.promotionCopyID():
		e.recordUnfinishedPromotion(s.pinnedRevision(), s.Status.LastAppliedSpec)
	case !s.primaryUnpromoted():
		e.recordUnfinishedPromotion(s.promotedRevision(), s.Status.LastPromotedSpec)
	}
	return failKeepingCanary(e, s.currentWeight(), "Rollback failed").decision(gates)
}

// thresholdEvents returns the event about a release that is rolled back because of failed checks alone; none for another
// rollback.
func thresholdEvents(s Snapshot) []release.Event {
	if s.Status.FailedChecks < s.Plan.Threshold || s.serin().Intent != "" {
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

// failRelease ends a release that was rolled back. Every transition to Failed sends exactly one error alert that names the
// cause: the threshold and the deadline send theirs when the rollback starts, a rollback that the user requested sends it here.
func failRelease(e *statusEdit, why string) *statusEdit {
	s := e.snapshot
	waiting := s.Status.Phase == flaggerv1.CanaryPhaseWaiting
	alerted := !waiting && (s.serin().Intent == intentRollback && !s.requestedByUser() || len(thresholdEvents(s)) > 0)
	e.enterPhase(flaggerv1.CanaryPhaseFailed)
	e.ending = release.EndingFailed
	recordRepairedPrimary(e)
	e.resetCounters()
	if waiting {
		e.recordAppliedRevision()
		e.status.CanaryWeight = s.currentWeight() // the release moved no traffic
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
