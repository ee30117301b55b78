package canary

import (
	"slices"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// continueBlockedRelease observes a release in progress that is blocked, and rolls it back: users must not remain on a revision that
// fails, or that was aborted, until the problem is fixed. Nothing advances. Steady-state effects are left out, because the problem
// may be that they fail. The condition Blocked remains. false: there is nothing to observe and nothing to roll back.
func continueBlockedRelease(s Snapshot, gates release.Gates) (Decision, bool) {
	if s.TargetConflict != "" || !IsOwnRelease(s.Status) || !s.Workload.Target.Found {
		return Decision{}, false
	}
	unblocked := s
	unblocked.Status = s.edit().status
	d, ok := decideBlockedRelease(unblocked)
	if !ok {
		return Decision{}, false
	}
	blocked := withBlockedCondition(s, gates)
	if len(changedConditions(s.Status, blocked.Status)) > 0 {
		d.Wake = s.Now
	}
	if !blockedReleaseReverts(unblocked) { // a rollback includes them
		d.Effects = append(servicesRestored(unblocked), d.Effects...)
	}
	d.Gates, d.Events = slices.Concat(gates, d.Gates), slices.Concat(blocked.Events, d.Events)
	i := slices.IndexFunc(blocked.Status.Conditions, func(c flaggerv1.CanaryCondition) bool { return c.Type == flaggerv1.ConditionBlocked })
	at := min(i, len(d.Status.Conditions)) // where it was, so that the order does not change
	d.Status.Conditions = slices.Insert(slices.Clone(d.Status.Conditions), at, blocked.Status.Conditions[i])
	return d, true
}

// decideBlockedRelease decides about a blocked release without its problems. An invalid plan may lack what observation needs, and
// its threshold is none on which a rollback may be based.
func decideBlockedRelease(s Snapshot) (Decision, bool) {
	valid, intent := len(s.Plan.ValidationErrors) == 0, s.serin().Intent
	switch {
	case IsFinalising(s.Status):
		return Decision{}, false
	case blockedReleaseReverts(s):
		return rollBack(s, servicesRestored(s)), !rollbackImpossible(s)
	case s.hasCommand(CommandAbort):
		return rollBackOnCommand(s), true
	case s.NextTarget != "" && hasDeadline(s.Status.Phase) && !s.primaryHasNewTemplate():
		return rollBackFormerTarget(s), true
	case !s.canaryHasTraffic(), s.Status.Phase == flaggerv1.CanaryPhasePromoting, s.primaryHasNewTemplate():
		return Decision{}, false
	case hasUnreleasedRevision(s) && s.isRouteObserved() && s.primaryCanServe(): // its traffic returns
		return Decision{}, false
	case valid && intent == "" && !s.Plan.SkipAnalysis && s.currentWindow().open:
		return limitToRollback(s, evaluateWindow(s, nil))
	}
	switch ready := release.EvaluateGates(s, canaryReady); {
	case ready.Verdict() == release.Pass:
		return Decision{}, false
	case deadlineMustRestart(s): // the canary had no traffic until now, and nothing was changed in that time
		return s.edit().addStamps(release.StampSince).decision(nil), true
	default:
		return awaitCanaryReady(s, ready, nil), true
	}
}

// blockedReleaseReverts reports whether a blocked release is rolled back or cancelled, by a threshold of a valid plan or by what the
// status records.
func blockedReleaseReverts(s Snapshot) bool {
	return s.isReverting() && (len(s.Plan.ValidationErrors) == 0 || s.serin().Intent != "")
}

// servicesRestored returns the effect that restores the Services without which the users of a blocked release receive errors. The
// Service that clients call selects the primary again before a rollback removes the pods that it selects; otherwise that Service,
// which the problem may be about, is not needed.
func servicesRestored(s Snapshot) []release.Effect {
	switch {
	case blockedReleaseReverts(s) && targetReceivesApexTraffic(s):
		return []release.Effect{ServicesExist{Apex: true}}
	case s.canaryHasTraffic() && (s.Workload.Target.Endpoints.NoService || s.Workload.Primary.Endpoints.NoService) && len(s.Plan.ValidationErrors) == 0:
		return []release.Effect{ServicesExist{}}
	default:
		return nil
	}
}
