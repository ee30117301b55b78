package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// Deadline is the input for the progress deadline.
type Deadline struct {
	Now  time.Time
	Spec argov1.RolloutSpec
	// Status in progress, with the previous conditions.
	Status argov1.RolloutStatus
	// Waits is true while an old ReplicaSet waits for the end of its delay.
	Waits bool
}

// At returns the time at which a release without progress times out; zero: it cannot time out now.
//
// There is no deadline during pauses, analyses, experiments and delays, which have durations of their own.
func (d Deadline) At() time.Time {
	c := conditions(d.Status.Conditions)
	progress := c.of(argov1.RolloutProgressing)
	if progress == nil || progress.Reason == reasonAborted || progress.Reason == reasonPaused || d.Waits || d.Status.Abort {
		return time.Time{}
	}
	if pause := c.of(argov1.RolloutPaused); pause != nil && pause.Status == truth(true) {
		return time.Time{}
	}
	if canary := d.Spec.Strategy.Canary; canary != nil {
		step, _ := pods.StepAt(canary.Steps, d.Status.CurrentStepIndex)
		if step.Pause != nil || step.Analysis != nil || step.Experiment != nil {
			return time.Time{}
		}
	}
	length := time.Duration(value(d.Spec.ProgressDeadlineSeconds, defaultProgressDeadlineSeconds)) * time.Second
	return progress.LastUpdateTime.Add(length)
}

// Exceeded reports whether a release has timed out, and has made no progress since.
func (d Deadline) Exceeded() bool {
	at := d.At()
	if at.IsZero() {
		return false
	}
	return conditions(d.Status.Conditions).of(argov1.RolloutProgressing).Reason == reasonDeadlineExceeded || at.Before(d.Now)
}
