package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// ProgressDeadline is the input for the progress deadline.
type ProgressDeadline struct {
	Now  time.Time
	Spec argov1.RolloutSpec
	// Status under construction, with the previous conditions.
	Status argov1.RolloutStatus
	// ScaleDownPending is true while an old ReplicaSet waits for the end of its delay.
	ScaleDownPending bool
}

// Time returns the time at which a release without progress times out; zero: it cannot time out now.
//
// There is no deadline during pauses, analyses, experiments and delays, which have durations of their own. It starts again when a
// delay ends (scaleDownDelayEnds), or when the next step begins.
func (d ProgressDeadline) Time() time.Time {
	c := conditions(d.Status.Conditions)
	progress := c.find(argov1.RolloutProgressing)
	if progress == nil || progress.Reason == reasonAborted || progress.Reason == reasonPaused || d.ScaleDownPending || d.Status.Abort {
		return time.Time{}
	}
	if pause := c.find(argov1.RolloutPaused); pause != nil && pause.Status == conditionStatus(true) {
		return time.Time{}
	}
	if canary := d.Spec.Strategy.Canary; canary != nil {
		step, _ := pods.StepAt(canary.Steps, d.Status.CurrentStepIndex)
		if step.Pause != nil || step.Analysis != nil || step.Experiment != nil {
			return time.Time{}
		}
	}
	length := time.Duration(valueOr(d.Spec.ProgressDeadlineSeconds, defaultProgressDeadlineSeconds)) * time.Second
	return progress.LastUpdateTime.Add(length)
}

// IsExceeded reports whether a release has timed out, and has made no progress since.
func (d ProgressDeadline) IsExceeded() bool {
	at := d.Time()
	if at.IsZero() {
		return false
	}
	return conditions(d.Status.Conditions).find(argov1.RolloutProgressing).Reason == reasonDeadlineExceeded || at.Before(d.Now)
}
