package controller

import (
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
)

// TestTheFailedMetricDecides: the deciding metric is the failed one, or the only one. A dry-run metric decides nothing.
func TestTheFailedMetricDecides(t *testing.T) {
	metric := func(name, condition string) argov1.Metric {
		return argov1.Metric{Name: name, SuccessCondition: condition}
	}
	result := func(name string, phase argov1.AnalysisPhase, value string) argov1.MetricResult {
		return argov1.MetricResult{
			Name: name, Phase: phase, Metadata: map[string]string{"ResolvedPrometheusQuery": "rate(" + name + ")"},
			Measurements: []argov1.Measurement{{Value: "0"}, {Value: value}},
		}
	}
	newRelic := result("latency", argov1.AnalysisPhaseFailed, "900")
	newRelic.Metadata = map[string]string{"ResolvedNewRelicQuery": "FROM Metric SELECT latency"}
	recorded := result("latency", argov1.AnalysisPhaseFailed, "900")
	recorded.DryRun = true
	resolved := result("web-errors", argov1.AnalysisPhaseFailed, "3")
	metrics := []argov1.Metric{metric("latency", "result < 500"), metric("errors", "result\n< 1")}
	for _, test := range []struct {
		name    string
		metrics []argov1.Metric
		results []argov1.MetricResult
		want    rollout.Metric
	}{
		{"nothing is measured", metrics, nil, rollout.Metric{}},
		{"two run", metrics, []argov1.MetricResult{result("latency", argov1.AnalysisPhaseRunning, "400"), result("errors", argov1.AnalysisPhaseRunning, "0.5")}, rollout.Metric{}},
		{"the only one", metrics[:1], []argov1.MetricResult{result("latency", argov1.AnalysisPhaseRunning, "400")}, rollout.Metric{Value: "400", Limit: "result < 500", Query: "rate(latency)"}},
		{"the second failed", metrics, []argov1.MetricResult{result("latency", argov1.AnalysisPhaseSuccessful, "400"), result("errors", argov1.AnalysisPhaseFailed, "3")}, rollout.Metric{Value: "3", Limit: "result < 1", Query: "rate(errors)"}},
		{"a query of New Relic", metrics[:1], []argov1.MetricResult{newRelic}, rollout.Metric{Value: "900", Limit: "result < 500", Query: "FROM Metric SELECT latency"}},
		{"a name with an argument", []argov1.Metric{metrics[0], metric("{{args.service}}-errors", "result < 1")}, []argov1.MetricResult{result("latency", argov1.AnalysisPhaseSuccessful, "400"), resolved}, rollout.Metric{Value: "3", Limit: "result < 1", Query: "rate(web-errors)"}},
		{"the first is only recorded", metrics, []argov1.MetricResult{recorded, result("errors", argov1.AnalysisPhaseInconclusive, "2")}, rollout.Metric{Value: "2", Limit: "result < 1", Query: "rate(errors)"}},
	} {
		run := &argov1.AnalysisRun{Spec: argov1.AnalysisRunSpec{Metrics: test.metrics, Args: []argov1.Argument{{Name: "service", Value: new("web")}}}, Status: argov1.AnalysisRunStatus{MetricResults: test.results}}
		if got := analysisRunOf(run).Metric; got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}
