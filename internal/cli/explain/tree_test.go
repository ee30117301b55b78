package explain

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

func TestTheMeasurementsOfAllMetricsAreCounted(t *testing.T) {
	run := argov1.AnalysisRun{}
	run.Name = "web-2"
	run.Status.MetricResults = []argov1.MetricResult{
		{Name: "rate", Successful: 2, Failed: 1}, {Name: "latency", Successful: 3, Error: 4}, {Name: "experimental", DryRun: true, Failed: 5},
	}
	observed := &Rollout{Runs: []argov1.AnalysisRun{{}, run}}
	if got := observed.measurementsOf("web-2"); got == nil || got.Text() != "measurements: 5 successful, 1 failed, 4 with an error" {
		t.Errorf("got %+v", got)
	}
	for _, name := range []string{"", "web-3"} { // without a measurement, and unknown
		if got := observed.measurementsOf(name); got != nil {
			t.Errorf("run %q: got %+v", name, got)
		}
	}
}

// TestResultsAreFoundByResolvedNames has an argument in the name of a metric; the status contains its value. One of three
// measurements, one per minute, is left.
func TestResultsAreFoundByResolvedNames(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	last := metav1.NewTime(now.Add(-10 * time.Second))
	run := argov1.AnalysisRun{Spec: argov1.AnalysisRunSpec{
		Args:    []argov1.Argument{{Name: "service", Value: new("web")}},
		Metrics: []argov1.Metric{{Name: "{{args.service}}-errors", Interval: "1m", Count: new(intstr.FromInt32(3))}},
	}}
	run.Name = "web-2"
	run.Status.MetricResults = []argov1.MetricResult{{
		Name: "web-errors", Phase: argov1.AnalysisPhaseRunning, Count: 2, Successful: 2,
		Measurements: []argov1.Measurement{{Phase: argov1.AnalysisPhaseSuccessful, Value: "0.5", StartedAt: &last, FinishedAt: &last}},
	}}
	observed := &Rollout{Runs: []argov1.AnalysisRun{run}}
	if got, want := observed.earliestEnd("web-2", now), now.Add(50*time.Second); !got.Equal(want) {
		t.Errorf("the analysis ends at %s, want %s", got, want)
	}
}
