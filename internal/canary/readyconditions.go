package canary

import (
	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// withReadyConditions sets the conditions from which generic tools, such as Flux and kubectl wait, learn whether a release is in
// progress or failed: Ready, Reconciling and Stalled, with the meaning that kstatus defines. They follow from the phase, the other
// conditions, and the gate for which a new revision waits. Only a change of the state or its reason causes a write, not one of the
// message; and an idle Canary that an earlier version or Flagger wrote gets them with its next release.
func withReadyConditions(s Snapshot, d Decision) Decision {
	waiting := waitBeforeStart(s, d)
	summary := readySummary(d.Status, s.Plan, waiting)
	unchanged := len(s.Status.Conditions) == len(d.Status.Conditions) && len(changedConditions(s.Status, d.Status)) == 0
	if unchanged && d.Status.Phase == s.Status.Phase {
		written := findCondition(d.Status, flaggerv1.ConditionReady)
		switch {
		case s.Deleting, written == nil && waiting == nil:
			return d
		case written != nil && written.Status == summary.Status && written.Reason == summary.Reason:
			return d
		}
		d.Wake = s.Now
	}
	e := &statusEdit{snapshot: s, status: *d.Status.DeepCopy()}
	for _, condition := range []struct {
		name string
		set  bool
	}{
		{flaggerv1.ConditionReconciling, summary.Status == corev1.ConditionUnknown},
		{flaggerv1.ConditionStalled, summary.Status == corev1.ConditionFalse},
	} {
		if !condition.set {
			e.dropCondition(condition.name)
			continue
		}
		e.setCondition(flaggerv1.CanaryCondition{Type: condition.name, Status: corev1.ConditionTrue, Reason: summary.Reason, Message: summary.Message})
	}
	e.setCondition(summary)
	d.Status = e.status
	return d
}

// waitBeforeStart returns the gate for which a new revision waits before its release starts; nil: none waits, or it waits for an
// approval in the phase for that. Without it, tools would take a revision that is not even deployed for a successful one.
func waitBeforeStart(s Snapshot, d Decision) *release.Gate {
	first := d.Gates.First()
	waitsForApproval := d.Status.Phase == flaggerv1.CanaryPhaseWaiting
	switch {
	case first == nil, s.Deleting, !isIdle(d.Status.Phase) && !waitsForApproval, isHookGate(first, flaggerv1.PostRolloutHook):
		return nil
	case s.Plan.Suspended && !hasNewRevision(s), waitsForApproval && (first.Opener != release.ByUser || isHookGate(first, flaggerv1.ConfirmRolloutHook)):
		return nil
	default:
		return first
	}
}

// hasNewRevision reports whether the target of an idle Canary has a revision that was not released. It is unknown while the target
// has a problem.
func hasNewRevision(s Snapshot) bool {
	target := s.Workload.Target
	return target.Found && s.Workload.Problem == "" && target.Revision != s.pinnedRevision() && target.Revision != s.promotedRevision()
}

// readySummary returns the condition Ready for a status: true after a success, false if the user has to act or the last release
// failed, unknown while Serin changes something or a new revision waits, for the gate waiting.
func readySummary(status flaggerv1.CanaryStatus, plan Plan, waiting *release.Gate) flaggerv1.CanaryCondition {
	ready := flaggerv1.CanaryCondition{Type: flaggerv1.ConditionReady, Status: corev1.ConditionUnknown, Reason: string(status.Phase)}
	if promoted := findCondition(status, flaggerv1.ConditionPromoted); promoted != nil {
		ready.Message = promoted.Message
	}
	blocked := findCondition(status, flaggerv1.ConditionBlocked)
	switch {
	case blocked != nil:
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, blocked.Reason, blocked.Message
	case waiting != nil:
		ready.Reason, ready.Message = conditionReason(waiting.Name), waiting.Message
		if waiting.Opener == release.ByUser && !plan.Suspended {
			ready.Status = corev1.ConditionFalse
		}
	case status.Phase == flaggerv1.CanaryPhaseInitialized, status.Phase == flaggerv1.CanaryPhaseSucceeded:
		ready.Status = corev1.ConditionTrue
	case status.Phase == flaggerv1.CanaryPhaseFailed:
		ready.Status = corev1.ConditionFalse
		_, usual := promotedCondition(status.Phase, plan.Kind)
		own := status.Serin
		if ready.Message == usual && own != nil && len(own.History) > 0 && own.History[0].Cause != nil { // else it describes the cause
			ready.Message += " Cause: " + own.History[0].Cause.Message + "."
		}
	}
	return ready
}
