package canary

import flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"

// The intents: what was decided and is in progress.
const (
	intentRollback  = "rollback"  // return the traffic, scale the target to zero, then Failed
	intentCancel    = "cancel"    // the user reverted the target to the promoted revision
	intentSkip      = "skip"      // promote without analysis
	intentFinish    = "finish"    // the same, and the primary has the new revision, for good
	intentCompleted = "completed" // Succeeded; post-rollout hooks are pending
	intentSkipped   = "skipped"   // the same after a skipped analysis
	intentFailed    = "failed"    // Failed; post-rollout hooks are pending
)

// The reasons of rollbacks. The reason of a missed deadline is the message of its gate.
const (
	reasonHook   = "a webhook requested the rollback"
	reasonAbort  = "the release was aborted by command"
	reasonTarget = "spec.targetRef was changed"
	reasonChecks = "too many checks failed"
)

// The reasons of promotions without analysis.
const (
	reasonSkip    = "spec.skipAnalysis is true"
	reasonCommand = "the release was promoted by command"
)

// IsEndDecided reports whether the promotion or the rollback of a release was decided, so that no approval has an effect on it.
func IsEndDecided(status flaggerv1.CanaryStatus) bool {
	return status.Serin != nil && status.Serin.Intent != ""
}

// IsFinalising reports whether the primary has the new revision for good, so that only the target remains to be scaled down.
func IsFinalising(status flaggerv1.CanaryStatus) bool {
	return status.Phase == flaggerv1.CanaryPhaseFinalising || status.Serin != nil && status.Serin.Intent == intentFinish
}

// isEndIntent reports whether the release has ended, and its post-rollout hooks are pending.
func isEndIntent(intent string) bool {
	return intent == intentCompleted || intent == intentSkipped || intent == intentFailed
}

// hasReachedThreshold reports whether so many checks have failed that the release fails.
func (s *Snapshot) hasReachedThreshold() bool { return s.Status.FailedChecks >= s.Plan.Threshold }

// isReverting reports whether traffic returns to the previous revision, or the release is cancelled.
func (s *Snapshot) isReverting() bool {
	intent := s.serin().Intent
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
		return intent == "" && s.hasReachedThreshold() || intent == intentRollback || intent == intentCancel
	case flaggerv1.CanaryPhasePromoting:
		return intent == intentRollback
	default: // idle, or no release
		return false
	}
}
