package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// restartOnTargetChange cancels or restarts the run if the target or the shape of the plan changed during it, or the weight of the
// route is that of another shape; false: there is no reason.
func restartOnTargetChange(s Snapshot) (Decision, bool) {
	revision := s.Workload.Target.Revision
	reshaped := s.serin().Shape != "" && s.serin().Shape != s.Plan.runShape().String()
	if revision == s.pinnedRevision() && !reshaped && !s.routeHasOtherMatches() {
		return Decision{}, false
	}
	e := s.edit()
	if revision == s.promotedRevision() {
		e.recordAppliedRevision()
		return e.recordIntent(intentCancel, "the target was reverted to the promoted revision").addEvents(cancelledEvent(s)).decision(nil), true
	}
	observed := s.serin().Started || s.canaryHasTraffic() || s.previousProviderRoutes() || s.Status.Iterations > 0 || s.Status.FailedChecks > 0
	if !observed {
		// No query was sent and nothing was observed yet: the ConfigMap and the Deployment of one change arrive one after the other.
		e.addEffects(ConfigsRestored{ID: s.promotionCopyID()})
		e.resetCounters()
		beginRun(e)
		return e.addStamps(release.StampSince).decision(nil), true
	}
	// The next run would route other requests with the weight of this one, or lose the route of the previous provider.
	outdatedRoute := s.routeHasOtherMatches() || s.previousProviderRoutes()
	if outdatedRoute && !s.primaryCanServe() && s.Workload.Target.canServe() {
		return awaitPrimaryBeforeRestart(s)
	}
	if s.primaryCanServe() {
		// The traffic of the previous revision returns to the primary first, and the primary must be reachable for that.
		if gates := release.EvaluateGates(s, primaryEndpointsForRollback); gates.Verdict() != release.Pass {
			return keepStatus(s, gates, steadyStateEffects(s)...), true
		}
	}
	exposed := s.canaryHasTraffic() || reshaped && s.routingProvider() != ""
	possible := s.primaryReachable() || s.Workload.Primary.canServe() && !s.Workload.Target.isReachable()
	if exposed && (possible || outdatedRoute) {
		e.addEffects(TrafficWeight{Provider: s.routingProvider()})
	}
	e.addEffects(ConfigsRestored{ID: s.promotionCopyID()})
	e.resetCounters()
	beginRun(e)
	e.enterPhase(flaggerv1.CanaryPhaseProgressing)
	e.addStamps(release.StampSince)
	if exposed {
		e.addStamps(release.StampTrafficEnded)
		e.expireCookie()
	}
	return e.addEvents(release.Event{
		Type: release.Normal, Message: "New revision detected! Restarting analysis for " + s.Plan.targetName(),
	}).decision(nil), true
}

// awaitPrimaryBeforeRestart delays the restart until the primary can serve, which may never happen. The run pins the revision of the
// target meanwhile, and keeps its route, so that a promotion without analysis can repair the primary with that revision. This needs no
// restart: the promotion ends the traffic of that route. false: the analysis is skipped.
func awaitPrimaryBeforeRestart(s Snapshot) (Decision, bool) {
	switch {
	case s.Workload.Target.Revision != s.pinnedRevision():
		e := s.edit().addEffects(steadyStateEffects(s)...).addEffects(ConfigsRestored{ID: s.promotionCopyID()})
		e.resetCounters()
		beginRun(e)
		e.serin.Shape, e.serin.Started = s.serin().Shape, true
		e.enterPhase(flaggerv1.CanaryPhaseProgressing)
		return e.addStamps(release.StampSince).decision(nil), true
	case s.Plan.SkipAnalysis, s.serin().Intent == intentSkip:
		return Decision{}, false
	case s.hasCommand(CommandPromoteFull):
		e := s.edit()
		e.serin.Command = s.Command
		return skipAnalysisOnCommand(e).decision(nil), true
	}
	changed := "spec.provider"
	if s.routeHasOtherMatches() {
		changed = "spec.analysis.match"
	}
	return keepStatus(s, release.Gates{release.NewWaitingGate("primary-serves", release.ByCluster, fmt.Sprintf(
		"%s: the release restarts with the changed spec when the primary can serve. To release without it, undo the change of %s, or skip the analysis with serin promote --full",
		primaryMessage(s), changed,
	))}, steadyStateEffects(s)...), true
}

// skipAnalysisOnCommand records that the user promotes the revision of the run without further analysis.
func skipAnalysisOnCommand(e *statusEdit) *statusEdit {
	return e.recordIntent(intentSkip, reasonCommand).addEvents(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Promoting %s by command, without further analysis", e.snapshot.Plan.targetName()),
	})
}

func cancelledEvent(s Snapshot) release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Release of %s cancelled: the target was reverted to the promoted revision", s.Plan.targetName())}
}
