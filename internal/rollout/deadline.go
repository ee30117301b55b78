package rollout

import (
	"slices"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// progressDeadline is the input for the progress deadline.
type progressDeadline struct {
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
// delay ends (scaleDownDelayEnds), or when the next step begins. A promoted revision that is scaled to zero has none
// either: it waits for no pods to become available, and the retained ones are removed before the end of their delay.
func (d progressDeadline) Time() time.Time {
	c := conditions(d.Status.Conditions)
	progress := c.find(argov1.RolloutProgressing)
	if progress == nil || progress.Reason == reasonAborted || progress.Reason == reasonPaused || d.ScaleDownPending || d.Status.Abort {
		return time.Time{}
	}
	if pause := c.find(argov1.RolloutPaused); pause != nil && pause.Status == conditionStatus(true) {
		return time.Time{}
	}
	if isPromoted(d.Status) && valueOr(d.Spec.Replicas, 1) <= 0 {
		return time.Time{}
	}
	if canary := d.Spec.Strategy.Canary; canary != nil {
		step, _ := pods.StepAt(canary.Steps, d.Status.CurrentStepIndex)
		if step.Pause != nil || step.Analysis != nil || step.Experiment != nil {
			return time.Time{}
		}
	}
	if b := d.Status.BlueGreen; d.Spec.Strategy.BlueGreen != nil && (isRunning(b.PrePromotionAnalysisRunStatus) || isRunning(b.PostPromotionAnalysisRunStatus)) {
		return time.Time{}
	}
	length := time.Duration(valueOr(d.Spec.ProgressDeadlineSeconds, defaultProgressDeadlineSeconds)) * time.Second
	return progress.LastUpdateTime.Add(length)
}

// isRunning reports whether an analysis of a blue-green release has no result yet.
func isRunning(run *argov1.RolloutAnalysisRunStatus) bool {
	return run != nil && !run.Status.Completed()
}

// IsExceeded reports whether a release has timed out, and has made no progress since.
func (d progressDeadline) IsExceeded() bool {
	at := d.Time()
	if at.IsZero() {
		return false
	}
	return conditions(d.Status.Conditions).find(argov1.RolloutProgressing).Reason == reasonDeadlineExceeded || at.Before(d.Now)
}

// madeProgress reports whether the release advances with this status. It does if the release starts, if its spec was
// invalid before, or if a delay ends: the time until then does not count against its deadline.
func madeProgress(f facts, s argov1.RolloutStatus) bool {
	wasInvalid := conditions(f.storedStatus.Conditions).find(argov1.RolloutInvalidSpec) != nil
	return wasInvalid || f.templateOrStepsChanged() || scaleDownDelayEnds(f, s) || hasStatusProgressed(f.Status, s, f.Spec.Strategy.BlueGreen != nil)
}

// scaleDownDelayEnds reports whether the delay of retained pods has ended since the last progress. The deadline, which may be shorter
// than the delay, applies to the time that the pods take to end. During a pause there is no deadline, and they remain.
func scaleDownDelayEnds(f facts, s argov1.RolloutStatus) bool {
	return slices.ContainsFunc(f.ReplicaSets, func(rs ReplicaSet) bool { return scaleDownDelayEndsFor(f, s, rs) })
}

// scaleDownDelayEndsFor is scaleDownDelayEnds for the pods of one ReplicaSet.
func scaleDownDelayEndsFor(f facts, s argov1.RolloutStatus, rs ReplicaSet) bool {
	progress := conditions(s.Conditions).find(argov1.RolloutProgressing)
	return progress != nil && progress.Reason != reasonPaused && isRetained(f, s, rs) &&
		!f.Now.Before(rs.ScaleDownDeadline) && rs.ScaleDownDeadline.After(progress.LastUpdateTime.Time)
}

// restartsDeadlineFirst reports whether retained pods remain until the status records that the deadline of the release in progress
// starts again: only they prove that their delay has ended since the last progress, and the write of the status may fail.
func restartsDeadlineFirst(f facts, rs ReplicaSet) bool {
	if f.Status.Abort || !scaleDownDelayEndsFor(f, f.Status, rs) {
		return false
	}
	switch conditions(f.Status.Conditions).find(argov1.RolloutProgressing).Reason {
	case reasonAborted, reasonProgressed: // there is no deadline, or the status may not record its start
		return false
	default:
		return true
	}
}

// isRetained reports whether the pods of another revision remain until the end of their delay, or are removed at its end.
func isRetained(f facts, s argov1.RolloutStatus, rs ReplicaSet) bool {
	return rs.SpecReplicas > 0 && rs.Hash != f.Hash && rs.Hash != s.StableRS && rs.HasScaleDownDeadline()
}

// hasTimedOut reports whether the progress deadline of the release has passed.
func hasTimedOut(f facts, s argov1.RolloutStatus) bool {
	return !madeProgress(f, s) && newProgressDeadline(f, s).IsExceeded()
}

// newProgressDeadline returns the input for the progress deadline of the release.
func newProgressDeadline(f facts, s argov1.RolloutStatus) progressDeadline {
	latest := f.Now.Add(longestScaleDownDelay(f.Spec.Strategy)) // a later deadline means that a clock was set back
	delayed := slices.ContainsFunc(f.ReplicaSets, func(rs ReplicaSet) bool {
		return isRetained(f, s, rs) && f.Now.Before(rs.ScaleDownDeadline) && !rs.ScaleDownDeadline.After(latest)
	})
	return progressDeadline{Now: f.Now, Spec: f.Spec, Status: s, ScaleDownPending: delayed}
}

func timedOutText(f facts) string {
	return progressSubject(f.Name, f.new.Name) + " has timed out progressing."
}

// hasStatusProgressed reports whether the release made progress between two statuses.
func hasStatusProgressed(old, now argov1.RolloutStatus, blueGreen bool) bool {
	if now.UpdatedReplicas != old.UpdatedReplicas || now.Replicas-now.UpdatedReplicas < old.Replicas-old.UpdatedReplicas ||
		now.ReadyReplicas > old.ReadyReplicas || now.AvailableReplicas > old.AvailableReplicas {
		return true
	}
	if blueGreen {
		ends := func(before, after *argov1.RolloutAnalysisRunStatus) bool {
			return isRunning(before) && !isRunning(after)
		}
		return now.BlueGreen.ActiveSelector != old.BlueGreen.ActiveSelector || now.BlueGreen.PreviewSelector != old.BlueGreen.PreviewSelector ||
			ends(old.BlueGreen.PrePromotionAnalysisRunStatus, now.BlueGreen.PrePromotionAnalysisRunStatus) ||
			ends(old.BlueGreen.PostPromotionAnalysisRunStatus, now.BlueGreen.PostPromotionAnalysisRunStatus)
	}
	return now.StableRS != old.StableRS || now.CurrentStepHash != old.CurrentStepHash ||
		valueOr(now.CurrentStepIndex, -1) != valueOr(old.CurrentStepIndex, -1)
}
