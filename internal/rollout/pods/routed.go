package pods

import (
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Routed is the input for the numbers of pods where a router divides the traffic, so that the numbers need not.
type Routed struct {
	Progress
	// Replicas is the number of pods that the Rollout asks for, MaxWeight the sum of all weights.
	Replicas, MaxWeight int32
	// MinPods is the minimum number of pods of a revision that has any; 0: no minimum.
	MinPods int32
	// Dynamic is dynamicStableScale: the stable revision is scaled down as its traffic decreases.
	Dynamic bool
	// AbortDelay is abortScaleDownDelaySeconds; nil: not set. With 0 the new revision retains its pods after an abort.
	AbortDelay *int32
	// Recorded are the weights that the router was given last; nil before the first time.
	Recorded *Weights
	// NewAvailable and StableAvailable are the available pods of both revisions.
	NewAvailable, StableAvailable int32
	// Full is the number of pods that carry all the traffic: Replicas, or fewer while traffic returns to the stable
	// revision.
	Full int32
}

// Weights of both sides. Their sum may be less than MaxWeight: experiments have weights of their own.
type Weights struct{ Canary, Stable int32 }

// Desired returns the numbers of pods of both sides.
func (r Routed) Desired() Counts {
	weight, replicas := r.scale()
	canary := r.AtLeastMinPods(ForWeight(weight, r.Replicas, r.MaxWeight))
	if replicas != nil {
		canary = max(*replicas, 0)
	}
	if !r.Dynamic {
		return Counts{Canary: canary, Stable: r.Replicas}
	}
	stable := ForWeight(r.MaxWeight-weight, r.Replicas, r.MaxWeight)
	if r.Recorded == nil {
		stable = r.Replicas // all traffic is still there
	} else {
		stable = max(stable, ForWeight(r.Recorded.Stable, r.Replicas, r.MaxWeight))
		if r.Aborted && !r.All && replicas == nil { // only what it still serves
			canary = ForWeight(r.Recorded.Canary, r.Full, r.MaxWeight)
		}
	}
	return Counts{Canary: r.AtLeastMinPods(canary), Stable: r.AtLeastMinPods(stable)}
}

// scale returns the weight that the pods of the new revision follow, or their number where a step names one. A number
// is not a share: with it the stable revision retains all its pods.
func (r Routed) scale() (weight int32, replicas *int32) {
	switch scale := r.scaleInForce(); {
	case scale == nil, scale.Replicas == nil && scale.Weight == nil:
		return r.weightForPods(), nil
	case scale.Replicas != nil:
		return 0, scale.Replicas
	default:
		return *scale.Weight, nil
	}
}

func (r Routed) scaleInForce() *argov1.SetCanaryScale {
	retained := r.AbortDelay != nil && *r.AbortDelay == 0
	if r.All || r.Aborted && !retained {
		return nil
	}
	return ScaleAt(r.Steps, r.Index)
}

// weightForPods is the weight that the pods of the new revision must be able to carry.
func (r Routed) weightForPods() int32 {
	if r.Dynamic && r.Aborted && !r.All {
		return r.abortWeight()
	}
	return r.Weight(r.MaxWeight)
}

// abortWeight goes back through the weights of the steps while the stable revision gets its pods again: it is the last
// weight that needs fewer pods than the stable revision lacks. Without abortScaleDownDelaySeconds the pods of the new
// revision go in the same steps, as long as their number may decrease: it would retain a share indefinitely otherwise.
func (r Routed) abortWeight() int32 {
	lacking := r.Replicas - r.StableAvailable
	if r.AbortDelay == nil && r.NewAvailable > r.MinPods {
		lacking = max(lacking, r.NewAvailable)
	}
	for _, step := range slices.Backward(r.Steps) {
		if weight := step.SetWeight; weight != nil && ForWeight(*weight, r.Replicas, r.MaxWeight) < lacking {
			return *weight
		}
	}
	return 0
}

// AtLeastMinPods raises a number of pods to the minimum, unless it is 0.
func (r Routed) AtLeastMinPods(pods int32) int32 {
	if pods == 0 {
		return 0
	}
	return max(pods, min(r.MinPods, r.Replicas))
}

// RemainingWeight is the weight of the new revision while traffic returns to a stable one that has to get its pods
// again: the part that the available pods of the stable revision cannot carry. It is 0 where the stable revision
// retained all its pods.
func (r Routed) RemainingWeight() int32 {
	if !r.Dynamic || r.Full <= 0 {
		return 0
	}
	rest := r.MaxWeight - release.Carried(r.MaxWeight, r.StableAvailable, r.Full)
	if r.Recorded == nil {
		return rest
	}
	return min(rest, r.Recorded.Canary)
}
