package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// recordDuration returns the status with the record of the duration and the completion of the release.
func recordDuration(f facts, s argov1.RolloutStatus) argov1.RolloutStatus {
	templateChanged := f.Status.CurrentPodHash != "" && f.Status.CurrentPodHash != f.Hash
	rollback, rollsBack := rollbackCompletion(f, s)
	d := s.Duration.DeepCopy()
	if templateChanged && !rollsBack && isDurationRunning(d) {
		d = endDuration(f, d, argov1.CompletionSuperseded)
	}
	if !isDurationRunning(d) && shouldStartDuration(f, s) {
		d = &argov1.RolloutDuration{RolloutStartedAt: currentTime(f)}
	}
	if isDurationRunning(d) {
		if templateChanged && rollsBack {
			d.CompletionStatus = &rollback
		}
		d = continueDuration(f, s, withManualPause(f, d, isPausedByUser(f, s)))
	}
	s.Duration = d
	return s
}

// continueDuration returns the record of a release that is in progress or ends now.
func continueDuration(f facts, s argov1.RolloutStatus, d *argov1.RolloutDuration) *argov1.RolloutDuration {
	if s.Abort {
		return endDuration(f, d, argov1.CompletionAborted)
	}
	if !isPromoted(s) {
		return d
	}
	if d.CompletionStatus == nil {
		d.CompletionStatus = new(argov1.CompletionPromoted)
		if f.Status.PromoteFull {
			d.CompletionStatus = new(argov1.CompletionFastPromoted)
		}
	}
	if f.new.Available >= f.replicas() {
		return endDuration(f, d, *d.CompletionStatus)
	}
	return d
}

// isDurationRunning reports whether a record has begun and not ended.
func isDurationRunning(d *argov1.RolloutDuration) bool {
	return d != nil && d.RolloutStartedAt != nil && d.FinishedAt == nil
}

// shouldStartDuration reports whether a new record starts if none is in progress: when the template or the steps have
// changed, or when the user retries an aborted release; but not if the Rollout is already in its desired state.
func shouldStartDuration(f facts, s argov1.RolloutStatus) bool {
	retried := f.Status.AbortedAt != nil && !s.Abort
	if f.Status.CurrentPodHash == "" {
		return true
	}
	if s.Abort || !f.templateOrStepsChanged() && !retried {
		return false
	}
	return retried || !isPromoted(s) || f.new.Available < f.replicas() // after a crash of Serin, a retry may already be complete
}

// rollbackCompletion returns the completion status of a release that returns to an earlier revision; false: this
// release does not.
func rollbackCompletion(f facts, s argov1.RolloutStatus) (argov1.CompletionStatus, bool) {
	switch {
	case isPromoted(s), f.inRollbackWindow, isFastRollback(f):
		return argov1.CompletionFastRolledBack, true
	case f.hasDistinctStable() && f.new.Created.Before(f.stable.Created):
		return argov1.CompletionRolledBack, true
	default:
		return "", false
	}
}

func endDuration(f facts, d *argov1.RolloutDuration, status argov1.CompletionStatus) *argov1.RolloutDuration {
	d = withManualPause(f, d, false)
	d.CompletionStatus, d.FinishedAt = &status, currentTime(f)
	return d
}

func currentTime(f facts) *metav1.Time { return &metav1.Time{Time: f.Now} }

// withManualPause returns a record with the time during which only the user could continue the release.
func withManualPause(f facts, d *argov1.RolloutDuration, paused bool) *argov1.RolloutDuration {
	d = d.DeepCopy()
	switch {
	case paused && d.ManualPauseStartedAt == nil:
		d.ManualPauseStartedAt = currentTime(f)
	case !paused && d.ManualPauseStartedAt != nil:
		paused := int64(f.Now.Sub(d.ManualPauseStartedAt.Time) / time.Second)
		d.TotalManualPauseDurationSeconds = new(valueOr(d.TotalManualPauseDurationSeconds, 0) + max(paused, 0))
		d.ManualPauseStartedAt = nil
	}
	return d
}

// isPausedByUser reports whether only the user can continue a release.
func isPausedByUser(f facts, s argov1.RolloutStatus) bool {
	if f.Spec.Paused {
		return true
	}
	for _, c := range s.PauseConditions {
		switch c.Reason {
		case argov1.PauseReasonInconclusiveAnalysis, argov1.PauseReasonInconclusiveExperiment:
			return true
		case argov1.PauseReasonCanaryPauseStep:
			if step, ok := pods.StepAt(f.steps(), s.CurrentStepIndex); ok && step.Pause != nil && isIndefinite(*step.Pause) {
				return true
			}
		case argov1.PauseReasonBlueGreenPause:
			if b := f.Spec.Strategy.BlueGreen; b != nil && !valueOr(b.AutoPromotionEnabled, true) {
				return true
			}
		}
	}
	return false
}
