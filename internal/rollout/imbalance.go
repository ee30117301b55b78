package rollout

import (
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// describeImbalance describes the first step, from an index on, that routes more than twice the proportionate traffic
// to the pods of the new revision. This may be intended, but users are warned before it happens. Empty: there is no
// such step.
func describeImbalance(spec argov1.RolloutSpec, from int32) string {
	c := spec.Strategy.Canary
	if c == nil || c.TrafficRouting == nil {
		return ""
	}
	replicas, maxWeight := valueOr(spec.Replicas, 1), pods.MaxWeight(c)
	for i := max(from, 0); int(i) < len(c.Steps); i++ {
		progress := pods.StepProgress{Steps: c.Steps, Index: &i}
		weight := progress.WeightForPods(maxWeight)
		count := pods.TrafficRoutedPods{StepProgress: progress, Replicas: replicas, MaxWeight: maxWeight, MinPodsPerReplicaSet: valueOr(c.MinPodsPerReplicaSet, 0)}.CountsBehindRouter().Canary
		if needed := pods.CountForWeight(weight, replicas, maxWeight); int64(needed) > 2*int64(count) {
			cause := lastScalingStep(c.Steps, i)
			return fmt.Sprintf("step %d (%s) routes %d/%d of the traffic to %s, %d would be proportionate",
				cause+1, DescribeStep(c.Steps[cause]), weight, maxWeight, release.Count(int(count), "pod"), needed)
		}
	}
	return ""
}

// lastScalingStep returns the index of the step that last set the weight or the number of pods.
func lastScalingStep(steps []argov1.CanaryStep, progress int32) int32 {
	for i := progress; i >= 0; i-- {
		if steps[i].SetWeight != nil || steps[i].SetCanaryScale != nil {
			return i
		}
	}
	return progress
}

// warnOfImbalance warns if a remaining step overloads the pods of the new revision. The gate always passes.
func warnOfImbalance(f facts, s argov1.RolloutStatus) outcome {
	if s.Abort || s.PromoteFull || isPromoted(s) || !f.hasDistinctStable() {
		return outcome{}
	}
	warning := describeImbalance(f.Spec, valueOr(s.CurrentStepIndex, 0))
	if warning == "" {
		return outcome{}
	}
	return outcome{gates: release.Gates{release.NewPassingGate("imbalance", warning)}, events: []release.Event{{
		Type: release.Warning, Reason: "TrafficImbalance", Message: "Traffic imbalance: " + warning, Persistent: true,
	}}}
}
