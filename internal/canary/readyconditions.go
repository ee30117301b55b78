package canary

import (
	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// withReadyConditions sets the conditions from which generic tools, such as Flux and kubectl wait, learn whether a release is in
// progress or failed: Ready, Reconciling and Stalled, with the meaning that kstatus defines. They follow from the phase and the
// other conditions, and never cause a write: an idle Canary that an earlier version or Flagger wrote gets them with its next
// release.
func withReadyConditions(s Snapshot, d Decision) Decision {
	unchanged := len(s.Status.Conditions) == len(d.Status.Conditions) && len(changedConditions(s.Status, d.Status)) == 0
	if unchanged && d.Status.Phase == s.Status.Phase {
		return d
	}
	e := &statusEdit{snapshot: s, status: *d.Status.DeepCopy()}
	summary := readySummary(e.status, s.Plan.Kind)
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

// readySummary returns the condition Ready for a status: true after a success, false if the user has to act or the last release
// failed, unknown while Serin changes something. kind is that of the target.
func readySummary(status flaggerv1.CanaryStatus, kind string) flaggerv1.CanaryCondition {
	ready := flaggerv1.CanaryCondition{Type: flaggerv1.ConditionReady, Status: corev1.ConditionUnknown, Reason: string(status.Phase)}
	if promoted := findCondition(status, flaggerv1.ConditionPromoted); promoted != nil {
		ready.Message = promoted.Message
	}
	blocked := findCondition(status, flaggerv1.ConditionBlocked)
	switch {
	case blocked != nil:
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, blocked.Reason, blocked.Message
	case status.Phase == flaggerv1.CanaryPhaseInitialized, status.Phase == flaggerv1.CanaryPhaseSucceeded:
		ready.Status = corev1.ConditionTrue
	case status.Phase == flaggerv1.CanaryPhaseFailed:
		ready.Status = corev1.ConditionFalse
		_, usual := promotedCondition(status.Phase, kind)
		own := status.Serin
		if ready.Message == usual && own != nil && len(own.History) > 0 && own.History[0].Cause != nil { // else it describes the cause
			ready.Message += " Cause: " + own.History[0].Cause.Message + "."
		}
	}
	return ready
}
