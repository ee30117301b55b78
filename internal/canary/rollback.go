package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// rollBackOnCommand rolls back a release at the user's command.
func rollBackOnCommand(s Snapshot) Decision {
	e := s.edit()
	e.serin.Command = s.Command
	return e.recordIntent(intentRollback, reasonAbort).addEvents(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Rolling back %s aborted by command", s.Plan.qualifiedName()),
	}).decision(nil)
}

// awaitCanaryReady waits for the canary, or rolls back when its deadline has passed.
func awaitCanaryReady(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	if first == nil || first.Name != canaryReadyGate && first.Name != canaryEndpointsGate || first.Verdict != release.Fail {
		return keepStatus(s, gates, effects...)
	}
	message := first.Message
	if first.Name == canaryReadyGate {
		message = canaryMessage(withoutPodDetails(s))
	}
	return s.edit().addEffects(effects...).recordIntent(intentRollback, first.Message).addEvents(
		release.Event{Type: release.Warning, Message: message},
		release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Rolling back %s progress deadline exceeded %s", s.Plan.qualifiedName(), first.Message),
			Alert: &release.Alert{Severity: release.Error, Message: "Progress deadline exceeded " + first.Message},
		},
	).decision(gates)
}

// continueRollback returns to the previously promoted revision: first it restores the template of the primary, if a promotion had
// begun, then it returns the traffic, as far as the primary can carry it, then it scales the target to zero. Traffic is never
// routed to a primary without pods while the canary has pods.
func continueRollback(s Snapshot) Decision { return rollBack(s, steadyStateEffects(s)) }

// rollBack is continueRollback with those effects in addition to the ones of the rollback.
func rollBack(s Snapshot, effects []release.Effect) Decision {
	if s.primaryHasRolledBackTemplate() {
		effects = append(effects, RestoreTemplate{ID: s.restoreID()})
	} else {
		effects = append(effects, ConfigsRestored{ID: s.promotionCopyID()})
	}
	effects = append(effects, scaleUpPrimary(s)...)
	gates := release.EvaluateGates(s, primaryCanTakeTrafficBack, primaryEndpointsForRollback)
	if rollbackImpossible(s) {
		return failRollback(s, gates, effects)
	}
	if retainedWeight(s) > 0 {
		return rollBackInPart(s, gates, effects)
	}
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	switch {
	case s.canaryRegainedTraffic():
		return clearDrain(s, effects)
	case (s.canaryHasTraffic() || mayHaveRequestsInFlight(s)) && !s.drainStarted():
		e := s.edit().addEffects(effects...).addEffects(trafficEnded(s)...).addStamps(release.StampDrain, release.StampTrafficEnded)
		recordThreshold(e)
		e.expireCookie()
		return e.decision(gates)
	}
	gates = append(gates, release.EvaluateGates(s, drainElapsed)...)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().addEffects(effects...).addEffects(ScalerPaused{Paused: true}, TargetScaledToZero{})
	if !s.primaryUnpromoted() { // otherwise the promotion may continue, and an abort of it restores the stored content
		e.addEffects(ConfigsCollected{})
	}
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

// primaryCanTakeTrafficBack delays the return of the traffic while the primary cannot serve any request and the canary can. Where
// the traffic can return in parts, it delays the part that the primary cannot carry.
func primaryCanTakeTrafficBack(s Snapshot) release.Gate {
	primary, target := s.Workload.Primary, s.Workload.Target
	restoring := s.primaryHasRolledBackTemplate()
	switch {
	case restoring && primary.ID != s.restoreID():
		return release.NewWaitingGate("primary-restored", release.ByCluster, "restoring the previous template of "+s.Plan.primaryName())
	case restoring && !primary.Ready && target.canServe():
		return release.NewWaitingGate("primary-restored", release.ByCluster, primaryMessage(s))
	case retainedWeight(s) > 0 && s.Workload.Primary.servingPods() > 0:
		return release.NewWaitingGate("primary-serves", release.ByCluster, retainedWeightMessage(s))
	case s.canaryHasTraffic() && !s.primaryCanServe() && target.canServe():
		return release.NewWaitingGate("primary-serves", release.ByCluster, primaryMessage(s)+": the canary continues to serve until the primary is ready")
	default:
		return release.NewPassingGate("primary-serves", formatPods(primary))
	}
}

// rollbackImpossible reports whether there is nothing to roll back to, because the primary exceeded its deadline, and the
// target has another revision by now, which can repair the primary.
func rollbackImpossible(s Snapshot) bool {
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
