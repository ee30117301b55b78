package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// What becomes of a release whose primary was not ready in time: the canary serves, until the primary can.

// promotionResumable is true when a promotion that failed can go on: the primary is ready with what was analysed.
func (s *Snapshot) promotionResumable() bool {
	if !s.primaryHasAnalysedTemplate() || !s.Workload.Primary.Ready || s.Workload.Primary.Available == 0 && s.Plan.canScaleTarget() {
		return false
	}
	return primaryEndpoints(*s).Verdict == release.Pass
}

// primaryHasAnalysedTemplate is true when a promotion failed and the primary still has the template that was promoted. Where the target
// has another one by now, only the mark of the promotion tells.
func (s *Snapshot) primaryHasAnalysedTemplate() bool {
	if s.Status.Phase != flaggerv1.CanaryPhaseFailed || !s.primaryUnpromoted() || !s.Workload.Primary.Found {
		return false
	}
	if s.Workload.Target.Revision == s.pinnedRevision() {
		return s.Workload.SameTemplate
	}
	return s.primaryHasTemplate()
}

// rolledBackToUnpromoted reports whether a later run of the revision whose promotion had failed was rolled back: users returned
// to the primary, which has that revision and was never promoted. That run stays failed; only what the primary runs is recorded.
func (s *Snapshot) rolledBackToUnpromoted() bool {
	return s.serin().Unfinished != nil && s.Status.CanaryWeight == 0 && s.routeReadable() && s.liveWeight() == 0
}

// resumePromotion goes on with a promotion that failed, where it stopped: nothing is analysed again, and the primary keeps its pods.
func resumePromotion(s Snapshot, why string) Decision {
	e := s.edit().addEffects(steadyStateEffects(s)...).enterPhase(flaggerv1.CanaryPhasePromoting).addStamps(release.StampSince)
	if s.hasCommand("retry") {
		e.serin.Command = s.Command
	}
	return e.addEvents(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Resuming the promotion of %s: %s", s.Plan.targetName(), why), Phase: string(flaggerv1.CanaryPhasePromoting),
	}).decision(nil)
}

// isResumedPromotion is true of a promotion that goes on after it failed.
func (s *Snapshot) isResumedPromotion() bool {
	unfinished := s.serin().Unfinished
	return unfinished != nil && unfinished.Revision == s.pinnedRevision()
}

// promotionCompletable is true when, after a promotion or a rollback that failed, users are sent to a target that has another
// revision by now, although the primary could answer them.
func (s *Snapshot) promotionCompletable() bool {
	target := s.Workload.Target
	return s.primaryUnpromoted() && s.routeReadable() && s.liveWeight() > 0 && target.Found && target.Revision != s.pinnedRevision() && s.primaryReachable()
}

// withdrawTraffic sends those users to the primary before anything is asked about the new revision: it gets its users step by
// step, like any other one.
func withdrawTraffic(s Snapshot) Decision {
	e := s.edit().addEffects(steadyStateEffects(s)...).addEffects(TrafficWeight{}).addStamps(release.StampTrafficEnded)
	e.status.CanaryWeight = 0
	e.expireCookie()
	e.recordRepairedPrimary()
	return e.addEvents(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Routing all traffic of %s to primary: the revision of %s changed after the analysis", s.Plan.qualifiedName(), s.Plan.targetName()),
	}).decision(nil)
}

// inheritsTraffic is true while a run has the users of the revision before it, because no earlier one could serve them.
func (s *Snapshot) inheritsTraffic() bool {
	unfinished := s.serin().Unfinished
	return unfinished != nil && unfinished.Inherited
}

// withdrawInheritedTraffic takes the users that a revision has not earned away from it as soon as the primary can serve them, and
// begins its analysis anew, from the first step.
func withdrawInheritedTraffic(s Snapshot) Decision {
	e := s.edit().addEffects(TrafficWeight{}).addEffects(ConfigsRestored{ID: s.promotionCopyID()})
	e.recordRepairedPrimary()
	e.resetCounters()
	e.beginRun()
	e.enterPhase(flaggerv1.CanaryPhaseProgressing).addStamps(release.StampSince, release.StampTrafficEnded)
	e.expireCookie()
	return e.addEvents(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Routing all traffic of %s to primary, which can serve again. Restarting analysis for %s", s.Plan.qualifiedName(), s.Plan.targetName()),
	}).decision(nil)
}

// primaryBecameReady is true of a primary that was not ready in time with the revision that it was given, and is by now, while the next
// revision is analyzed or waits for its approval. Until the status says what it runs, a user who goes back to that revision would
// have it analyzed anew. A run that has the users of the revision before gives them back first, see disinherited.
func (s *Snapshot) primaryBecameReady() bool {
	primary := s.Workload.Primary
	return s.primaryUnpromoted() && s.serin().Unfinished != nil && !s.inheritsTraffic() && !s.primaryHasTemplate() && primary.Ready && primary.canServe()
}

// recordPrimary writes down what such a primary runs.
func recordPrimary(s Snapshot) Decision {
	e := s.edit().addEffects(steadyStateEffects(s)...)
	e.recordRepairedPrimary()
	return e.decision(nil)
}

// recordRepairedPrimary records what a primary runs that was not ready in time, once it is.
func (e *statusEdit) recordRepairedPrimary() {
	if !e.snapshot.primaryUnpromoted() || !e.snapshot.Workload.Primary.Ready || !e.snapshot.Workload.Primary.Found {
		return
	}
	if unfinished := e.serin.Unfinished; unfinished != nil {
		e.serin.Promoted, e.status.LastPromotedSpec, e.serin.Unfinished = unfinished.Revision, unfinished.Spec, nil
	}
}
