package analysis_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
)

// maxStatusBytes are 512 KiB for the results, and 8 KiB for the rest.
const maxStatusBytes = 520 << 10

func encodedSize(status argov1.AnalysisRunStatus) int {
	text, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	return len(text)
}

// TestStatusFitsIntoTheObject: a failure that is too large to be stored would never end the run.
func TestStatusFitsIntoTheObject(t *testing.T) {
	for name, c := range map[string]struct {
		metrics, retention, queryBytes, valueBytes, good int
	}{
		"many metrics with long values": {metrics: 40, retention: 10, queryBytes: 2, valueBytes: 4096, good: 20},
		"long retention":                {metrics: 10, retention: 100, queryBytes: 2, valueBytes: 4096, good: 120},
		"long queries":                  {metrics: 3, retention: 10, queryBytes: 400_000, valueBytes: 1, good: 20},
		"a thousand metrics":            {metrics: 1000, retention: 10, queryBytes: 500, valueBytes: 4096, good: 3},
	} {
		t.Run(name, func(t *testing.T) {
			var metrics []argov1.Metric
			outcomes := map[string]string{}
			for i := range c.metrics {
				m := metric(fmt.Sprint("m", i), "interval=5s")
				m.Provider.Prometheus.Query = strings.Repeat("x", c.queryBytes)
				metrics, outcomes[m.Name] = append(metrics, m), strings.Repeat("S", c.good)+"F"
			}
			p := newSimulatedRun(outcomes, metrics...)
			p.padding = strings.Repeat("x", c.valueBytes-1)
			p.snapshot.Spec.MeasurementRetention = []argov1.MeasurementRetention{{MetricName: ".*", Limit: int32(c.retention)}}
			p.runUntil(noon.Add(time.Hour))
			status := p.snapshot.Status
			if size := encodedSize(status); status.Phase != argov1.AnalysisPhaseFailed || size > maxStatusBytes {
				t.Errorf("%s, with a status of %d KiB", status.Phase, size>>10)
			}
			for _, result := range status.MetricResults {
				if n := len(result.Measurements); n == 0 || result.Measurements[n-1].Phase != argov1.AnalysisPhaseFailed || result.Count != int32(c.good)+1 {
					t.Fatalf("%s: %d measurements remain of %d", result.Name, n, result.Count)
				}
			}
		})
	}
}

// TestShortMeasurementsOfALongRetentionRemain: the limit applies to bytes, and a status of an earlier version of Serin may exceed it.
func TestShortMeasurementsOfALongRetentionRemain(t *testing.T) {
	measured := make([]argov1.Measurement, 10_000)
	for i := range measured {
		at := new(metav1.NewTime(noon.Add(time.Duration(i) * time.Second)))
		measured[i] = argov1.Measurement{Phase: argov1.AnalysisPhaseSuccessful, Value: "1", StartedAt: at, FinishedAt: at}
	}
	before := argov1.AnalysisRunStatus{
		Phase: argov1.AnalysisPhaseRunning, StartedAt: new(metav1.NewTime(noon)),
		MetricResults: []argov1.MetricResult{
			{Name: "long", Phase: argov1.AnalysisPhaseRunning, Measurements: measured, Count: 10_000, Successful: 10_000},
			{Name: "short", Phase: argov1.AnalysisPhaseRunning, Measurements: measured[:10], Count: 10, Successful: 10, Metadata: map[string]string{"query": "x"}},
		},
	}
	d := analysis.Next(analysis.Snapshot{Now: noon.Add(10_000 * time.Second), Status: before, Spec: argov1.AnalysisRunSpec{
		Metrics: []argov1.Metric{metric("long", "interval=1h"), metric("short", "interval=1h")}, MeasurementRetention: []argov1.MeasurementRetention{{MetricName: "long", Limit: 20_000}},
	}})
	long, short := d.Status.MetricResults[0], d.Status.MetricResults[1]
	if n := len(long.Measurements); n < 3000 || encodedSize(d.Status) > maxStatusBytes || !long.Measurements[n-1].FinishedAt.Equal(measured[9999].FinishedAt) {
		t.Errorf("%d measurements remain, with a status of %d KiB", n, encodedSize(d.Status)>>10)
	}
	if len(short.Measurements) != 10 || short.Metadata == nil {
		t.Errorf("the other metric has %d measurements and the metadata %v", len(short.Measurements), short.Metadata)
	}
	if got, want := fmt.Sprint(d.Effects), fmt.Sprintf("[Jobs of %d measurements of long deleted]", 10_000-len(long.Measurements)); got != want {
		t.Errorf("effects %s, want %s", got, want)
	}
}

// TestSizeDecidesNothing: for any metrics and outcomes, a run with long values and queries has the phase, the counts and the times of
// one with short ones, and its status fits.
func TestSizeDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var metrics []argov1.Metric
		outcomes := map[string]string{}
		for i := range rapid.IntRange(1, 3).Draw(t, "metrics") {
			var settings []string
			for _, key := range []string{"count", "failures", "inconclusive", "errors", "successes"} {
				if rapid.Bool().Draw(t, "has "+key) {
					settings = append(settings, fmt.Sprint(key, "=", rapid.IntRange(0, 9).Draw(t, key)))
				}
			}
			m := metric(fmt.Sprint("m", i), append(settings, "interval="+rapid.SampledFrom([]string{"", "7s", "1m"}).Draw(t, "interval"))...)
			metrics = append(metrics, m)
			outcomes[m.Name] = strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"S", "S", "S", "F", "I", "E", "R"}), 0, 15).Draw(t, "letters"), "")
		}
		short := newSimulatedRun(outcomes, metrics...)
		short.runUntil(noon.Add(time.Hour))

		long := newSimulatedRun(outcomes, metrics...)
		long.padding = strings.Repeat("x", rapid.IntRange(0, 300<<10).Draw(t, "value"))
		long.snapshot.Spec.Metrics = slices.Clone(metrics)
		for i := range metrics {
			long.snapshot.Spec.Metrics[i].Provider.Prometheus = &argov1.PrometheusMetric{Query: strings.Repeat("x", rapid.IntRange(0, 300<<10).Draw(t, "query"))}
		}
		long.runUntil(noon.Add(time.Hour))

		if size := encodedSize(long.snapshot.Status); size > maxStatusBytes {
			t.Fatalf("a status of %d KiB", size>>10)
		}
		if got, want := decided(long), decided(short); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// decided returns the parts of a status that decisions result in.
func decided(p *simulatedRun) string {
	status := p.snapshot.Status
	message, _, _ := strings.Cut(status.Message, ": ")
	out := fmt.Sprintln(status.Phase, message, status.CompletedAt, status.RunSummary, p.snapshot.Now)
	for _, r := range status.MetricResults {
		r.Measurements, r.Metadata, r.Message = nil, nil, ""
		out += fmt.Sprintf("%+v\n", r)
	}
	return out
}
