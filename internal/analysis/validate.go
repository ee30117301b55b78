package analysis

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// defaultErrorLimit is the default of consecutiveErrorLimit.
const defaultErrorLimit = 4

// metricLimits are the limits of a metric as numbers, with the defaults of the API.
type metricLimits struct {
	count, failures, inconclusive, errors, successes int
}

func newMetricLimits(m argov1.Metric) metricLimits {
	return metricLimits{
		count: limitValue(m.Count, 0), failures: limitValue(m.FailureLimit, 0), inconclusive: limitValue(m.InconclusiveLimit, 0),
		errors: limitValue(m.ConsecutiveErrorLimit, defaultErrorLimit), successes: limitValue(m.ConsecutiveSuccessLimit, 0),
	}
}

// limitValue returns a limit, or its default. A string that is not a number counts as 0, as in Argo Rollouts.
func limitValue(v *intstr.IntOrString, fallback int) int {
	if v == nil {
		return fallback
	}
	return v.IntValue()
}

// desiredCount returns the number of measurements of a metric; 0: unlimited, it is measured until the run ends.
func (l metricLimits) desiredCount(m argov1.Metric) int {
	if l.count == 0 && m.Interval == "" {
		return 1
	}
	return l.count
}

// The limits of one run. The controller evaluates the runs of all namespaces, so a single run must not occupy it.
const (
	maxMetrics  = 1000
	maxRuleCost = 1 << 20 // instructions of all rules per byte of the names of all metrics
)

// ruleCost returns the cost of matching all rules with all metrics, in instructions per byte.
func ruleCost(spec argov1.AnalysisRunSpec, metrics []argov1.Metric) int {
	names := 0
	for _, m := range metrics {
		names += len(m.Name) + 1
	}
	cost := 0
	for _, rule := range spec.DryRun {
		cost += names * countInstructions(rule.MetricName)
	}
	for _, rule := range spec.MeasurementRetention {
		cost += names * countInstructions(rule.MetricName)
	}
	return cost
}

// countInstructions estimates how many instructions a regular expression has. An invalid one matches nothing.
func countInstructions(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 1
	}
	var count func(*syntax.Regexp) int
	count = func(r *syntax.Regexp) int {
		n := 1 + len(r.Rune)
		for _, sub := range r.Sub {
			n += count(sub)
		}
		if r.Op == syntax.OpRepeat {
			n *= max(r.Min, r.Max, 1)
		}
		return min(n, maxRuleCost)
	}
	return count(parsed)
}

// ValidateRun returns the metrics of a run with the values of their arguments, or the first error in its spec. The text of the
// error is part of the API.
func ValidateRun(spec argov1.AnalysisRunSpec) ([]argov1.Metric, error) {
	metrics, err := resolveMetrics(spec)
	if err == nil {
		err = wrapInvalidSpec(Validate(spec, metrics))
	}
	return metrics, err
}

// Validate returns the first error in the spec of a run. Its text is part of the API. metrics are the metrics of the
// spec, with the values of their arguments.
func Validate(spec argov1.AnalysisRunSpec, metrics []argov1.Metric) error {
	switch {
	case len(metrics) == 0:
		return errors.New("no metrics specified")
	case len(metrics) > maxMetrics:
		return fmt.Errorf("%d metrics specified, at most %d are supported", len(metrics), maxMetrics)
	case ruleCost(spec, metrics) > maxRuleCost:
		return errors.New("the rules in dryRun and measurementRetention are too complex for the number of metrics: use shorter expressions")
	}
	seen := map[string]bool{}
	for i, m := range metrics {
		if seen[m.Name] {
			return fmt.Errorf("metrics[%d]: duplicate name '%s'", i, m.Name)
		}
		seen[m.Name] = true
		if err := ValidateMetric(m); err != nil {
			return fmt.Errorf("metrics[%d]: %w", i, err)
		}
	}
	for i, rule := range spec.DryRun {
		if !matchesAnyMetric(rule.MetricName, metrics) {
			return fmt.Errorf("dryRun[%d]: Rule didn't match any metric name(s)", i)
		}
	}
	for i, rule := range spec.MeasurementRetention {
		if !matchesAnyMetric(rule.MetricName, metrics) {
			return fmt.Errorf("measurementRetention[%d]: Rule didn't match any metric name(s)", i)
		}
	}
	return nil
}

// ValidateMetric returns the first error in a metric with the values of its arguments.
func ValidateMetric(m argov1.Metric) error {
	l := newMetricLimits(m)
	_, interval := parseDuration(m.Interval)
	_, delay := parseDuration(m.InitialDelay)
	switch {
	case l.successes < 0:
		return errors.New("consecutiveSuccessLimit must be >= 0")
	case l.failures < -1:
		return errors.New("failureLimit must be >= 0, or -1 to be disabled")
	case l.failures == -1 && l.successes == 0:
		return errors.New("failureLimit and consecutiveSuccessLimit cannot both be disabled")
	case l.inconclusive < 0:
		return errors.New("inconclusiveLimit must be >= 0")
	case l.errors < 0:
		return errors.New("consecutiveErrorLimit must be >= 0")
	case l.count > 0 && l.failures >= 0 && l.count < l.failures+l.successes:
		return fmt.Errorf("count (%d) must be >= failureLimit + consecutiveSuccessLimit (%d + %d) if both >= 0", l.count, l.failures, l.successes)
	case l.count > 0 && l.failures == -1 && l.count < l.successes:
		return errors.New("count must be >= consecutiveSuccessLimit")
	case l.count > 0 && l.count < l.inconclusive:
		return errors.New("count must be >= inconclusiveLimit")
	case l.count > 1 && m.Interval == "":
		return errors.New("interval must be specified when count > 1")
	case interval != nil:
		return fmt.Errorf("invalid interval string: %w", interval)
	case delay != nil:
		return fmt.Errorf("invalid startDelay string: %w", delay)
	}
	switch n := len(m.Provider.Types()); {
	case n == 0:
		return errors.New("no provider specified")
	case n > 1:
		return errors.New("multiple providers specified")
	default:
		return nil
	}
}

func parseDuration(s argov1.DurationString) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	return time.ParseDuration(string(s))
}

// matchesAnyMetric reports whether a rule matches any of the metrics. A rule is a regular expression that may match a
// part of a name.
func matchesAnyMetric(rule string, metrics []argov1.Metric) bool {
	for _, m := range metrics {
		if matchesMetric(rule, m.Name) {
			return true
		}
	}
	return false
}

func matchesMetric(rule, metric string) bool {
	matches, err := regexp.MatchString(rule, metric)
	return err == nil && matches
}

// isDryRun reports whether a metric is a dry-run metric, whose result is recorded but does not count.
func isDryRun(spec argov1.AnalysisRunSpec, metric string) bool {
	for _, rule := range spec.DryRun {
		if matchesMetric(rule.MetricName, metric) {
			return true
		}
	}
	return false
}

// defaultRetention is the number of measurements of a metric that the status contains.
const defaultRetention = 10

// MeasurementLimit returns the number of measurements of a metric that a status contains.
func MeasurementLimit(spec argov1.AnalysisRunSpec, metric string) int {
	for _, rule := range spec.MeasurementRetention {
		if rule.Limit > 0 && matchesMetric(rule.MetricName, metric) {
			return int(rule.Limit)
		}
	}
	return defaultRetention
}
