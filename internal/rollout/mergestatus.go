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
// It ends before a decision with another effect, because the status has to be written first. It also ends when a
// revision changes its role, or when a step starts that requires other observations, because the snapshot is older.
//
// The snapshot may contain the ReplicaSet that an effect has just created, so that the release starts with the same
// write. Its time may be the time at which the effects were applied: a pause starts then.
func MergeStatusChanges(s Snapshot, d Decision) Decision {
	d.Status = s.withPausesFromNow(d.Status)
	s = s.withTerminatedAnalyses(d.Effects)
	for range maxMergedDecisions {
		if equalExceptExplanations(s.Status, d.Status) || !haveSameRoles(s.Status, d.Status) || s.lacksExperiment(d.Status) {
			return d
		}
		if s.Route.Confirmed != nil && haveNewWeights(s.Status, d.Status) {
			s.Route.Confirmed, s.Route.UnconfirmedReason = new(false), "" // no router has reported about the new weights yet
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

// withTerminatedAnalyses returns the snapshot after effects: an AnalysisRun that they terminated does not count for a step that
// starts afterwards.
func (s Snapshot) withTerminatedAnalyses(effects []release.Effect) Snapshot {
	s.AnalysisRuns, s.Experiments = slices.Clone(s.AnalysisRuns), slices.Clone(s.Experiments)
	for i := range s.AnalysisRuns {
		run := &s.AnalysisRuns[i]
		run.Terminated = run.Terminated || slices.Contains(effects, release.Effect(AnalysisRunTerminated{Name: run.Name}))
	}
	for i := range s.Experiments {
		e := &s.Experiments[i]
		e.Terminated = e.Terminated || slices.Contains(effects, release.Effect(ExperimentTerminated{Name: e.Name}))
	}
	return s
}

// withPausesFromNow returns a status in which a new pause starts at the time of the snapshot.
func (s Snapshot) withPausesFromNow(status argov1.RolloutStatus) argov1.RolloutStatus {
	existed := func(c argov1.PauseCondition) bool { return hasPauseReason(s.Status, c.Reason) }
	if len(status.PauseConditions) == 0 || slices.ContainsFunc(status.PauseConditions, existed) || s.Status.ControllerPause {
		return status
	}
	status = *status.DeepCopy()
	for i := range status.PauseConditions {
		status.PauseConditions[i].StartTime = metav1.NewTime(s.Now)
	}
	serin := argov1.SerinStatus{}
	if status.Serin != nil {
		serin = *status.Serin
	}
	serin.PausedAt = new(metav1.NewMicroTime(s.Now))
	status.Serin = &serin
	return status
}

// equalExceptExplanations reports whether two statuses are equal except for Serin's explanations.
func equalExceptExplanations(before, after argov1.RolloutStatus) bool {
	before.Serin, after.Serin = nil, nil
	return SameStatus(before, after)
}

// haveSameRoles reports whether both statuses have the same new and stable revisions, with the same Services.
func haveSameRoles(before, after argov1.RolloutStatus) bool {
	return before.StableRS == after.StableRS && before.CurrentPodHash == after.CurrentPodHash && before.Abort == after.Abort &&
		before.Canary.StablePingPong == after.Canary.StablePingPong && before.BlueGreen.ActiveSelector == after.BlueGreen.ActiveSelector &&
		before.BlueGreen.PreviewSelector == after.BlueGreen.PreviewSelector
}

// haveNewWeights reports whether the weights of two statuses differ.
func haveNewWeights(before, after argov1.RolloutStatus) bool {
	a, b := before.Canary.Weights.DeepCopy(), after.Canary.Weights.DeepCopy()
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
func containsEffects(effects, others []release.Effect) bool {
	return !slices.ContainsFunc(effects, func(e release.Effect) bool {
		return !slices.ContainsFunc(others, func(other release.Effect) bool { return reflect.DeepEqual(e, other) || isAchievedBy(e, other) })
	})
}

// isAchievedBy reports whether another effect has already achieved this one, although they differ.
func isAchievedBy(e, other release.Effect) bool {
	switch e := e.(type) {
	case ReplicaSetMaintained:
		created, after := other.(ReplicaSetExists)
		return after && e == ReplicaSetMaintained{Name: created.Name, Revision: created.Revision, AvoidedHash: created.AvoidedHash}
	case ScaleDownDeadlineSet:
		before, after := other.(ScaleDownDeadlineSet)
		return after && e.Name == before.Name && !e.Until.IsZero() && !before.Until.IsZero() // they differ by the time between the two decisions
	default:
		return false
	}
}
