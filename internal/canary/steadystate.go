package canary

import (
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// steadyStateEffects are the effects that apply in every reconciliation once the Canary is initialised.
func steadyStateEffects(s Snapshot, more ...release.Effect) []release.Effect {
	effects := make([]release.Effect, 0, 8)
	if s.Plan.RevertOnDeletion != s.Finalizer {
		effects = append(effects, HasFinalizer{Present: s.Plan.RevertOnDeletion})
	}
	if !s.Workload.Primary.Found {
		effects = append(effects, recreatePrimary(s))
	}
	effects = append(effects, ServicesExist{Apex: true})
	if s.Workload.Primary.Found {
		effects = append(effects, ScalerExists{})
	}
	missing := !s.Route.Found && s.Route.Problem == ""
	if s.Plan.HasRouter && (missing || !s.routeHasOtherMatches()) {
		route := RouteMaintained{Canary: s.currentWeight(), Mirror: s.Route.Mirrored, Observed: s.isRouteObserved()}
		idle := !IsActivePhase(s.Status.Phase) && !s.primaryUnpromoted()
		if !s.isRouteObserved() && (s.drainStarted() || idle || !s.Workload.Target.isReachable() || s.routeHasOtherMatches()) {
			// A new route sends no traffic to a workload that is scaled down, idle, or unreachable, nor with a weight of other requests.
			route.Canary = 0
		}
		effects = append(effects, route)
	}
	return append(effects, more...)
}

// recreatePrimary creates a deleted primary again, with the promoted revision or the one that is being promoted. After a failed
// promotion the primary receives the revision of the target, which serves.
func recreatePrimary(s Snapshot) release.Effect {
	revision := s.Workload.Target.Revision
	promoting := s.Status.Phase == flaggerv1.CanaryPhasePromoting || IsFinalising(s.Status)
	completing := promoting && s.serin().Intent != intentRollback
	switch {
	case completing && revision == s.pinnedRevision(), s.primaryUnpromoted() && targetServes(s) && revision == s.pinnedRevision():
		return PrimaryExists{Revision: revision, ID: s.promotionCopyID()} // with the configuration of the promotion, which continues
	case !promoting && (revision == s.promotedRevision() || s.primaryUnpromoted() && targetServes(s)):
		return PrimaryExists{Revision: revision, ID: s.copyIDFor("recreated", revision)}
	case completing:
		return recreatePrimaryFromHistory(s, s.pinnedRevision(), s.Status.LastAppliedSpec, "")
	case s.primaryUnpromoted():
		return recreatePrimaryFromHistory(s, "", "", "") // it never ran a promoted revision
	default:
		// The primary may have received the configuration of this run, which is reverted.
		return recreatePrimaryFromHistory(s, s.promotedRevision(), s.Status.LastPromotedSpec, s.promotionCopyID())
	}
}

// targetServes reports whether the target has traffic after a failed promotion.
func targetServes(s Snapshot) bool { return s.currentWeight() > 0 || !s.Plan.HasRouter }

// recreatePrimaryFromHistory recreates the primary from its history. Only the hash is known of a revision that Flagger released.
func recreatePrimaryFromHistory(s Snapshot, revision, hash, revertedCopyID string) release.Effect {
	id := s.copyIDFor("recalled", revision)
	if strings.HasPrefix(revision, flaggerRevisionPrefix) {
		revision = ""
	}
	return PrimaryRecreated{Revision: revision, FlaggerHash: hash, RevertedCopyID: revertedCopyID, ID: id}
}
