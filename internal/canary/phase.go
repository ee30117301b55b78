package canary

import (
	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// IsActivePhase reports whether a phase is that of an initialization, a release or a deletion in progress.
func IsActivePhase(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case "", flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed:
		return false
	default:
		return true
	}
}

// hasDeadline reports whether a deadline may be running in a phase.
func hasDeadline(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		return true
	default:
		return false
	}
}

func resultOf(phase flaggerv1.CanaryPhase) release.Result {
	switch phase {
	case flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded:
		return release.Promoted
	case flaggerv1.CanaryPhaseFailed:
		return release.RolledBack
	default: // in progress
		return ""
	}
}

func isIdle(phase flaggerv1.CanaryPhase) bool { return resultOf(phase) != "" }

// promotedCondition returns status and message of the condition Promoted, as Flagger has them.
func promotedCondition(phase flaggerv1.CanaryPhase, kind string) (corev1.ConditionStatus, string) {
	switch phase {
	case flaggerv1.CanaryPhaseInitialized:
		return corev1.ConditionTrue, kind + " initialization completed."
	case flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseWaitingPromotion:
		return corev1.ConditionUnknown, "Waiting for approval."
	case flaggerv1.CanaryPhaseProgressing:
		return corev1.ConditionUnknown, "New revision detected, progressing canary analysis."
	case flaggerv1.CanaryPhasePromoting:
		return corev1.ConditionUnknown, "Canary analysis completed, starting primary rolling update."
	case flaggerv1.CanaryPhaseFinalising:
		return corev1.ConditionUnknown, "Canary analysis completed, routing all traffic to primary."
	case flaggerv1.CanaryPhaseSucceeded:
		return corev1.ConditionTrue, "Canary analysis completed successfully, promotion finished."
	case flaggerv1.CanaryPhaseFailed:
		return corev1.ConditionFalse, "Canary analysis failed, " + kind + " scaled to zero."
	default: // Initializing, Terminating, and phases that only a newer Serin writes
		return corev1.ConditionUnknown, "New " + kind + " detected, starting initialization."
	}
}
