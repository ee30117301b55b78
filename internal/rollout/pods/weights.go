package pods

import (
	"math"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// DefaultMaxWeight is the sum of all weights if maxTrafficWeight is not set.
const DefaultMaxWeight int32 = 100

// MaxWeight returns the sum of all weights of a canary strategy. An invalid one, below 1, counts as the default.
func MaxWeight(c *argov1.CanaryStrategy) int32 {
	if c == nil || c.TrafficRouting == nil || c.TrafficRouting.MaxTrafficWeight == nil || *c.TrafficRouting.MaxTrafficWeight < 1 {
		return DefaultMaxWeight
	}
	return *c.TrafficRouting.MaxTrafficWeight
}

// CountForWeight returns the number of n pods that a weight out of maxWeight requires, rounded up.
func CountForWeight(weight, n, maxWeight int32) int32 {
	if maxWeight <= 0 || weight <= 0 || n <= 0 {
		return 0
	}
	return clampPodCount(math.Ceil(float64(weight) * float64(n) / float64(maxWeight)))
}

// StepAt returns the step with an index; false without steps, after the last one, and for an invalid index.
func StepAt(steps []argov1.CanaryStep, index *int32) (argov1.CanaryStep, bool) {
	if index == nil || *index < 0 || int(*index) >= len(steps) {
		return argov1.CanaryStep{}, false
	}
	return steps[*index], true
}

// WeightAt returns the weight that the steps up to and including an index have set; 0 before the first one.
func WeightAt(steps []argov1.CanaryStep, index int32) int32 {
	for i := min(int(index), len(steps)-1); i >= 0; i-- {
		if weight := steps[i].SetWeight; weight != nil {
			return *weight
		}
	}
	return 0
}

// WeightBefore returns the weight that was set before the step with an index.
func WeightBefore(steps []argov1.CanaryStep, index int32) int32 { return WeightAt(steps, index-1) }

// CanaryScaleAt returns the setCanaryScale that applies at an index; nil if the pods follow the weight. After the last
// step, none applies: the new revision must get all its pods.
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

// StepProgress is the progress of a release that determines weights.
type StepProgress struct {
	Steps []argov1.CanaryStep
	// Index of the current step; nil without steps.
	Index *int32
	// FullyPromoted is true if the new revision receives all traffic: full promotion is requested, or it is the stable
	// one.
	FullyPromoted bool
	// Aborted is true if all traffic returns to the stable revision.
	Aborted bool
}

// WeightForPods returns the final weight, out of maxWeight, of the new revision. RollingLimits.NextCounts and
// TrafficRoutedPods.RetainedWeight determine how fast the weight is reached.
func (p StepProgress) WeightForPods(maxWeight int32) int32 {
	switch _, stepping := StepAt(p.Steps, p.Index); {
	case p.FullyPromoted:
		return maxWeight
	case p.Aborted, p.Index != nil && *p.Index < 0: // users may patch a negative index
		return 0
	case !stepping:
		return maxWeight
	default:
		return WeightAt(p.Steps, *p.Index)
	}
}
