package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// duration keeps the record of how long a release takes, and how it ends.
func (e *edit) duration() {
	p, s := e.v, &e.status
	retemplated := p.Status.CurrentPodHash != "" && p.Status.CurrentPodHash != p.Hash
	how, back := e.rollback()
	if retemplated && !back && running(s.Duration) {
		e.conclude(argov1.CompletionSuperseded)
	}
	if !running(s.Duration) && e.starts() {
		s.Duration = &argov1.RolloutDuration{RolloutStartedAt: e.stamp()}
	}
	if !running(s.Duration) {
		return
	}
	s.Duration = s.Duration.DeepCopy()
	if retemplated && back {
		s.Duration.CompletionStatus = &how
	}
	e.countPause(e.heldByPerson())
	if s.Abort {
		e.conclude(argov1.CompletionAborted)
		return
	}
	if !promoted(*s) {
		return
	}
	if s.Duration.CompletionStatus == nil {
		s.Duration.CompletionStatus = new(argov1.CompletionPromoted)
		if p.Status.PromoteFull {
			s.Duration.CompletionStatus = new(argov1.CompletionFastPromoted)
		}
	}
	if p.new.Available >= p.replicas() {
		e.conclude(*s.Duration.CompletionStatus)
	}
}

// running is true of a record that has begun and not ended.
func running(d *argov1.RolloutDuration) bool {
	return d != nil && d.RolloutStartedAt != nil && d.FinishedAt == nil
}

// starts is true where a record begins if there is none under way: with a template or steps, or where a person tries again
// what was aborted; unless there is nothing to do.
func (e *edit) starts() bool {
	p, s := e.v, e.status
	retried := p.Status.AbortedAt != nil && !s.Abort
	first := p.Status.CurrentPodHash == ""
	if first {
		return true
	}
	if s.Abort || !p.changed() && !retried {
		return false
	}
	return retried || !promoted(s) || p.new.Available < p.replicas() // after a crash a retry may be over when it is noticed
}

// rollback is how a release ends that goes back to an earlier revision; false for one that does not.
func (e *edit) rollback() (argov1.CompletionStatus, bool) {
	p := e.v
	switch {
	case promoted(e.status), p.inWindow, p.returning():
		return argov1.CompletionFastRolledBack, true
	case p.distinct() && p.new.Created.Before(p.stable.Created):
		return argov1.CompletionRolledBack, true
	default:
		return "", false
	}
}

// conclude ends the record.
func (e *edit) conclude(how argov1.CompletionStatus) {
	e.status.Duration = e.status.Duration.DeepCopy()
	e.countPause(false)
	e.status.Duration.CompletionStatus, e.status.Duration.FinishedAt = &how, e.stamp()
}

func (e *edit) stamp() *metav1.Time { return &metav1.Time{Time: e.v.Now} }

// countPause counts the time for which a person holds a release.
func (e *edit) countPause(held bool) {
	d := e.status.Duration
	switch {
	case held && d.ManualPauseStartedAt == nil:
		d.ManualPauseStartedAt = e.stamp()
	case !held && d.ManualPauseStartedAt != nil:
		paused := int64(e.v.Now.Sub(d.ManualPauseStartedAt.Time) / time.Second)
		d.TotalManualPauseDurationSeconds = new(value(d.TotalManualPauseDurationSeconds, 0) + max(paused, 0))
		d.ManualPauseStartedAt = nil
	}
}

// heldByPerson is true while nobody but a person lets a release go on.
func (e *edit) heldByPerson() bool {
	p, s := e.v, e.status
	if p.Spec.Paused {
		return true
	}
	for _, c := range s.PauseConditions {
		switch c.Reason {
		case argov1.PauseReasonInconclusiveAnalysis, argov1.PauseReasonInconclusiveExperiment:
			return true
		case argov1.PauseReasonCanaryPauseStep:
			if step, ok := stepAt(p.steps(), s.CurrentStepIndex); ok && step.Pause != nil && indefinite(*step.Pause) {
				return true
			}
		case argov1.PauseReasonBlueGreenPause:
			if b := p.Spec.Strategy.BlueGreen; b != nil && !value(b.AutoPromotionEnabled, true) {
				return true
			}
		}
	}
	return false
}
