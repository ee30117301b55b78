package rollout

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Joined goes on from the end of a pause to the step behind it, where all that this step asks of the cluster is another
// route: then the end of the pause, the weight after it and the next pause are one write of the status instead of two. It
// is false of every other decision.
//
// The first decision needs no effect of its own: the pause began when all that holds in it had been made true. So a process
// that dies behind the new route, and before the status, finds a pause that is over, and decides the same again. Where the
// new route fails, the first decision is good without it: its status says at which step the route is missing.
func Joined(s Snapshot, d Decision) (first, both Decision, joins bool) {
	first = d
	if len(d.Effects) == 0 { // only conditions were noted, of a pause that a person has ended
		s.Status = d.Status
		first = Next(s)
	}
	if !s.leavesPause(first.Status) || s.experiments(first.Status) {
		return d, d, false
	}
	s.Status = first.Status
	if noted, news := NotePause(s.Now, s.Generation, s.Spec, s.Status); news {
		s.Status = noted
	}
	both = Next(s)
	if !rerouted(first.Effects, both.Effects) {
		return d, d, false
	}
	both.Events = slices.Concat(first.Events, both.Events)
	return first, both, true
}

// leavesPause is true of a status that leaves the step at which the release is held, and says nothing else that is new.
func (s Snapshot) leavesPause(is argov1.RolloutStatus) bool {
	was := s.Status
	if s.Spec.Strategy.Canary == nil || was.CurrentStepIndex == nil || is.CurrentStepIndex == nil || *is.CurrentStepIndex != *was.CurrentStepIndex+1 {
		return false
	}
	step, _ := stepAt(s.Spec.Strategy.Canary.Steps, was.CurrentStepIndex)
	held := pauseStep(was) != nil || was.ControllerPause && len(was.PauseConditions) == 0 // or a person has ended it
	return step.Pause != nil && held && len(is.PauseConditions) == 0 && !is.PromoteFull && sameRoles(was, is) &&
		equality.Semantic.DeepEqual(was.Canary.Weights, is.Canary.Weights)
}

// rerouted is true of effects that differ, and in what routers are told alone.
func rerouted(was, is []release.Effect) bool {
	return !reflect.DeepEqual(was, is) && reflect.DeepEqual(unrouted(was), unrouted(is))
}

func unrouted(effects []release.Effect) []release.Effect {
	return slices.DeleteFunc(slices.Clone(effects), func(e release.Effect) bool {
		_, route := e.(RouteIs)
		return route
	})
}
