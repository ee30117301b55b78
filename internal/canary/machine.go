package canary

import (
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Next decides what this Canary needs now. It is total: it also returns a decision for a snapshot that no healthy cluster
// produces.
func Next(s Snapshot) Decision {
	if s.OtherController.Acts() {
		return decideWithOtherController(s)
	}
	return fillInDecision(s, decide(s))
}

// decideWithOtherController decides while there is evidence that another controller acts on this Canary. Nothing is started,
// advanced or promoted. A release that Serin started is still observed and still rolled back: even if the evidence is wrong,
// users must not remain on a broken revision because of it. A Flagger that really takes over the release writes a status without
// status.serin; from then on only Flagger acts on it.
func decideWithOtherController(s Snapshot) Decision {
	if s.Deleting || s.Plan.Suspended || !IsOwnRelease(s.Status) {
		return cedeToOtherController(s)
	}
	alone := s
	alone.OtherController = OtherController{}
	d, ok := limitToRollback(alone, decide(alone))
	if !ok {
		return cedeToOtherController(s)
	}
	return withOtherController(s, fillInDecision(alone, d))
}

// fillInDecision records and reports what applies to a decision of every phase: workloads that are not ready, services that do
// not respond, settings that the user should correct, the history of releases, and the conditions for generic tools.
func fillInDecision(s Snapshot, d Decision) Decision {
	return withReadyConditions(s, withHistory(s, withNotices(s, withUnansweredCondition(s, withUnreadiness(s, d)))))
}

// decide reads like the manual: an impossible status, deletion, suspension, blocking problems, then the phase.
func decide(s Snapshot) Decision {
	if d, ok := sanitizeStatus(s); ok && (s.Deleting || !s.Plan.Suspended) {
		return d
	}
	switch {
	case s.Deleting && s.Finalizer && s.TargetConflict == "":
		return finalizeDeletion(s)
	case s.Deleting && s.Finalizer:
		return removeFinalizerOnly(s)
	case s.Deleting:
		return keepStatus(s, nil) // the garbage collector deletes the objects that it owned
	case s.Plan.Suspended:
		return suspendedDecision(s)
	case s.Status.Phase == "":
		e := s.edit().enterPhase(flaggerv1.CanaryPhaseInitializing)
		e.status.LastAppliedSpec, e.serin.Shape = "", "" // no release has begun, even if the status contains one
		return e.decision(nil)
	case s.NextTarget != "" && !s.Workload.Target.Found:
		return abandonFormerTarget(s)
	}
	if gates := blockingReasons(s); len(gates) > 0 {
		if d, ok := continueBlockedRelease(s, gates); ok {
			return d
		}
		return blockedDecision(s, gates)
	}
	if deadlineMustRestart(s) {
		return s.edit().addStamps(release.StampSince).decision(nil)
	}
	if s.targetReplaced() && (isIdle(s.Status.Phase) || s.Status.Phase == flaggerv1.CanaryPhaseWaiting) {
		return replaceTarget(s)
	}
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseInitializing:
		if targetRestored(s) {
			return restoreTarget(s)
		}
		return initialise(s)
	case flaggerv1.CanaryPhaseWaiting:
		switch {
		case promotionCompletable(s):
			return withdrawTraffic(s)
		case primaryBecameReady(s):
			return recordPrimary(s)
		case s.NextTarget != "":
			return awaitFormerTarget(s)
		}
		return withTrafficRescue(s, awaitStartApproval(s))
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
		return continueRelease(s)
	case flaggerv1.CanaryPhasePromoting:
		return continuePromotion(s)
	case flaggerv1.CanaryPhaseFinalising:
		return continueFinalising(s)
	default: // idle: Initialized, Succeeded, Failed, and phases that only a newer version of Serin writes
		return withTrafficRescue(s, withUnavailableSources(s, reconcileIdle(s)))
	}
}

// suspendedDecision has no effects. The start of an open window is unchanged, so that the window is evaluated at once when the
// Canary is resumed. Deadlines are paused.
func suspendedDecision(s Snapshot) Decision {
	gate := release.NewWaitingGate("suspended", release.ByUser, "spec.suspend is true: set it to false to resume the Canary")
	gate.Events = []release.Event{{Type: release.Normal, Message: "skipping canary run as object is suspended", Persistent: true}}
	return stopDeadline(s, keepStatus(s, release.Gates{gate}))
}
