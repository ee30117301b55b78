package pods

import (
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// TrafficRoutedPods is the input for the numbers of pods if a router divides the traffic, so that the pods need not.
type TrafficRoutedPods struct {
	StepProgress
	// Replicas is the desired number of pods of the Rollout, MaxWeight the sum of all weights.
	Replicas, MaxWeight int32
	// MinPodsPerReplicaSet is the minimum number of pods of a revision that has any; 0: no minimum.
	MinPodsPerReplicaSet int32
	// DynamicStableScale is dynamicStableScale: the stable revision is scaled down as its traffic decreases.
	DynamicStableScale bool
	// AbortScaleDownDelaySeconds is abortScaleDownDelaySeconds; nil: not set. With 0, the new revision keeps its pods
	// after an abort.
	AbortScaleDownDelaySeconds *int32
	// RecordedWeights are the weights that the router was last given; nil: none yet.
	RecordedWeights *Weights
	// NewAvailable and StableAvailable are the available pods of both revisions.
	NewAvailable, StableAvailable int32
	// PodsForAllTraffic is the number of pods that carry all traffic: Replicas, or fewer while traffic returns to the
	// stable revision.
	PodsForAllTraffic int32
}

// Weights of both sides. Their sum may be less than MaxWeight: experiments have weights of their own.
type Weights struct{ Canary, Stable int32 }

// CountsBehindRouter returns the numbers of pods of both sides.
func (r TrafficRoutedPods) CountsBehindRouter() ReplicaCounts {
	weight, replicas := r.desiredScale()
	canary := r.ApplyMinPods(CountForWeight(weight, r.Replicas, r.MaxWeight))
	if replicas != nil {
		canary = max(*replicas, 0)
	}
	if !r.DynamicStableScale {
		return ReplicaCounts{Canary: canary, Stable: r.Replicas}
	}
	recordedWeights := Weights{Stable: r.MaxWeight} // without a record, the stable revision still has all traffic
	if r.RecordedWeights != nil {
		recordedWeights = *r.RecordedWeights
	}
	// A step may reserve more pods for the new revision than its weight requires. If the weight decreases then, the stable revision
	// needs pods before it receives the traffic.
	share := r.MaxWeight - min(weight, r.weightToCarry())
	stable := CountForWeight(max(share, recordedWeights.Stable), r.Replicas, r.MaxWeight)
	if r.Aborted && !r.FullyPromoted && replicas == nil { // only the pods that its remaining weight requires
		canary = CountForWeight(recordedWeights.Canary, r.PodsForAllTraffic, r.MaxWeight)
	}
	return ReplicaCounts{Canary: r.ApplyMinPods(canary), Stable: r.ApplyMinPods(stable)}
}

// desiredScale returns the weight that determines the pods of the new revision, or their number if a step sets one. A
// number is not a share: the stable revision then keeps all its pods.
func (r TrafficRoutedPods) desiredScale() (weight int32, replicas *int32) {
	switch scale := r.effectiveCanaryScale(); {
	case scale == nil, scale.Replicas == nil && scale.Weight == nil:
		return r.weightToCarry(), nil
	case scale.Replicas != nil:
		return 0, scale.Replicas
	default:
		return *scale.Weight, nil
	}
}

func (r TrafficRoutedPods) effectiveCanaryScale() *argov1.SetCanaryScale {
	retained := r.AbortScaleDownDelaySeconds != nil && *r.AbortScaleDownDelaySeconds == 0
	if r.FullyPromoted || r.Aborted && !retained {
		return nil
	}
	return CanaryScaleAt(r.Steps, r.Index)
}

// weightToCarry returns the weight that the pods of the new revision must be able to carry.
func (r TrafficRoutedPods) weightToCarry() int32 {
	if r.DynamicStableScale && r.Aborted && !r.FullyPromoted {
		return r.weightForPodsAtAbort()
	}
	return r.WeightForPods(r.MaxWeight)
}

// weightForPodsAtAbort returns the weight that the pods of an aborted revision must carry while the stable revision regains its
// pods: the last weight of the steps that requires fewer pods than are missing in the stable revision. It decreases as
// stable pods become available. Without abortScaleDownDelaySeconds, the pods of the new revision are removed in the same
// steps, provided that their number may decrease; otherwise it would retain a share indefinitely.
func (r TrafficRoutedPods) weightForPodsAtAbort() int32 {
	missing := r.Replicas - r.StableAvailable
	if r.AbortScaleDownDelaySeconds == nil && r.NewAvailable > r.MinPodsPerReplicaSet {
		missing = max(missing, r.NewAvailable)
	}
	for _, step := range slices.Backward(r.Steps) {
		if weight := step.SetWeight; weight != nil && CountForWeight(*weight, r.Replicas, r.MaxWeight) < missing {
			return *weight
		}
	}
	return 0
}

// ApplyMinPods returns at least the minimum number of pods, or 0.
func (r TrafficRoutedPods) ApplyMinPods(pods int32) int32 {
	if pods == 0 {
		return 0
	}
	return max(pods, min(r.MinPodsPerReplicaSet, r.Replicas))
}

// RetainedWeight returns the weight of the new revision while traffic returns to a stable revision that first has to
// regain its pods: the part that the available pods of the stable revision cannot carry. It is 0 if the stable revision
// kept all its pods.
func (r TrafficRoutedPods) RetainedWeight() int32 {
	if !r.DynamicStableScale || r.PodsForAllTraffic <= 0 {
		return 0
	}
	remaining := r.MaxWeight - release.CarriedWeight(r.MaxWeight, r.StableAvailable, r.PodsForAllTraffic)
	if r.RecordedWeights == nil {
		return remaining
	}
	return min(remaining, r.RecordedWeights.Canary)
}
