package explain

import (
	"testing"

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
