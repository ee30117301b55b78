package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// recordDuration returns the status with the record of how long a release takes, and how it ends.
func recordDuration(f facts, s argov1.RolloutStatus) argov1.RolloutStatus {
	retemplated := f.Status.CurrentPodHash != "" && f.Status.CurrentPodHash != f.Hash
	rollback, rollsBack := rollbackKind(f, s)
	d := s.Duration.DeepCopy()
	if retemplated && !rollsBack && running(d) {
		d = concluded(f, d, argov1.CompletionSuperseded)
	}
	if !running(d) && durationStarts(f, s) {
		d = &argov1.RolloutDuration{RolloutStartedAt: timestamp(f)}
	}
	if running(d) {
		if retemplated && rollsBack {
			d.CompletionStatus = &rollback
		}
		d = continued(f, s, withManualPause(f, d, heldByUser(f, s)))
	}
	s.Duration = d
	return s
}

// continued returns the record of a release that is in progress, or ends now.
func continued(f facts, s argov1.RolloutStatus, d *argov1.RolloutDuration) *argov1.RolloutDuration {
	if s.Abort {
		return concluded(f, d, argov1.CompletionAborted)
	}
	if !promoted(s) {
		return d
	}
	if d.CompletionStatus == nil {
		d.CompletionStatus = new(argov1.CompletionPromoted)
		if f.Status.PromoteFull {
			d.CompletionStatus = new(argov1.CompletionFastPromoted)
		}
	}
	if f.new.Available >= f.replicas() {
		return concluded(f, d, *d.CompletionStatus)
	}
	return d
}

// running reports whether a record has begun and not ended.
func running(d *argov1.RolloutDuration) bool {
	return d != nil && d.RolloutStartedAt != nil && d.FinishedAt == nil
}

// durationStarts reports whether a record begins if none is in progress: with a new template or steps, or where the
// user retries what was aborted; unless nothing is to be done.
func durationStarts(f facts, s argov1.RolloutStatus) bool {
	retried := f.Status.AbortedAt != nil && !s.Abort
	if f.Status.CurrentPodHash == "" {
		return true
	}
	if s.Abort || !f.changed() && !retried {
		return false
	}
	return retried || !promoted(s) || f.new.Available < f.replicas() // after a crash a retry may be over when it is noticed
}

// rollbackKind returns the completion status of a release that returns to an earlier revision; false: it does not
// return to one.
func rollbackKind(f facts, s argov1.RolloutStatus) (argov1.CompletionStatus, bool) {
	switch {
	case promoted(s), f.inWindow, fastRollback(f):
		return argov1.CompletionFastRolledBack, true
	case f.distinct() && f.new.Created.Before(f.stable.Created):
		return argov1.CompletionRolledBack, true
	default:
		return "", false
	}
}

func concluded(f facts, d *argov1.RolloutDuration, status argov1.CompletionStatus) *argov1.RolloutDuration {
	d = withManualPause(f, d, false)
	d.CompletionStatus, d.FinishedAt = &status, timestamp(f)
	return d
}

func timestamp(f facts) *metav1.Time { return &metav1.Time{Time: f.Now} }

// withManualPause returns a record with the time during which only the user could continue the release.
func withManualPause(f facts, d *argov1.RolloutDuration, held bool) *argov1.RolloutDuration {
	d = d.DeepCopy()
	switch {
	case held && d.ManualPauseStartedAt == nil:
		d.ManualPauseStartedAt = timestamp(f)
	case !held && d.ManualPauseStartedAt != nil:
		paused := int64(f.Now.Sub(d.ManualPauseStartedAt.Time) / time.Second)
		d.TotalManualPauseDurationSeconds = new(value(d.TotalManualPauseDurationSeconds, 0) + max(paused, 0))
		d.ManualPauseStartedAt = nil
	}
	return d
}

// heldByUser reports whether only the user can continue a release.
func heldByUser(f facts, s argov1.RolloutStatus) bool {
	if f.Spec.Paused {
		return true
	}
	for _, c := range s.PauseConditions {
		switch c.Reason {
		case argov1.PauseReasonInconclusiveAnalysis, argov1.PauseReasonInconclusiveExperiment:
			return true
		case argov1.PauseReasonCanaryPauseStep:
			if step, ok := pods.StepAt(f.steps(), s.CurrentStepIndex); ok && step.Pause != nil && indefinite(*step.Pause) {
				return true
			}
		case argov1.PauseReasonBlueGreenPause:
			if b := f.Spec.Strategy.BlueGreen; b != nil && !value(b.AutoPromotionEnabled, true) {
				return true
			}
		}
	}
	return false
}
