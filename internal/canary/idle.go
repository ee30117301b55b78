package canary

import (
	"fmt"
	"slices"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// reconcileIdle waits for a new revision. It maintains nothing that others may change in the meantime: no weight, no replicas, no
// template.
func reconcileIdle(s Snapshot) Decision {
	switch intent := s.serin().Intent; {
	case isEndIntent(intent):
		return callPostRolloutHooks(s)
	case intent == intentRollback, intent == intentCancel, intent == intentSkip, intent == intentFinish:
		// A user edited the phase: what was in progress ends.
		return s.edit().addEffects(steadyStateEffects(s)...).clearRunState().decision(nil)
	}
	if s.statusFromOtherController() {
		// Adoption: the current state is recorded in status.serin, and nothing starts.
		return adoptOtherStatus(s.edit().addEffects(steadyStateEffects(s)...)).decision(nil)
	}
	revision := s.Workload.Target.Revision
	retry := s.hasCommand(CommandRetry) && s.Status.Phase == flaggerv1.CanaryPhaseFailed && revision != s.promotedRevision()
	switch {
	case promotionResumable(s) && rolledBackToUnpromoted(s):
		return recordPrimary(s)
	case promotionResumable(s):
		return resumePromotion(s, s.Plan.primaryName()+" is ready")
	case retry && revision == s.pinnedRevision() && primaryHasAnalysedTemplate(s) && !s.Workload.Primary.DeadlineExceeded:
		return resumePromotion(s, "retried by command")
	case promotionCompletable(s):
		return withdrawTraffic(s)
	case s.NextTarget != "":
		return awaitFormerTarget(s)
	}
	if revision == s.pinnedRevision() && !retry {
		if s.serin().Queue != nil {
			// The user reverted to the revision that failed before.
			return s.edit().addEffects(steadyStateEffects(s)...).leaveQueue().decision(nil)
		}
		return keepStatus(s, nil, steadyStateEffects(s)...)
	}
	if revision == s.promotedRevision() {
		// The user reverted to the revision of the primary. The same new revision may be released again later.
		e := s.edit().addEffects(steadyStateEffects(s)...)
		e.recordAppliedRevision()
		return e.decision(nil)
	}
	return prepareRelease(s)
}

// withTrafficRescue routes all traffic to the primary if the target has no pods, in addition to the decision about an idle release.
// This is the only case in which Serin changes the weight of an idle release.
func withTrafficRescue(s Snapshot, d Decision) Decision {
	if !sendsTrafficToEmptyTarget(s) || slices.ContainsFunc(d.Effects, removesCanaryTraffic) {
		return d
	}
	d.Effects = append(d.Effects, TrafficWeight{})
	d.Events = append(d.Events, release.Event{Type: release.Warning, Message: fmt.Sprintf(
		"Routing all traffic of %s to primary: %d%% was routed to %s, which has no pods", s.Plan.qualifiedName(), s.Route.Canary, s.Plan.targetName(),
	)})
	return d
}

// sendsTrafficToEmptyTarget reports whether traffic is routed to a target without pods while the primary could serve it. A former
// leader that was suspended may have written such a route after the rollback; see docs/adr/0004.
func sendsTrafficToEmptyTarget(s Snapshot) bool {
	target := s.Workload.Target
	return s.isRouteObserved() && s.Route.Canary > 0 && s.Plan.canScaleTarget() && target.Found && target.isScaledToZero() && s.primaryReachable()
}
