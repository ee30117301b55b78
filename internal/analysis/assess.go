package analysis

import (
	"fmt"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// countMeasurement counts a completed measurement. Errors are counted separately: an error contains no information about
// the metric, so it is not one of the measurements that spec.count requires.
func countMeasurement(r *argov1.MetricResult, phase argov1.AnalysisPhase) {
	switch phase {
	case argov1.AnalysisPhaseSuccessful:
		r.Successful++
		r.ConsecutiveSuccess++
	case argov1.AnalysisPhaseFailed:
		r.Failed++
	case argov1.AnalysisPhaseInconclusive:
		r.Inconclusive++
	case argov1.AnalysisPhaseError:
		r.Error++
		r.ConsecutiveError++
	default: // not completed
		return
	}
	if phase != argov1.AnalysisPhaseSuccessful {
		r.ConsecutiveSuccess = 0
	}
	if phase != argov1.AnalysisPhaseError {
		r.ConsecutiveError = 0
		r.Count++
	}
}

// newestMeasurement returns the newest measurement; nil: there is none.
func newestMeasurement(r *argov1.MetricResult) *argov1.Measurement {
	if len(r.Measurements) == 0 {
		return nil
	}
	return &r.Measurements[len(r.Measurements)-1]
}

// assessMetric returns the phase of a metric that follows from its counts, and the limit that was
// exceeded or not reached if the phase is not successful.
func assessMetric(m argov1.Metric, r *argov1.MetricResult, terminating bool) (phase argov1.AnalysisPhase, cause string) {
	newest, l := newestMeasurement(r), newMetricLimits(m)
	switch {
	case newest == nil && terminating:
		return argov1.AnalysisPhaseSuccessful, ""
	case newest == nil:
		return argov1.AnalysisPhasePending, ""
	case !newest.Phase.Completed():
		return argov1.AnalysisPhaseRunning, ""
	// If several limits are exceeded, the first one counts. Argo Rollouts has the same order.
	case int(r.ConsecutiveError) > l.errors:
		return argov1.AnalysisPhaseError, fmt.Sprintf("consecutiveErrors (%d) > consecutiveErrorLimit (%d)", r.ConsecutiveError, l.errors)
	case int(r.Inconclusive) > l.inconclusive:
		return argov1.AnalysisPhaseInconclusive, fmt.Sprintf("inconclusive (%d) > inconclusiveLimit (%d)", r.Inconclusive, l.inconclusive)
	case l.failures >= 0 && int(r.Failed) > l.failures:
		return argov1.AnalysisPhaseFailed, fmt.Sprintf("failed (%d) > failureLimit (%d)", r.Failed, l.failures)
	case l.successes > 0 && int(r.ConsecutiveSuccess) >= l.successes:
		return argov1.AnalysisPhaseSuccessful, ""
	case l.desiredCount(m) > 0 && int(r.Count) >= l.desiredCount(m):
		return phaseAfterCount(r, l)
	case terminating:
		return argov1.AnalysisPhaseSuccessful, ""
	default:
		return argov1.AnalysisPhaseRunning, ""
	}
}

// phaseAfterCount returns the phase of a metric that was measured spec.count times without reaching a limit, and the cause. A metric
// that also requires consecutive successes has not shown enough of them by then.
func phaseAfterCount(r *argov1.MetricResult, l metricLimits) (phase argov1.AnalysisPhase, cause string) {
	if l.successes == 0 {
		return argov1.AnalysisPhaseSuccessful, ""
	}
	cause = fmt.Sprintf("consecutiveSuccess (%d) < consecutiveSuccessLimit (%d)", r.ConsecutiveSuccess, l.successes)
	if l.failures >= 0 {
		return argov1.AnalysisPhaseInconclusive, cause
	}
	return argov1.AnalysisPhaseFailed, cause
}

// phaseSeverity lists phases by severity. The phase of a run is the most severe one of its metrics.
var phaseSeverity = []argov1.AnalysisPhase{
	argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseRunning, argov1.AnalysisPhasePending,
	argov1.AnalysisPhaseInconclusive, argov1.AnalysisPhaseError, argov1.AnalysisPhaseFailed,
}

// isUnsuccessful reports whether a metric with this phase ends the run before its other metrics are complete.
func isUnsuccessful(phase argov1.AnalysisPhase) bool {
	return phase.Completed() && phase != argov1.AnalysisPhaseSuccessful
}

// assessRun returns the phase of a run. It is running until all metrics are complete, including dry-run metrics, which
// otherwise do not count.
func assessRun(results []argov1.MetricResult) argov1.AnalysisPhase {
	mostSevere := argov1.AnalysisPhaseSuccessful
	for _, r := range results {
		if !r.Phase.Completed() {
			return argov1.AnalysisPhaseRunning
		}
		if !r.DryRun && slices.Index(phaseSeverity, r.Phase) > slices.Index(phaseSeverity, mostSevere) {
			mostSevere = r.Phase
		}
	}
	return mostSevere
}

// summarizeResults counts the metrics by phase: those that decide about the run, and dry-run metrics, which are only
// recorded.
func summarizeResults(results []argov1.MetricResult) (deciding, dryRun argov1.RunSummary) {
	for _, r := range results {
		sum := &deciding
		if r.DryRun {
			sum = &dryRun
		}
		sum.Count++
		switch r.Phase {
		case argov1.AnalysisPhaseSuccessful:
			sum.Successful++
		case argov1.AnalysisPhaseFailed:
			sum.Failed++
		case argov1.AnalysisPhaseInconclusive:
			sum.Inconclusive++
		case argov1.AnalysisPhaseError:
			sum.Error++
		default: // not complete
		}
	}
	return deciding, dryRun
}

// Limit returns the conditions that the values of a metric have to meet, on one line.
func Limit(metric argov1.Metric) string {
	var parts []string
	if metric.SuccessCondition != "" {
		parts = append(parts, metric.SuccessCondition)
	}
	if metric.FailureCondition != "" {
		parts = append(parts, "not "+metric.FailureCondition)
	}
	return strings.Join(strings.Fields(strings.Join(parts, ", ")), " ")
}
