package analysis

import (
	"fmt"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// add counts a measurement that has ended. One that went wrong says nothing about the metric, so it has a count of its own.
func add(r *argov1.MetricResult, phase argov1.AnalysisPhase) {
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
	default: // has not ended
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

// last is the newest measurement, nil when there is none.
func last(r *argov1.MetricResult) *argov1.Measurement {
	if len(r.Measurements) == 0 {
		return nil
	}
	return &r.Measurements[len(r.Measurements)-1]
}

// assessed is what a metric has come to by its counts, and why where it did not come to a good end.
func assessed(m argov1.Metric, r *argov1.MetricResult, terminating bool) (phase argov1.AnalysisPhase, cause string) {
	newest, l := last(r), limitsOf(m)
	switch {
	case newest == nil && terminating:
		return argov1.AnalysisPhaseSuccessful, ""
	case newest == nil:
		return argov1.AnalysisPhasePending, ""
	case !newest.Phase.Completed():
		return argov1.AnalysisPhaseRunning, ""
	// Where several limits are exceeded the one of the gravest counts, in the order of the API.
	case int(r.ConsecutiveError) > l.errors:
		return argov1.AnalysisPhaseError, fmt.Sprintf("consecutiveErrors (%d) > consecutiveErrorLimit (%d)", r.ConsecutiveError, l.errors)
	case int(r.Inconclusive) > l.inconclusive:
		return argov1.AnalysisPhaseInconclusive, fmt.Sprintf("inconclusive (%d) > inconclusiveLimit (%d)", r.Inconclusive, l.inconclusive)
	case l.failures >= 0 && int(r.Failed) > l.failures:
		return argov1.AnalysisPhaseFailed, fmt.Sprintf("failed (%d) > failureLimit (%d)", r.Failed, l.failures)
	case l.successes > 0 && int(r.ConsecutiveSuccess) >= l.successes:
		return argov1.AnalysisPhaseSuccessful, ""
	case l.wanted(m) > 0 && int(r.Count) >= l.wanted(m):
		return exhausted(l), ""
	case terminating:
		return argov1.AnalysisPhaseSuccessful, ""
	default:
		return argov1.AnalysisPhaseRunning, ""
	}
}

// exhausted is what a metric comes to that was measured as often as it asks for, without a limit that decided.
func exhausted(l limits) argov1.AnalysisPhase {
	switch {
	case l.successes == 0:
		return argov1.AnalysisPhaseSuccessful
	case l.failures >= 0:
		return argov1.AnalysisPhaseInconclusive
	default:
		return argov1.AnalysisPhaseFailed
	}
}

// gravity orders phases: a run comes to the gravest that one of its metrics has.
var gravity = []argov1.AnalysisPhase{
	argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseRunning, argov1.AnalysisPhasePending,
	argov1.AnalysisPhaseInconclusive, argov1.AnalysisPhaseError, argov1.AnalysisPhaseFailed,
}

// bad is true of a phase that ends a run.
func bad(phase argov1.AnalysisPhase) bool {
	return phase.Completed() && phase != argov1.AnalysisPhaseSuccessful
}

// conclude is what a run has come to: nothing final before all its metrics are, those of a dry run included.
func conclude(results []argov1.MetricResult) argov1.AnalysisPhase {
	gravest := argov1.AnalysisPhaseSuccessful
	for _, r := range results {
		if !r.Phase.Completed() {
			return argov1.AnalysisPhaseRunning
		}
		if !r.DryRun && slices.Index(gravity, r.Phase) > slices.Index(gravity, gravest) {
			gravest = r.Phase
		}
	}
	return gravest
}

// summaries count the metrics that decide, and those that are only recorded.
func summaries(results []argov1.MetricResult) (decide, recorded argov1.RunSummary) {
	for _, r := range results {
		sum := &decide
		if r.DryRun {
			sum = &recorded
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
		default: // has not come to anything yet
		}
	}
	return decide, recorded
}

// Limit returns what the values of a metric are compared with, on one line.
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
