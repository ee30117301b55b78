package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// An unfinished promotion is one whose primary was not ready in time. The canary serves until the primary can.

// promotionResumable reports whether a failed promotion can continue: the primary is ready with the analysed revision.
func promotionResumable(s Snapshot) bool {
	if !primaryHasAnalysedTemplate(s) || !s.Workload.Primary.Ready || s.Workload.Primary.Available == 0 && s.Plan.canScaleTarget() {
		return false
	}
	return primaryEndpoints(s).Verdict == release.Pass
}

// primaryHasAnalysedTemplate reports whether the primary still has the template of a failed promotion. If the target has another
// template by now, only the ID of the promotion identifies it.
func primaryHasAnalysedTemplate(s Snapshot) bool {
	if s.Status.Phase != flaggerv1.CanaryPhaseFailed || !s.primaryUnpromoted() || !s.Workload.Primary.Found {
		return false
	}
	if s.Workload.Target.Revision == s.pinnedRevision() {
		return s.Workload.SameTemplate
	}
	return s.primaryHasNewTemplate()
}

// rolledBackToUnpromoted reports whether a later run of the revision whose promotion had failed was rolled back: the traffic
// returned to the primary, which has that revision and was never promoted. That run remains failed; only the revision of the
// primary is recorded.
func rolledBackToUnpromoted(s Snapshot) bool {
	switch {
	case s.serin().Unfinished == nil || s.Status.CanaryWeight > 0:
		return false
	case !s.Plan.HasRouter: // the primary always has the traffic, and only a failed promotion leaves the canary its pods
		return !s.Workload.Target.Found || s.Workload.Target.Replicas == 0
	default:
		return s.isRouteObserved() && s.currentWeight() == 0
	}
}

// resumePromotion continues a failed promotion where it stopped: nothing is analysed again, and the primary keeps its pods.
func resumePromotion(s Snapshot, why string) Decision {
	e := s.edit().addEffects(steadyStateEffects(s)...).enterPhase(flaggerv1.CanaryPhasePromoting).addStamps(release.StampSince)
	if s.hasCommand(CommandRetry) {
		e.serin.Command = s.Command
	}
	return e.addEvents(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Resuming the promotion of %s: %s", s.Plan.targetName(), why), Phase: string(flaggerv1.CanaryPhasePromoting),
	}).decision(nil)
}

// isResumedPromotion reports whether the promotion in progress failed before.
func isResumedPromotion(s Snapshot) bool {
	unfinished := s.serin().Unfinished
	return unfinished != nil && unfinished.Revision == s.pinnedRevision()
}

// promotionCompletable reports whether, after a failed promotion or rollback, traffic is still routed to a target that has
// another revision by now, although the primary could serve it.
func promotionCompletable(s Snapshot) bool {
	target := s.Workload.Target
	return s.primaryUnpromoted() && s.isRouteObserved() && s.currentWeight() > 0 && target.Found && target.Revision != s.pinnedRevision() && s.primaryReachable()
}

// withdrawTraffic routes the traffic of a replaced target to the primary before the release of the new revision starts, so that this
// revision, too, receives its traffic step by step.
func withdrawTraffic(s Snapshot) Decision {
	e := s.edit().addEffects(steadyStateEffects(s)...).addEffects(trafficEnded(s)...).addStamps(release.StampTrafficEnded)
	e.status.CanaryWeight = 0
	e.expireCookie()
	recordRepairedPrimary(e)
	return e.addEvents(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Routing all traffic of %s to primary: the revision of %s changed after the analysis", s.Plan.qualifiedName(), s.Plan.targetName()),
	}).decision(nil)
}

// inheritsTraffic reports whether a run has the traffic of the previous revision, because no other revision could serve it.
func inheritsTraffic(s Snapshot) bool {
	unfinished := s.serin().Unfinished
	return unfinished != nil && unfinished.Inherited
}

// withdrawInheritedTraffic routes inherited traffic to the primary as soon as the primary can serve it, and restarts the analysis
// from the first step.
func withdrawInheritedTraffic(s Snapshot) Decision {
	e := s.edit().addEffects(trafficEnded(s)...).addEffects(ConfigsRestored{ID: s.promotionCopyID()})
	recordRepairedPrimary(e)
	e.resetCounters()
	beginRun(e)
	e.enterPhase(flaggerv1.CanaryPhaseProgressing).addStamps(release.StampSince, release.StampTrafficEnded)
	e.expireCookie()
	return e.addEvents(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Routing all traffic of %s to primary, which can serve again. Restarting analysis for %s", s.Plan.qualifiedName(), s.Plan.targetName()),
	}).decision(nil)
}

// primaryBecameReady reports whether a primary that was not ready in time has become ready, while the next revision is analysed
// or waits for approval. Until the status records the revision of the primary, a user who reverts to it would have it analysed
// again. A run that inherited traffic returns it first, see withdrawInheritedTraffic.
func primaryBecameReady(s Snapshot) bool {
	primary := s.Workload.Primary
	return s.primaryUnpromoted() && s.serin().Unfinished != nil && !inheritsTraffic(s) && !s.primaryHasNewTemplate() && primary.Ready && primary.canServe()
}

// recordPrimary records the revision of a primary that became ready late.
func recordPrimary(s Snapshot) Decision {
	e := s.edit().addEffects(steadyStateEffects(s)...)
	recordRepairedPrimary(e)
	return e.decision(nil)
}
