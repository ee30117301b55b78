package rollout

import (
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Routed is what the numbers of pods follow from where a router shares the traffic, so that pods need not.
type Routed struct {
	Progress
	// Replicas are asked for; Most is what the weights add up to.
	Replicas, Most int32
	// MinPods is the least number of pods of a revision that has any; 0: no such number.
	MinPods int32
	// Dynamic lets the stable revision shrink as its traffic goes.
	Dynamic bool
	// AbortDelay is abortScaleDownDelaySeconds; nil: not said. With 0 the new revision keeps its pods after an abort.
	AbortDelay *int32
	// Recorded are the weights that the router was told last; nil before the first time.
	Recorded *Shares
	// NewAvailable and StableAvailable pods are there.
	NewAvailable, StableAvailable int32
	// Enough pods carry all the traffic: Replicas, or fewer on the way back to a stable revision.
	Enough int32
}

// Shares are the weights of both sides. They need not add up: experiments have shares of their own.
type Shares struct{ Canary, Stable int32 }

// Want is how many pods both sides shall have.
func (r Routed) Want() Split {
	weight, pods := r.scale()
	canary := r.least(podsFor(weight, r.Replicas, r.Most))
	if pods != nil {
		canary = max(*pods, 0)
	}
	if !r.Dynamic {
		return Split{Canary: canary, Stable: r.Replicas}
	}
	stable := podsFor(r.Most-weight, r.Replicas, r.Most)
	if r.Recorded == nil {
		stable = r.Replicas // all traffic is still there
	} else {
		stable = max(stable, podsFor(r.Recorded.Stable, r.Replicas, r.Most))
		if r.Aborted && !r.All && pods == nil { // nothing but what it still serves
			canary = podsFor(r.Recorded.Canary, r.Enough, r.Most)
		}
	}
	return Split{Canary: r.least(canary), Stable: r.least(stable)}
}

// scale is the weight that the pods of the new revision follow, or their number where a step names one. A number is no
// share: with it the stable revision keeps all its pods.
func (r Routed) scale() (weight int32, pods *int32) {
	switch scale := r.inForce(); {
	case scale == nil, scale.Replicas == nil && scale.Weight == nil:
		return r.shareNow(), nil
	case scale.Replicas != nil:
		return 0, scale.Replicas
	default:
		return *scale.Weight, nil
	}
}

func (r Routed) inForce() *argov1.SetCanaryScale {
	keeps := r.AbortDelay != nil && *r.AbortDelay == 0
	if r.All || r.Aborted && !keeps {
		return nil
	}
	return scaleAt(r.Steps, r.Index)
}

// shareNow is the share that the pods shall be able to carry.
func (r Routed) shareNow() int32 {
	if r.Dynamic && r.Aborted && !r.All {
		return r.abortShare()
	}
	return r.Weight(r.Most)
}

// abortShare steps back through the weights of the steps while the stable revision gets its pods again: it is the last
// weight that needs fewer pods than the stable revision lacks. Where nothing else is said the pods of the new revision go in the
// same steps, as long as they may become fewer; else it would keep a share for ever.
func (r Routed) abortShare() int32 {
	lacking := r.Replicas - r.StableAvailable
	if r.AbortDelay == nil && r.NewAvailable > r.MinPods {
		lacking = max(lacking, r.NewAvailable)
	}
	for _, step := range slices.Backward(r.Steps) {
		if weight := step.SetWeight; weight != nil && podsFor(*weight, r.Replicas, r.Most) < lacking {
			return *weight
		}
	}
	return 0
}

// least keeps a revision that has pods at the least number of them.
func (r Routed) least(pods int32) int32 {
	if pods == 0 {
		return 0
	}
	return max(pods, min(r.MinPods, r.Replicas))
}

// DynamicWeight is the weight of the new revision on the way back to a stable one that has to get its pods again: what the
// available pods of the stable revision do not carry. It is 0 where the stable revision kept all its pods.
func (r Routed) DynamicWeight() int32 {
	if !r.Dynamic || r.Enough <= 0 {
		return 0
	}
	rest := max(0, r.Most-clamp(float64(int64(r.Most)*int64(r.StableAvailable)/int64(r.Enough))))
	if r.Recorded == nil {
		return rest
	}
	return min(rest, r.Recorded.Canary)
}
