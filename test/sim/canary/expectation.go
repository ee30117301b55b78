package canary

import (
	"math"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
)

// expectation is what one spec asks of a release. It is reckoned here a second time, from the documentation of the API, so
// that a mistake in the plan of the state machine is not a mistake of the oracle as well.
type expectation struct {
	spec            *flaggerv1.CanarySpec
	provider        string
	weighted, ab    bool
	routed, mirror  bool
	skip            bool
	interval        time.Duration
	threshold       int
	iterations      int
	step, promotion int
	steps           []int
	most            int // the weight from which a release is promoted
	canaryReady     int // percent of the pods
	primaryReady    int
	metrics         []flaggerv1.CanaryMetric
	hooks           []flaggerv1.CanaryWebhook
	ranges          time.Duration // the longest look back of a metric
	deadline        time.Duration
}

func expectationOf(spec *flaggerv1.CanarySpec) *expectation {
	d := &expectation{
		spec: spec, provider: spec.Provider, routed: spec.Provider != canary.ProviderKubernetes, skip: spec.SkipAnalysis,
		interval: time.Minute, threshold: 1, most: 100, canaryReady: 100, primaryReady: 100, deadline: 10 * time.Minute,
	}
	if s := spec.ProgressDeadlineSeconds; s != nil {
		d.deadline = time.Duration(*s) * time.Second
	}
	a := spec.Analysis
	if a == nil {
		d.skip, a = true, &flaggerv1.CanaryAnalysis{}
	}
	if parsed, err := time.ParseDuration(a.Interval); err == nil && parsed > 0 {
		d.interval = parsed
	}
	d.threshold = max(a.Threshold, 1)
	d.iterations, d.step, d.steps, d.promotion = a.Iterations, a.StepWeight, a.StepWeights, a.StepWeightPromotion
	d.mirror = a.Mirror && d.routed
	if n := len(d.steps); n > 0 {
		d.most = d.steps[n-1]
	} else if a.MaxWeight > 0 {
		d.most = a.MaxWeight
	}
	if !d.routed && d.iterations == 0 {
		d.iterations = 10
	}
	d.ab = d.routed && len(a.Match) > 0 && d.iterations > 0
	d.weighted = d.iterations == 0
	if p := a.CanaryReadyThreshold; p != nil {
		d.canaryReady = *p
	}
	if p := a.PrimaryReadyThreshold; p != nil {
		d.primaryReady = *p
	}
	for _, metric := range a.Metrics {
		d.metrics = append(d.metrics, metric)
		back, err := time.ParseDuration(metric.Interval)
		if err != nil {
			back = time.Minute
		}
		d.ranges = max(d.ranges, back)
	}
	for _, hook := range a.Webhooks {
		if hook.Type == "" {
			hook.Type = flaggerv1.RolloutHook
		}
		d.hooks = append(d.hooks, hook)
	}
	return d
}

// after is the weight that follows another one.
func (d *expectation) after(weight int) int {
	if d.step > 0 {
		return min(weight+d.step, max(d.most, weight))
	}
	for _, step := range d.steps {
		if step > weight {
			return step
		}
	}
	return max(d.most, weight)
}

// planned is true for a weight that the plan can lead to from one that was there.
func (d *expectation) planned(weight int, from []int) bool {
	if weight == 0 {
		return true
	}
	if !d.weighted {
		return d.routed && weight == 100
	}
	for _, at := range append([]int{0}, from...) {
		for range 101 {
			next := d.after(at)
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

// returning is true for a weight on the promotion's way back from one that was there.
func (d *expectation) returning(weight, from int) bool {
	return d.promotion > 0 && weight == max(from-d.promotion, 0)
}

// of are the hooks of one type.
func (d *expectation) of(kind flaggerv1.HookType) []flaggerv1.CanaryWebhook {
	var out []flaggerv1.CanaryWebhook
	for _, hook := range d.hooks {
		if hook.Type == kind {
			out = append(out, hook)
		}
	}
	return out
}

// good evaluates a value. The bounds are inclusive; without a range there is one threshold, which is the least success
// rate and the most of everything else.
func good(metric flaggerv1.CanaryMetric, value float64) bool {
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
