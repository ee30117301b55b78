package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Deadline is what a progress deadline is judged by.
type Deadline struct {
	Now  time.Time
	Spec argov1.RolloutSpec
	// Status in the making, with the conditions as they were.
	Status argov1.RolloutStatus
	// Waits is true while an old ReplicaSet waits out its delay.
	Waits bool
}

// At is the moment at which a release without progress counts as timed out; zero while it cannot.
//
// What waits for something that has a time of its own does not count: pauses, analyses, experiments, delays.
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
		step, _ := stepAt(canary.Steps, d.Status.CurrentStepIndex)
		if step.Pause != nil || step.Analysis != nil || step.Experiment != nil {
			return time.Time{}
		}
	}
	length := time.Duration(value(d.Spec.ProgressDeadlineSeconds, defaultProgressDeadlineSeconds)) * time.Second
	return progress.LastUpdateTime.Add(length)
}

// Exceeded is true of a release that has timed out, and has not gone on since.
func (d Deadline) Exceeded() bool {
	at := d.At()
	if at.IsZero() {
		return false
	}
	return conditions(d.Status.Conditions).of(argov1.RolloutProgressing).Reason == reasonDeadlineExceeded || at.Before(d.Now)
}
