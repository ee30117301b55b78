package canary

import (
	"math"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
)

// expectation is what one spec requests of a release. It is computed independently, from the documentation of the API, so that
// a mistake in the plan of the state machine is not repeated in the oracle.
type expectation struct {
	spec                            *flaggerv1.CanarySpec
	provider                        string
	weighted, abTesting             bool
	hasRouter, mirror               bool
	skipAnalysis                    bool
	interval                        time.Duration
	threshold                       int
	iterations                      int
	stepWeight, stepWeightPromotion int
	stepWeights                     []int
	maxWeight                       int // the weight from which the release is promoted
	canaryReadyPercent              int // percent of the pods that must be ready
	primaryReadyPercent             int
	metrics                         []flaggerv1.CanaryMetric
	hooks                           []flaggerv1.CanaryWebhook
	longestRange                    time.Duration // the longest interval of a metric
	deadline                        time.Duration
}

func expectationOf(spec *flaggerv1.CanarySpec) *expectation {
	d := &expectation{
		spec: spec, provider: spec.Provider, hasRouter: spec.Provider != canary.ProviderKubernetes, skipAnalysis: spec.SkipAnalysis,
		interval: time.Minute, threshold: 1, maxWeight: 100, canaryReadyPercent: 100, primaryReadyPercent: 100, deadline: 10 * time.Minute,
	}
	if s := spec.ProgressDeadlineSeconds; s != nil {
		d.deadline = time.Duration(*s) * time.Second
	}
	a := spec.Analysis
	if a == nil {
		d.skipAnalysis, a = true, &flaggerv1.CanaryAnalysis{}
	}
	if parsed, err := time.ParseDuration(a.Interval); err == nil && parsed > 0 {
		d.interval = parsed
	}
	d.threshold = max(a.Threshold, 1)
	d.iterations, d.stepWeight, d.stepWeights, d.stepWeightPromotion = a.Iterations, a.StepWeight, a.StepWeights, a.StepWeightPromotion
	d.mirror = a.Mirror && d.hasRouter
	if n := len(d.stepWeights); n > 0 {
		d.maxWeight = d.stepWeights[n-1]
	} else if a.MaxWeight > 0 {
		d.maxWeight = a.MaxWeight
	}
	if !d.hasRouter && d.iterations == 0 {
		d.iterations = 10
	}
	d.abTesting = d.hasRouter && len(a.Match) > 0 && d.iterations > 0
	d.weighted = d.iterations == 0
	if p := a.CanaryReadyThreshold; p != nil {
		d.canaryReadyPercent = *p
	}
	if p := a.PrimaryReadyThreshold; p != nil {
		d.primaryReadyPercent = *p
	}
	for _, metric := range a.Metrics {
		d.metrics = append(d.metrics, metric)
		back, err := time.ParseDuration(metric.Interval)
		if err != nil {
			back = time.Minute
		}
		d.longestRange = max(d.longestRange, back)
	}
	for _, hook := range a.Webhooks {
		if hook.Type == "" {
			hook.Type = flaggerv1.RolloutHook
		}
		d.hooks = append(d.hooks, hook)
	}
	return d
}

// nextWeight returns the weight that follows another one.
func (e *expectation) nextWeight(weight int) int {
	if e.stepWeight > 0 {
		return min(weight+e.stepWeight, max(e.maxWeight, weight))
	}
	for _, step := range e.stepWeights {
		if step > weight {
			return step
		}
	}
	return max(e.maxWeight, weight)
}

// isPlanned reports whether the plan can lead to a weight from one of the given weights.
func (e *expectation) isPlanned(weight int, from []int) bool {
	if weight == 0 {
		return true
	}
	if !e.weighted {
		return e.hasRouter && weight == 100
	}
	for _, at := range append([]int{0}, from...) {
		for range 101 {
			next := e.nextWeight(at)
			if next == weight {
				return true
			}
			if next <= at {
				break
			}
			at = next
		}
	}
	return false
}

// isPromotionStep reports whether the promotion reduces the canary's weight to this one from a previous one.
func (e *expectation) isPromotionStep(weight, from int) bool {
	return e.stepWeightPromotion > 0 && weight == max(from-e.stepWeightPromotion, 0)
}

// hooksOfType returns the hooks of one type.
func (e *expectation) hooksOfType(kind flaggerv1.HookType) []flaggerv1.CanaryWebhook {
	var out []flaggerv1.CanaryWebhook
	for _, hook := range e.hooks {
		if hook.Type == kind {
			out = append(out, hook)
		}
	}
	return out
}

// isGood evaluates a value. The bounds are inclusive. Without a range, the threshold is the minimum of a success rate and the
// maximum of every other metric.
func isGood(metric flaggerv1.CanaryMetric, value float64) bool {
	if math.IsNaN(value) {
		return false
	}
	low, high := math.Inf(-1), math.Inf(1)
	switch r := metric.ThresholdRange; {
	case r != nil && r.Min != nil && r.Max != nil:
		low, high = *r.Min, *r.Max
	case r != nil && r.Min != nil:
		low = *r.Min
	case r != nil && r.Max != nil:
		high = *r.Max
	case r != nil:
	case metric.Name == canary.SuccessRate:
		low = metric.Threshold
	default:
		high = metric.Threshold
	}
	if metric.Name == canary.Duration {
		value = math.Trunc(value)
		low, high = math.Trunc(low), math.Trunc(high)
	}
	return value >= low && value <= high
}
