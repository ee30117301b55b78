package canary

import (
	"math"
	"testing"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// TestEvaluateCheckBoundsAreInclusive: bounds are inclusive, either may be absent; without a range the threshold is a minimum
// for the success rate and a maximum for everything else. The texts are Flagger's.
func TestEvaluateCheckBoundsAreInclusive(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	between := func(low, high *float64) *flaggerv1.CanaryThresholdRange {
		return &flaggerv1.CanaryThresholdRange{Min: low, Max: high}
	}
	rate := func(m flaggerv1.CanaryMetric) Check {
		m.Name = SuccessRate
		return Check{Source: Builtin, Canonical: SuccessRate, Metric: m}
	}
	duration := func(m flaggerv1.CanaryMetric) Check {
		m.Name = Duration
		return Check{Source: Builtin, Canonical: Duration, Metric: m}
	}
	custom := func(m flaggerv1.CanaryMetric) Check {
		m.Name = "errors"
		return Check{Source: Template, Metric: m}
	}
	for _, test := range []struct {
		name  string
		check Check
		value float64
		text  string // empty: passes
		limit string
	}{
		{"rate at its minimum", rate(flaggerv1.CanaryMetric{ThresholdRange: between(number(99), nil)}), 99, "", ">= 99%"},
		{"rate just below", rate(flaggerv1.CanaryMetric{ThresholdRange: between(number(99), nil)}), 98.69, "success rate 98.69% < 99%", ">= 99%"},
		{"rate rounded up is still below", rate(flaggerv1.CanaryMetric{ThresholdRange: between(number(99), nil)}), 98.999, "success rate 99.00% < 99%", ">= 99%"},
		{"rate above its maximum", rate(flaggerv1.CanaryMetric{ThresholdRange: between(nil, number(99.5))}), 100, "success rate 100.00% > 99.5%", "<= 99.5%"},
		{"rate within both", rate(flaggerv1.CanaryMetric{ThresholdRange: between(number(90), number(99))}), 95, "", ">= 90% and <= 99%"},
		{"rate with no bound at all", rate(flaggerv1.CanaryMetric{ThresholdRange: between(nil, nil)}), 0, "", "any"},
		{"rate by threshold", rate(flaggerv1.CanaryMetric{Threshold: 99}), 98, "success rate 98.00% < 99%", ">= 99%"},
		{"rate by no threshold", rate(flaggerv1.CanaryMetric{}), 0, "", ">= 0%"},
		{"rate that is no number", rate(flaggerv1.CanaryMetric{Threshold: 99}), math.NaN(), "success rate is not a number", ">= 99%"},

		{"duration at its maximum", duration(flaggerv1.CanaryMetric{ThresholdRange: between(nil, number(500))}), 500, "", "<= 500ms"},
		{"duration cut to whole milliseconds", duration(flaggerv1.CanaryMetric{ThresholdRange: between(nil, number(500))}), 500.9, "", "<= 500ms"},
		{"duration with a bound cut to whole milliseconds", duration(flaggerv1.CanaryMetric{ThresholdRange: between(nil, number(500.9))}), 501, "request duration 501ms > 500ms", "<= 500ms"},
		{"duration above", duration(flaggerv1.CanaryMetric{ThresholdRange: between(nil, number(500))}), 1515.2, "request duration 1.515s > 500ms", "<= 500ms"},
		{"duration below", duration(flaggerv1.CanaryMetric{ThresholdRange: between(number(10), number(500))}), 9, "request duration 9ms < 10ms", ">= 10ms and <= 500ms"},
		{"duration by threshold", duration(flaggerv1.CanaryMetric{Threshold: 500}), 501, "request duration 501ms > 500ms", "<= 500ms"},
		{"duration that never ends", duration(flaggerv1.CanaryMetric{Threshold: 500}), math.Inf(1), "request duration +Infms > 500ms", "<= 500ms"},
		{"duration beyond what a duration holds", duration(flaggerv1.CanaryMetric{Threshold: 500}), 1e300, "request duration 1" + zeros(300) + "ms > 500ms", "<= 500ms"},
		{"duration that is no number", duration(flaggerv1.CanaryMetric{Threshold: 500}), math.NaN(), "request duration is not a number", "<= 500ms"},

		{"custom at its maximum", custom(flaggerv1.CanaryMetric{ThresholdRange: between(nil, number(5))}), 5, "", "<= 5"},
		{"custom above", custom(flaggerv1.CanaryMetric{ThresholdRange: between(nil, number(5))}), 12, "errors 12.00 > 5", "<= 5"},
		{"custom below", custom(flaggerv1.CanaryMetric{ThresholdRange: between(number(1), nil)}), 0.5, "errors 0.50 < 1", ">= 1"},
		{"custom by threshold", custom(flaggerv1.CanaryMetric{Threshold: 5}), 5.5, "errors 5.50 > 5", "<= 5"},
		{"custom by nothing must not rise above zero", custom(flaggerv1.CanaryMetric{}), 0.001, "errors 0.00 > 0", "<= 0"},
		{"custom at zero", custom(flaggerv1.CanaryMetric{}), 0, "", "<= 0"},
		{"custom that is no number", custom(flaggerv1.CanaryMetric{}), math.NaN(), "errors is not a number", "<= 0"},
	} {
		got := evaluateCheck(test.check, test.value)
		if got.ok != (test.text == "") || got.text != test.text || got.limit != test.limit {
			t.Errorf("%s: evaluateCheck(%v) = %+v, want text %q and limit %q", test.name, test.value, got, test.text, test.limit)
		}
	}
}

func zeros(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = '0'
	}
	return string(b)
}

// TestTextsAboutMissingValues: Flagger's texts, one for each source.
func TestTextsAboutMissingValues(t *testing.T) {
	plan := Plan{Provider: "istio", Target: "cart", Namespace: "shop"}
	metric := flaggerv1.CanaryMetric{Name: "errors"}
	rate := Check{Source: Builtin, Canonical: SuccessRate, Metric: flaggerv1.CanaryMetric{Name: SuccessRate}}
	for _, test := range []struct {
		name     string
		got      release.Event
		want     string
		internal bool
	}{
		{
			"no rate", noValuesEvent(plan, rate, "no values found"),
			"Halt advancement no values found for istio metric request-success-rate probably cart.shop is not receiving traffic: running query failed: no values found", false,
		},
		{
			"no duration", noValuesEvent(plan, Check{Source: Builtin, Canonical: Duration}, "no values found"),
			"Halt advancement no values found for istio metric request-duration probably cart.shop is not receiving traffic", false,
		},
		{"nothing inline", noValuesEvent(plan, Check{Source: Inline, Metric: metric}, "x"), "Halt advancement no values found for metric: errors", false},
		{"nothing from a template", noValuesEvent(plan, Check{Source: Template, Metric: metric}, "x"), "Halt advancement no values found for custom metric: errors: x", false},
		{"builtin fails", queryFailedEvent(rate, release.Answer{Outcome: release.Broken, Text: "x"}), "Prometheus query failed: x", true},
		{"inline fails", queryFailedEvent(Check{Source: Inline, Metric: metric}, release.Answer{Outcome: release.Unreachable, Text: "x"}), "Prometheus query failed for errors: x", true},
		{"template fails", queryFailedEvent(Check{Source: Template, Metric: metric}, release.Answer{Outcome: release.Broken, Text: "x", Query: "sum(x)"}), "Metric query failed for errors: x", true},
		{"template is away", queryFailedEvent(Check{Source: Template, Metric: metric}, release.Answer{Outcome: release.Unreachable, Text: "x"}), "Metric query failed for errors: x", true},
		{
			"template is missing", queryFailedEvent(Check{Source: Template, Metric: metric}, release.Answer{Outcome: release.Broken, Text: "Metric template errors.shop error: x"}),
			"Metric template errors.shop error: x", true,
		},
	} {
		if test.got.Message != test.want || test.got.Type != release.Warning || test.got.Internal != test.internal {
			t.Errorf("%s: got %+v, want %q, internal %v", test.name, test.got, test.want, test.internal)
		}
	}
}
