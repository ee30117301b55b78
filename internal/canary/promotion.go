package canary

import (
	"cmp"
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// startPromotion copies the analysed template to the primary.
func startPromotion(e *statusEdit, gates release.Gates) Decision {
	s := e.snapshot
	e.addEffects(CopyTemplate{Revision: s.pinnedRevision(), ID: s.promotionCopyID()}).enterPhase(flaggerv1.CanaryPhasePromoting)
	e.recordApproval()
	e.serin.Window = nil
	e.analyzed = true
	return e.addStamps(release.StampSince).addEvents(templateCopyEvent(s)).decision(gates)
}

func templateCopyEvent(s Snapshot) release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Copying %s template spec to %s", s.Plan.targetName(), s.Plan.primaryName())}
}

// continuePromotion waits for the rolling update of the primary, then returns the traffic to it.
func continuePromotion(s Snapshot) Decision {
	switch {
	case s.statusFromOtherController():
		return adoptRun(s)
	case s.isReverting():
		return continueRollback(s)
	case s.hasCommand(CommandAbort):
		return rollBackOnCommand(s)
	}
	effects := append(steadyStateEffects(s, ScalerExists{Update: true}), scaleUpPrimary(s)...)
	conditions := []gate{primaryPromoted, primaryEndpointsForReturn, canaryReady}
	replaced := s.Workload.Target.Revision != s.pinnedRevision()
	if replaced || isResumedPromotion(s) {
		// A new revision of the target must not receive more traffic. After a failed promotion there is no rollback from the
		// template of the primary, whether the canary is ready or not.
		conditions = conditions[:2]
	}
	gates := release.EvaluateGates(s, conditions...)
	canary := gates.Named(canaryReadyGate)
	switch first := gates.First(); {
	case first == nil:
	case first.Name == primaryReadyGate && first.Verdict == release.Fail && s.Workload.Target.isReachable():
		return failPromotion(s, gates, effects)
	case canary != nil && canary.Verdict == release.Fail:
		return awaitCanaryReady(s, release.Gates{*canary}, effects)
	case first.Name == primaryReadyGate && first.Verdict == release.Fail:
		return awaitPrimaryOrFail(s, gates, effects)
	default:
		return keepStatus(s, gates, effects...)
	}
	live := s.currentWeight()
	// A canary without pods, after a failed promotion, must not receive traffic by a route that has been deleted meanwhile.
	atOnce := !s.Plan.HasRouter || s.Plan.PromotionStep == 0 || s.routeHasOtherMatches() || s.previousProviderRoutes()
	if atOnce || live == 0 || replaced || !s.Workload.Target.isReachable() {
		e := s.edit().addEffects(effects...)
		if s.Plan.HasRouter {
			e.addEvents(release.Event{Type: release.Normal, Message: "Routing all traffic to primary", Phase: string(flaggerv1.CanaryPhasePromoting)})
		}
		e.addEffects(trafficEnded(s)...)
		return startFinalising(e, gates)
	}
	if live < s.Status.CanaryWeight {
		// The step was taken, and the process stopped before it wrote the status.
		e := s.edit().addEffects(effects...)
		e.status.CanaryWeight = live
		return e.startWindow().addEvents(primaryWeightEvent(s, live)).decision(gates)
	}
	gates = append(gates, release.EvaluateGates(s, windowElapsed)...)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	weight := max(live-s.Plan.PromotionStep, 0)
	e := s.edit().addEffects(effects...).addEffects(TrafficWeight{Canary: weight}).addEvents(primaryWeightEvent(s, weight))
	if weight == 0 {
		return startFinalising(e, gates)
	}
	e.status.CanaryWeight = weight
	return e.startWindow().decision(gates)
}

// primaryPromoted is the gate primary-ready while the primary itself is updated: it is never lifted, and the deadline starts
// again with each progress of the primary.
func primaryPromoted(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	if primary.Found && primary.Ready && (primary.Available > 0 || !s.canaryHasTraffic()) {
		return release.NewPassingGate(primaryReadyGate, formatPods(primary))
	}
	message := primaryMessage(s)
	if primary.DeadlineExceeded {
		return release.NewFailedGate(primaryReadyGate, release.ByCluster, message)
	}
	return failsAtDeadline(s, release.NewWaitingGate(primaryReadyGate, release.ByCluster, message), primaryDeadline(s), promotionFails)
}

func primaryWeightEvent(s Snapshot, weight int) release.Event {
	return release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Advance %s primary weight %d", s.Plan.qualifiedName(), release.Total-weight), Phase: string(flaggerv1.CanaryPhasePromoting),
	}
}

// startFinalising enters the phase Finalising, in which the primary has all traffic.
func startFinalising(e *statusEdit, gates release.Gates) Decision {
	exposed := e.snapshot.canaryHasTraffic()
	e.enterPhase(flaggerv1.CanaryPhaseFinalising)
	e.status.CanaryWeight, e.status.Iterations = 0, 0
	e.serin.Window = nil
	e.addStamps(release.StampSince) // both workloads are ready now
	if exposed {
		e.addStamps(release.StampDrain, release.StampTrafficEnded)
		e.expireCookie()
	}
	return e.decision(gates)
}

// continueFinalising scales the target to zero when it no longer receives requests. There is no way back to the previous revision.
func continueFinalising(s Snapshot) Decision {
	if s.statusFromOtherController() {
		e := adoptOtherStatus(s.edit()).addStamps(release.StampSince, release.StampDrain)
		return e.addEvents(release.Event{
			Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s", s.Plan.targetName(), s.Status.Phase),
		}).decision(nil)
	}
	effects := append(steadyStateEffects(s), scaleUpPrimary(s)...)
	gates, wait, waits := awaitPrimaryForTraffic(s, effects)
	switch {
	case waits:
		return wait
	case s.canaryHasTraffic() && (s.Route.Problem == "" || s.previousProviderRoutes()):
		e := s.edit().addEffects(effects...).addEffects(trafficEnded(s)...).addStamps(release.StampDrain)
		e.status.CanaryWeight = 0
		return e.decision(gates)
	}
	gates = append(gates, release.EvaluateGates(s, drainElapsed)...)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().addEffects(effects...).addEffects(ScalerPaused{Paused: true}, TargetScaledToZero{}, ConfigsCollected{})
	if s.serin().Intent == intentFinish {
		return succeedRelease(e, intentSkipped).decision(gates)
	}
	return succeedRelease(e, intentCompleted).decision(gates)
}

// awaitPrimaryOrFail continues a promotion whose primary did not become ready in time. The promotion fails if the canary can
// serve instead; a canary that was scaled to zero is scaled up for that. If the target has a new revision, the promotion fails
// at once, so that the release of the new revision can start.
func awaitPrimaryOrFail(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	switch target := s.Workload.Target; {
	case s.Workload.Target.isReachable():
		return failPromotion(s, gates, effects)
	case target.Found && target.Revision != s.pinnedRevision():
		e := s.edit().addEffects(effects...).addEvents(promotionFailedEvents(s)...)
		e.recordUnfinishedPromotion(s.pinnedRevision(), s.Status.LastAppliedSpec)
		return failKeepingCanary(e, s.currentWeight(), "Promotion failed").decision(gates)
	case target.Found && target.Replicas == 0:
		return keepStatus(s, gates, append(effects, ScalerPaused{Paused: false}, TargetScaledUp{})...)
	default:
		return keepStatus(s, gates, effects...)
	}
}

// failPromotion routes all traffic to the canary, if it still is the analyzed revision: the primary has the new template and was
// not ready in time, so there is nothing to roll back to. The promotion continues when the primary is ready (see resumePromotion);
// otherwise the next revision repairs the primary.
func failPromotion(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...)
	weight := weightOfFailedPromotion(s)
	if s.Plan.HasRouter {
		e.addEffects(TrafficWeight{Canary: weight})
	}
	e.addEvents(promotionFailedEvents(s)...)
	e.recordUnfinishedPromotion(s.pinnedRevision(), s.Status.LastAppliedSpec)
	return failKeepingCanary(e, weight, "Promotion failed").decision(gates)
}

// weightOfFailedPromotion is the weight of the canary after a failed promotion. A target that has another revision by now, which
// was not analyzed, receives no more traffic than before while pods of the primary, with the analyzed revision, serve.
func weightOfFailedPromotion(s Snapshot) int {
	replaced := s.Workload.Target.Revision != s.pinnedRevision()
	switch {
	case !s.Plan.HasRouter:
		return 0
	case s.Plan.Strategy == Weighted && replaced && s.Workload.Primary.servingPods() > 0:
		return s.currentWeight()
	default:
		return release.Total
	}
}

// promotionFailedEvents returns the events about a failed promotion and its cause.
func promotionFailedEvents(s Snapshot) []release.Event {
	message := primaryMessage(withoutPodDetails(s))
	return []release.Event{
		{Type: release.Warning, Message: message},
		{
			Type: release.Warning, Message: fmt.Sprintf("Promotion of %s failed, primary not ready: %s", s.Plan.targetName(), message),
			Alert: &release.Alert{Severity: release.Error, Message: "Promotion failed, primary not ready: " + message},
		},
	}
}

// promoteWithoutAnalysis promotes without analysis: it updates the primary, then removes the traffic of the canary, if there is
// any. Only the analysis is skipped: the pods of the new revision must become ready. The phase remains Progressing, as in Flagger.
func promoteWithoutAnalysis(s Snapshot) Decision {
	if !s.primaryHasNewTemplate() {
		if d, ok := restartOnTargetChange(s); ok {
			return d // the target changed before its revision was promoted
		}
		effects := steadyStateEffects(s, ScalerPaused{Paused: false})
		if s.Workload.Target.Replicas == 0 {
			effects = append(effects, TargetScaledUp{})
		}
		gates := release.EvaluateGates(s, canaryReady)
		if gates.Verdict() != release.Pass {
			return awaitCanaryReady(s, gates, effects)
		}
		e := s.edit().addEffects(effects...).addEffects(CopyTemplate{Revision: s.pinnedRevision(), ID: s.promotionCopyID()}).addStamps(release.StampSince)
		if s.serin().Intent == "" {
			e.recordIntent(intentSkip, reasonSkip)
		}
		return e.addEvents(templateCopyEvent(s)).decision(gates)
	}
	effects := append(steadyStateEffects(s, ScalerExists{Update: true}), scaleUpPrimary(s)...)
	gates, wait, waits := awaitPrimaryForTraffic(s, effects)
	if waits {
		return wait
	}
	// The intent is recorded before the stored configuration of the previous revision is deleted: from then on, nothing restores it.
	e := s.edit().addEffects(effects...).recordIntent(intentFinish, cmp.Or(s.serin().Reason, reasonSkip))
	if s.canaryHasTraffic() {
		e.addEffects(trafficEnded(s)...).addStamps(release.StampDrain, release.StampTrafficEnded)
		e.status.CanaryWeight = 0
		e.expireCookie()
	}
	return e.decision(gates)
}

// awaitPrimaryForTraffic returns the gates before the primary receives all traffic. It waits, with the decision, until they pass and
// the drain of a canary that regained traffic is cleared.
func awaitPrimaryForTraffic(s Snapshot, effects []release.Effect) (gates release.Gates, wait Decision, waits bool) {
	gates = release.EvaluateGates(s, primaryPromoted, primaryEndpointsForReturn)
	switch first := gates.First(); {
	case first != nil && first.Verdict == release.Fail:
		return gates, awaitPrimaryOrFail(s, gates, effects), true
	case first != nil:
		return gates, keepStatus(s, gates, effects...), true
	case s.canaryRegainedTraffic():
		return gates, clearDrain(s, effects), true
	default:
		return gates, Decision{}, false
	}
}
