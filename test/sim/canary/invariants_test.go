package canary

import (
	"math"
	"strings"
	"testing"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/actors"
)

func TestInvariantsHaveNumbersAndTexts(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, i := range Invariants {
		if seen[i.Number] || !strings.HasPrefix(i.Number, "I") || len(i.Text) < 20 {
			t.Errorf("%s (%q) is not unique, or has no text", i.Number, i.Text)
		}
		seen[i.Number] = true
	}
}

func TestExpectationReportsPlannedWeights(t *testing.T) {
	t.Parallel()
	steps := &flaggerv1.CanarySpec{Provider: actors.Istio, Analysis: &flaggerv1.CanaryAnalysis{StepWeights: []int{10, 50}}}
	step := &flaggerv1.CanarySpec{Provider: actors.Istio, Analysis: &flaggerv1.CanaryAnalysis{StepWeight: 30, MaxWeight: 70}}
	green := &flaggerv1.CanarySpec{Provider: actors.Istio, Analysis: &flaggerv1.CanaryAnalysis{Iterations: 2}}
	for _, test := range []struct {
		name   string
		spec   *flaggerv1.CanarySpec
		weight int
		from   []int
		want   bool
	}{
		{"first step", steps, 10, nil, true},
		{"last step", steps, 50, nil, true},
		{"no step", steps, 20, nil, false},
		{"nothing", steps, 0, nil, true},
		{"linear", step, 60, nil, true},
		{"not above the maximum", step, 70, nil, true},
		{"linear overshoot", step, 90, nil, false},
		{"from a weight of a user", step, 35, []int{5}, true},
		{"not from a weight of a user", step, 36, []int{5}, false},
		{"blue/green routes all traffic", green, 100, nil, true},
		{"blue/green has no other weights", green, 50, nil, false},
	} {
		if got := expectationOf(test.spec).isPlanned(test.weight, test.from); got != test.want {
			t.Errorf("%s: planned %t, want %t", test.name, got, test.want)
		}
	}
}

func TestIsGoodAppliesTheBoundsOfAMetric(t *testing.T) {
	t.Parallel()
	between := &flaggerv1.CanaryThresholdRange{Min: new(1.0), Max: new(2.0)}
	for _, test := range []struct {
		metric flaggerv1.CanaryMetric
		value  float64
		want   bool
	}{
		{flaggerv1.CanaryMetric{Name: "m", ThresholdRange: between}, 1, true},
		{flaggerv1.CanaryMetric{Name: "m", ThresholdRange: between}, 2, true},
		{flaggerv1.CanaryMetric{Name: "m", ThresholdRange: between}, 2.1, false},
		{flaggerv1.CanaryMetric{Name: "m", ThresholdRange: between}, math.NaN(), false},
		{flaggerv1.CanaryMetric{Name: "request-success-rate", Threshold: 99}, 98.9, false},
		{flaggerv1.CanaryMetric{Name: "request-success-rate", Threshold: 99}, 99, true},
		{flaggerv1.CanaryMetric{Name: "m", Threshold: 5}, 5, true},
		{flaggerv1.CanaryMetric{Name: "m", Threshold: 5}, 5.1, false},
		{flaggerv1.CanaryMetric{Name: "request-duration", Threshold: 500}, 500.9, true}, // whole milliseconds
	} {
		if got := isGood(test.metric, test.value); got != test.want {
			t.Errorf("%s %v: good %t, want %t", test.metric.Name, test.value, got, test.want)
		}
	}
}
