package rollout

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// mostSettled bounds how many decisions become one; two or three do.
const mostSettled = 8

// Settled goes on from a decision whose effects hold, as far as what follows is only to be remembered: a step that is
// complete, the pause that follows it and the condition that says so are one write of the status instead of three.
//
// It ends where a decision wants anything else of the cluster, because that wants the status written first; and where a
// revision changes its role, or a step begins for which other things are looked at, because the snapshot is of before.
func Settled(s Snapshot, d Decision) Decision {
	for range mostSettled {
		if remembers(s.Status, d.Status) || !sameRoles(s.Status, d.Status) || s.experiments(d.Status) {
			return d
		}
		s.Status = d.Status
		next := Next(s)
		if !within(next.Effects, d.Effects) {
			return d
		}
		next.Effects, next.Events = d.Effects, slices.Concat(d.Events, next.Events)
		d = next
	}
	return d
}

// remembers is true when a status has nothing new, but for explanations.
func remembers(was, is argov1.RolloutStatus) bool {
	was.Serin, is.Serin = nil, nil
	return SameStatus(was, is)
}

// sameRoles is true while the same revisions are new and stable, and the same Services theirs.
func sameRoles(was, is argov1.RolloutStatus) bool {
	return was.StableRS == is.StableRS && was.CurrentPodHash == is.CurrentPodHash && was.Abort == is.Abort &&
		was.Canary.StablePingPong == is.Canary.StablePingPong && was.BlueGreen.ActiveSelector == is.BlueGreen.ActiveSelector &&
		was.BlueGreen.PreviewSelector == is.BlueGreen.PreviewSelector
}

// experiments is true when a status is at a step whose experiment the snapshot does not have.
func (s Snapshot) experiments(status argov1.RolloutStatus) bool {
	index := status.CurrentStepIndex
	if s.Spec.Strategy.Canary == nil || index == nil || equality.Semantic.DeepEqual(s.Status.CurrentStepIndex, index) {
		return false
	}
	steps := s.Spec.Strategy.Canary.Steps
	return int(*index) < len(steps) && *index >= 0 && steps[*index].Experiment != nil
}

// within is true when all effects of one list are in the other.
func within(effects, holding []release.Effect) bool {
	return !slices.ContainsFunc(effects, func(e release.Effect) bool {
		return !slices.ContainsFunc(holding, func(other release.Effect) bool { return reflect.DeepEqual(e, other) })
	})
}
