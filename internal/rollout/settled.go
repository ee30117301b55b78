package rollout

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// maxMergedDecisions is the maximum number of decisions that are merged; usually two or three are.
const maxMergedDecisions = 8

// MergeStatusChanges continues from a decision whose effects are applied, as long as the following decisions only
// change the status. A completed step, the pause after it and the condition about it thus become one write of the
// status instead of three.
//
// It ends when a decision has another effect, because the status has to be written before that; and when a revision
// changes its role, or a step starts that requires other observations, because the snapshot is older. The snapshot may
// contain the ReplicaSet that an effect has just created, so that the release starts with the same write. The time of
// the snapshot may be the time at which the effects were applied: a pause starts then.
func MergeStatusChanges(s Snapshot, d Decision) Decision {
	d.Status = s.withPausesFromNow(d.Status)
	s = s.withTerminated(d.Effects)
	for range maxMergedDecisions {
		if equalExceptExplanations(s.Status, d.Status) || !haveSameRoles(s.Status, d.Status) || s.lacksExperiment(d.Status) {
			return d
		}
		if s.Router.Confirmed != nil && haveNewWeights(s.Status, d.Status) {
			s.Router.Confirmed, s.Router.UnconfirmedReason = new(false), "" // no router has reported about the new weights yet
		}
		s.Status = d.Status
		next := Next(s)
		if !containsEffects(next.Effects, d.Effects) {
			return d
		}
		next.Effects, next.Events = d.Effects, slices.Concat(d.Events, next.Events)
		d = next
	}
	return d
}

// withTerminated returns the snapshot after effects: an AnalysisRun that they terminated does not count for a step that
// starts afterwards.
func (s Snapshot) withTerminated(by []release.Effect) Snapshot {
	s.AnalysisRuns, s.Experiments = slices.Clone(s.AnalysisRuns), slices.Clone(s.Experiments)
	for i := range s.AnalysisRuns {
		run := &s.AnalysisRuns[i]
		run.Terminated = run.Terminated || slices.Contains(by, release.Effect(AnalysisRunTerminated{Name: run.Name}))
	}
	for i := range s.Experiments {
		e := &s.Experiments[i]
		e.Terminated = e.Terminated || slices.Contains(by, release.Effect(ExperimentTerminated{Name: e.Name}))
	}
	return s
}

// withPausesFromNow returns a status in which a new pause starts at the time of the snapshot.
func (s Snapshot) withPausesFromNow(status argov1.RolloutStatus) argov1.RolloutStatus {
	had := func(c argov1.PauseCondition) bool { return hasPauseReason(s.Status, c.Reason) }
	if len(status.PauseConditions) == 0 || slices.ContainsFunc(status.PauseConditions, had) || s.Status.ControllerPause {
		return status
	}
	status = *status.DeepCopy()
	for i := range status.PauseConditions {
		status.PauseConditions[i].StartTime = metav1.NewTime(s.Now)
	}
	own := argov1.SerinStatus{}
	if status.Serin != nil {
		own = *status.Serin
	}
	own.PausedAt = new(metav1.NewMicroTime(s.Now))
	status.Serin = &own
	return status
}

// equalExceptExplanations reports whether two statuses are equal except for Serin's explanations.
func equalExceptExplanations(was, is argov1.RolloutStatus) bool {
	was.Serin, is.Serin = nil, nil
	return SameStatus(was, is)
}

// haveSameRoles reports whether both statuses have the same new and stable revisions, with the same Services.
func haveSameRoles(was, is argov1.RolloutStatus) bool {
	return was.StableRS == is.StableRS && was.CurrentPodHash == is.CurrentPodHash && was.Abort == is.Abort &&
		was.Canary.StablePingPong == is.Canary.StablePingPong && was.BlueGreen.ActiveSelector == is.BlueGreen.ActiveSelector &&
		was.BlueGreen.PreviewSelector == is.BlueGreen.PreviewSelector
}

// haveNewWeights reports whether the weights of two statuses differ.
func haveNewWeights(was, is argov1.RolloutStatus) bool {
	a, b := was.Canary.Weights.DeepCopy(), is.Canary.Weights.DeepCopy()
	for _, w := range []*argov1.TrafficWeights{a, b} {
		if w != nil {
			w.Verified = nil
		}
	}
	return !equality.Semantic.DeepEqual(a, b)
}

// lacksExperiment reports whether a status is at a step whose experiment the snapshot does not contain.
func (s Snapshot) lacksExperiment(status argov1.RolloutStatus) bool {
	index := status.CurrentStepIndex
	if s.Spec.Strategy.Canary == nil || index == nil || equality.Semantic.DeepEqual(s.Status.CurrentStepIndex, index) {
		return false
	}
	steps := s.Spec.Strategy.Canary.Steps
	return int(*index) < len(steps) && *index >= 0 && steps[*index].Experiment != nil
}

// containsEffects reports whether all effects of one list are in the other.
func containsEffects(effects, holding []release.Effect) bool {
	return !slices.ContainsFunc(effects, func(e release.Effect) bool {
		return !slices.ContainsFunc(holding, func(other release.Effect) bool { return reflect.DeepEqual(e, other) || isAchievedBy(e, other) })
	})
}

// isAchievedBy reports whether another effect has already achieved this one, although they differ.
func isAchievedBy(e, by release.Effect) bool {
	switch e := e.(type) {
	case ReplicaSetMaintained:
		made, is := by.(ReplicaSetExists)
		return is && e == ReplicaSetMaintained{Name: made.Name, Revision: made.Revision, AvoidedHash: made.AvoidedHash}
	case ScaleDownDeadlineSet:
		before, is := by.(ScaleDownDeadlineSet)
		return is && e.Name == before.Name && !e.Until.IsZero() && !before.Until.IsZero() // they differ by the time between the two decisions
	default:
		return false
	}
}
