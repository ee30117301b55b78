package analysis

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

func TestEarliestEnd(t *testing.T) {
	start := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	now := start.Add(12 * time.Second)
	measured := func(phase argov1.AnalysisPhase, at time.Duration) []argov1.Measurement {
		return []argov1.Measurement{{Phase: phase, FinishedAt: &metav1.Time{Time: start.Add(at)}}}
	}
	five := intstr.FromInt32(5)
	two := intstr.FromInt32(2)
	for name, c := range map[string]struct {
		metric  argov1.Metric
		result  argov1.MetricResult
		started time.Time
		want    time.Duration
	}{
		"not started":                  {argov1.Metric{Interval: "30s", Count: &five}, argov1.MetricResult{}, time.Time{}, 12*time.Second + 2*time.Minute},
		"initial delay":                {argov1.Metric{Interval: "30s", Count: &five, InitialDelay: "20s"}, argov1.MetricResult{}, start, 20*time.Second + 2*time.Minute},
		"two of five":                  {argov1.Metric{Interval: "30s", Count: &five}, argov1.MetricResult{Count: 2, Measurements: measured(argov1.AnalysisPhaseSuccessful, 5*time.Second)}, start, 95 * time.Second},
		"an error does not count":      {argov1.Metric{Interval: "30s", Count: &five}, argov1.MetricResult{Count: 2, Error: 1, Measurements: measured(argov1.AnalysisPhaseError, 10*time.Second)}, start, 20*time.Second + time.Minute},
		"a measurement is in progress": {argov1.Metric{Interval: "30s", Count: &two}, argov1.MetricResult{Count: 1, Measurements: []argov1.Measurement{{Phase: argov1.AnalysisPhaseRunning}}}, start, 12 * time.Second},
		"consecutive successes":        {argov1.Metric{Interval: "30s", ConsecutiveSuccessLimit: &two}, argov1.MetricResult{Count: 1, ConsecutiveSuccess: 1, Measurements: measured(argov1.AnalysisPhaseSuccessful, 0)}, start, 30 * time.Second},
		"once":                         {argov1.Metric{}, argov1.MetricResult{}, start, 12 * time.Second},
		"unlimited":                    {argov1.Metric{Interval: "30s"}, argov1.MetricResult{Count: 9}, start, 12 * time.Second},
		"completed":                    {argov1.Metric{Interval: "30s", Count: &five}, argov1.MetricResult{Phase: argov1.AnalysisPhaseFailed, Count: 1}, start, 12 * time.Second},
	} {
		if got := EarliestEnd(c.metric, c.result, c.started, now).Sub(start); got != c.want {
			t.Errorf("%s: ends after %s, want %s", name, got, c.want)
		}
	}
}
