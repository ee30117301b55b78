package analysis

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// EarliestEnd returns the earliest time at which a metric has all its measurements, if all remaining ones are successful. It is now
// for a metric that is completed, or that is measured until its run ends. The metric has resolved arguments; started is the start of
// the run, zero if it has not started.
func EarliestEnd(m argov1.Metric, result argov1.MetricResult, started, now time.Time) time.Time {
	l := newMetricLimits(m)
	missing := l.desiredCount(m) - int(result.Count)
	if l.successes > 0 { // also ends a metric with an unlimited count
		consecutive := l.successes - int(result.ConsecutiveSuccess)
		if l.desiredCount(m) == 0 || consecutive < missing {
			missing = consecutive
		}
	}
	if missing <= 0 || result.Phase.Completed() {
		return now
	}
	interval, _ := measurementInterval(m)
	if interval == 0 {
		interval = retryInterval
	}
	next := now
	switch newest := newestMeasurement(&result); {
	case newest == nil && !started.IsZero():
		delay, _ := parseDuration(m.InitialDelay)
		next = started.Add(delay)
	case newest == nil:
		delay, _ := parseDuration(m.InitialDelay)
		next = now.Add(delay)
	case newest.Phase == argov1.AnalysisPhaseError && newest.FinishedAt != nil:
		next = newest.FinishedAt.Add(retryInterval)
	case newest.Phase.Completed() && newest.FinishedAt != nil:
		next = newest.FinishedAt.Add(interval)
	}
	if next.Before(now) {
		next = now
	}
	return next.Add(time.Duration(missing-1) * interval)
}
