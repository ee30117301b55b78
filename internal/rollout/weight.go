package rollout

import (
	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Total is what weights add up to where maxTrafficWeight does not say otherwise.
const Total int32 = 100

// mostWeight is what the weights of a canary strategy add up to.
func mostWeight(c *argov1.CanaryStrategy) int32 {
	if c == nil || c.TrafficRouting == nil || c.TrafficRouting.MaxTrafficWeight == nil {
		return Total
	}
	return *c.TrafficRouting.MaxTrafficWeight
}

// stepAt is the step of that index; false when there are no steps, or all are done, or the index is none.
func stepAt(steps []argov1.CanaryStep, index *int32) (argov1.CanaryStep, bool) {
	if index == nil || *index < 0 || int(*index) >= len(steps) {
		return argov1.CanaryStep{}, false
	}
	return steps[*index], true
}

// weightAt is the weight that the steps up to that index have set; before the first one it is 0.
func weightAt(steps []argov1.CanaryStep, index int32) int32 {
	for i := min(int(index), len(steps)-1); i >= 0; i-- {
		if weight := steps[i].SetWeight; weight != nil {
			return *weight
		}
	}
	return 0
}

// weightBefore is the weight that was set before the step of that index.
func weightBefore(steps []argov1.CanaryStep, index int32) int32 { return weightAt(steps, index-1) }

// scaleAt is the setCanaryScale that is in force at that index; nil when the pods follow the weight. When all steps are
// done none is: the new revision could never get all its pods.
func scaleAt(steps []argov1.CanaryStep, index *int32) *argov1.SetCanaryScale {
	if _, ok := stepAt(steps, index); !ok {
		return nil
	}
	for i := *index; i >= 0; i-- {
		scale := steps[i].SetCanaryScale
		switch {
		case scale == nil:
		case scale.MatchTrafficWeight:
			return nil
		default:
			return scale
		}
	}
	return nil
}

// Progress is how far a release is, as far as weights depend on it.
type Progress struct {
	Steps []argov1.CanaryStep
	// Index is the current step; nil without steps.
	Index *int32
	// All is true where the new revision shall have everything: full promotion is asked for, or it is the stable one.
	All bool
	// Aborted is true when the stable revision shall have everything again.
	Aborted bool
}

// Weight is the share that the new revision shall have, of most. It says nothing of how fast: Toward and DynamicWeight do.
func (p Progress) Weight(most int32) int32 {
	switch _, stepping := stepAt(p.Steps, p.Index); {
	case p.All:
		return most
	case p.Aborted, p.Index != nil && *p.Index < 0: // nobody writes that but people, and it is corrected
		return 0
	case !stepping:
		return most
	default:
		return weightAt(p.Steps, *p.Index)
	}
}
