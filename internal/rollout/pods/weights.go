package pods

import (
	"math"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// DefaultMaxWeight is the sum of all weights where maxTrafficWeight is not set.
const DefaultMaxWeight int32 = 100

// MaxWeight is the sum of all weights of a canary strategy.
func MaxWeight(c *argov1.CanaryStrategy) int32 {
	if c == nil || c.TrafficRouting == nil || c.TrafficRouting.MaxTrafficWeight == nil {
		return DefaultMaxWeight
	}
	return *c.TrafficRouting.MaxTrafficWeight
}

// CountForWeight is the number of n pods that a weight out of maxWeight needs, rounded up.
func CountForWeight(weight, n, maxWeight int32) int32 {
	if maxWeight <= 0 || weight <= 0 || n <= 0 {
		return 0
	}
	return clampPodCount(math.Ceil(float64(weight) * float64(n) / float64(maxWeight)))
}

// StepAt returns the step of an index; false without steps, after the last one, and for an index out of range.
func StepAt(steps []argov1.CanaryStep, index *int32) (argov1.CanaryStep, bool) {
	if index == nil || *index < 0 || int(*index) >= len(steps) {
		return argov1.CanaryStep{}, false
	}
	return steps[*index], true
}

// WeightAt is the weight that the steps up to and including an index have set; 0 before the first one.
func WeightAt(steps []argov1.CanaryStep, index int32) int32 {
	for i := min(int(index), len(steps)-1); i >= 0; i-- {
		if weight := steps[i].SetWeight; weight != nil {
			return *weight
		}
	}
	return 0
}

// WeightBefore is the weight that was set before the step of an index.
func WeightBefore(steps []argov1.CanaryStep, index int32) int32 { return WeightAt(steps, index-1) }

// CanaryScaleAt returns the setCanaryScale that is in force at an index; nil when the pods follow the weight. After the last
// step none is in force: the new revision could never get all its pods.
func CanaryScaleAt(steps []argov1.CanaryStep, index *int32) *argov1.SetCanaryScale {
	if _, ok := StepAt(steps, index); !ok {
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

// StepProgress is the position of a release as far as weights depend on it.
type StepProgress struct {
	Steps []argov1.CanaryStep
	// Index of the current step; nil without steps.
	Index *int32
	// FullyPromoted is true when the new revision receives everything: full promotion is requested, or it is the stable one.
	FullyPromoted bool
	// Aborted is true when the stable revision receives everything again.
	Aborted bool
}

// DesiredWeight is the weight, out of maxWeight, that the new revision is to reach. How fast it gets there is decided by
// Limits.Next and Routed.ReturnWeight.
func (p StepProgress) DesiredWeight(maxWeight int32) int32 {
	switch _, stepping := StepAt(p.Steps, p.Index); {
	case p.FullyPromoted:
		return maxWeight
	case p.Aborted, p.Index != nil && *p.Index < 0: // a negative index comes from a patch by a user, and is corrected
		return 0
	case !stepping:
		return maxWeight
	default:
		return WeightAt(p.Steps, *p.Index)
	}
}
