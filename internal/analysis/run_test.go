package analysis_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/condition"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// metric returns a Prometheus metric with settings as key=value.
func metric(name string, settings ...string) argov1.Metric {
	m := argov1.Metric{Name: name, Provider: argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{Query: "x"}}, SuccessCondition: "result == 'S'", FailureCondition: "result == 'F'"}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		limit := new(intstr.Parse(value))
		switch key {
		case "interval":
			m.Interval = argov1.DurationString(value)
		case "delay":
			m.InitialDelay = argov1.DurationString(value)
		case "count":
			m.Count = limit
		case "failures":
			m.FailureLimit = limit
		case "inconclusive":
			m.InconclusiveLimit = limit
		case "errors":
			m.ConsecutiveErrorLimit = limit
		case "successes":
			m.ConsecutiveSuccessLimit = limit
		default:
			panic(s)
		}
	}
	return m
}

// simulatedRun runs an AnalysisRun. Letters are the results of the measurements of a metric in turn: S, F, I, E; a metric
// without letters gets no result. It ends when nothing more happens, or at the time until.
type simulatedRun struct {
	snapshot analysis.Snapshot
	outcomes map[string]string
	padding  string // of values and messages
	events   []string
	deleted  bool
}

func newSimulatedRun(outcomes map[string]string, metrics ...argov1.Metric) *simulatedRun {
	return &simulatedRun{
		snapshot: analysis.Snapshot{Now: noon, UID: "run", Spec: argov1.AnalysisRunSpec{Metrics: metrics}, Answers: map[string]analysis.MeasurementResult{}},
		outcomes: maps.Clone(outcomes),
	}
}

func (p *simulatedRun) runUntil(end time.Time) {
	for range 1000 {
		d := analysis.Next(p.snapshot)
		p.snapshot.Status = d.Status
		for _, event := range d.Events {
			p.events = append(p.events, string(event.Type)+" "+event.Message)
		}
		for _, effect := range d.Effects {
			if _, ok := effect.(analysis.RunDeleted); ok {
				p.deleted = true
				return
			}
		}
		answered := false
		for _, query := range d.Queries {
			request, ok := query.Request.(analysis.MeasurementRequest)
			if !ok {
				panic("a query of another kind")
			}
			outcomes := p.outcomes[request.Metric.Name]
			if outcomes == "" {
				continue
			}
			answered = true
			answer := analysis.MeasurementResult{StartedAt: p.snapshot.Now, FinishedAt: p.snapshot.Now, Value: outcomes[:1]}
			switch outcomes[:1] {
			case "E":
				answer.Phase, answer.Message = argov1.AnalysisPhaseError, "no connection"
			case "R":
				answer.Phase = argov1.AnalysisPhaseRunning
			default:
				answer.Phase, _ = condition.EvaluatePhase(context.Background(), answer.Value, request.Metric.SuccessCondition, request.Metric.FailureCondition)
			}
			if answer.Phase.Completed() {
				answer.Value += p.padding
			}
			if answer.Message != "" {
				answer.Message += p.padding
			}
			p.outcomes[request.Metric.Name] = outcomes[1:]
			p.snapshot.Answers[query.ID] = answer
		}
		switch {
		case answered:
		case d.Wake.IsZero() || d.Wake.After(end):
			p.snapshot.Now = end
			return
		default:
			p.snapshot.Now = later(p.snapshot.Now, d.Wake)
		}
	}
	panic("the run does not become idle")
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func TestPhaseOfARunFollowsFromItsMeasurements(t *testing.T) {
	for _, c := range []struct {
		name     string
		metric   argov1.Metric
		outcomes string
		want     argov1.AnalysisPhase
		message  string
	}{
		{"one good measurement", metric("m"), "S", "Successful", ""},
		{"a failure within its limit", metric("m", "count=3", "failures=1", "interval=5s"), "SFS", "Successful", ""},
		{"one failure too many", metric("m", "count=3", "failures=1", "interval=5s"), "SFF", "Failed", `Metric "m" assessed Failed due to failed (2) > failureLimit (1)`},
		{"neither limit decides", metric("m", "count=5", "failures=1", "successes=3", "interval=5s"), "SSFSS", "Inconclusive", "Metric \"m\" assessed Inconclusive due to consecutiveSuccess (2) < consecutiveSuccessLimit (3)"},
		{"enough in a row", metric("m", "count=5", "failures=1", "successes=3", "interval=5s"), "SFSSS", "Successful", ""},
		{"failures do not count, and not enough in a row", metric("m", "count=3", "failures=-1", "successes=3", "interval=5s"), "SFS", "Failed", "Metric \"m\" assessed Failed due to consecutiveSuccess (1) < consecutiveSuccessLimit (3)"},
		{"five errors in a row", metric("m", "interval=5s"), "EEEEE", "Error", `Metric "m" assessed Error due to consecutiveErrors (5) > consecutiveErrorLimit (4): "Error Message: no connection"`},
		{"errors do not count", metric("m", "count=2", "interval=5s"), "EESEES", "Successful", ""},
		{"an inconclusive one", metric("m", "count=2", "interval=5s"), "SI", "Inconclusive", `Metric "m" assessed Inconclusive due to inconclusive (1) > inconclusiveLimit (0)`},
		{"without an end", metric("m", "interval=5s"), "SSSS", "Running", ""},
		{"in progress, and checked again", metric("m"), "RRS", "Successful", ""},
		{"after a delay", metric("m", "delay=1h"), "S", "Successful", ""},
		{"nothing to ask", argov1.Metric{Name: "m"}, "S", "Error", "Analysis spec invalid: metrics[0]: no provider specified"},
		{"a count that cannot be", metric("m", "count=2", "failures=3", "interval=5s"), "S", "Error", "Analysis spec invalid: metrics[0]: count (2) must be >= failureLimit + consecutiveSuccessLimit (3 + 0) if both >= 0"},
	} {
		p := newSimulatedRun(map[string]string{"m": c.outcomes}, c.metric)
		p.runUntil(noon.Add(24 * time.Hour))
		status := p.snapshot.Status
		if status.Phase != c.want || status.Message != c.message || (status.CompletedAt != nil) != c.want.Completed() {
			t.Errorf("%s: got %s %q at %v, want %s %q", c.name, status.Phase, status.Message, status.CompletedAt, c.want, c.message)
		}
	}
}

func TestFailedMetricTerminatesTheOthers(t *testing.T) {
	p := newSimulatedRun(map[string]string{"bad": "SF", "good": "SSSSS", "silent": ""},
		metric("bad", "interval=10s"), metric("good", "interval=10s"), metric("silent", "interval=10s"), metric("later", "delay=1h"))
	p.runUntil(noon.Add(time.Hour))
	status := p.snapshot.Status
	if status.Phase != argov1.AnalysisPhaseFailed || !status.CompletedAt.Time.Equal(noon.Add(10*time.Second)) {
		t.Errorf("got %s at %v", status.Phase, status.CompletedAt)
	}
	if status.RunSummary != (argov1.RunSummary{Count: 4, Successful: 3, Failed: 1}) || *status.DryRunSummary != (argov1.RunSummary{}) {
		t.Errorf("got %+v, %+v", status.RunSummary, *status.DryRunSummary)
	}
	want := []string{"Warning Metric 'bad' Completed. Result: Failed", "Warning Analysis Completed. Result: Failed"}
	if p.events[0] != want[0] || p.events[len(p.events)-1] != want[1] {
		t.Errorf("got %q", p.events)
	}
}

func TestADryRunIsOnlyRecorded(t *testing.T) {
	p := newSimulatedRun(map[string]string{"tried": "F", "real": "SS"}, metric("tried"), metric("real", "count=2", "interval=10s"))
	p.snapshot.Spec.DryRun = []argov1.DryRun{{MetricName: "tri.*"}}
	p.runUntil(noon.Add(time.Hour))
	status := p.snapshot.Status
	if status.Phase != argov1.AnalysisPhaseSuccessful || status.Message != "" {
		t.Errorf("got %s %q", status.Phase, status.Message)
	}
	if tried := status.MetricResults[0]; !tried.DryRun || tried.Message != "Metric assessed Failed due to failed (1) > failureLimit (0)" {
		t.Errorf("got %+v", tried)
	}
	if status.DryRunSummary.Failed != 1 || status.RunSummary.Successful != 1 {
		t.Errorf("got %+v, %+v", status.RunSummary, *status.DryRunSummary)
	}
}

func TestTerminatedRunIsSuccessful(t *testing.T) {
	p := newSimulatedRun(map[string]string{"m": "SS"}, metric("m", "interval=10s"))
	p.runUntil(noon.Add(10 * time.Second))
	p.snapshot.Spec.Terminate = true
	p.runUntil(noon.Add(time.Hour))
	if status := p.snapshot.Status; status.Phase != argov1.AnalysisPhaseSuccessful || status.Message != "Run Terminated" {
		t.Errorf("got %s %q", status.Phase, status.Message)
	}
}

func TestMeasurementRetentionLimitsTheStatus(t *testing.T) {
	p := newSimulatedRun(map[string]string{"few": strings.Repeat("S", 20), "many": strings.Repeat("S", 20)},
		metric("few", "count=20", "interval=1s"), metric("many", "count=20", "interval=1s"))
	p.snapshot.Spec.MeasurementRetention = []argov1.MeasurementRetention{{MetricName: "man", Limit: 15}}
	p.runUntil(noon.Add(time.Hour))
	if few, many := p.snapshot.Status.MetricResults[0], p.snapshot.Status.MetricResults[1]; len(few.Measurements) != 10 || len(many.Measurements) != 15 || many.Count != 20 {
		t.Errorf("%d and %d are kept, of %d", len(few.Measurements), len(many.Measurements), many.Count)
	}
}

// TestRunsAreBounded: an object of a megabyte causes an error of its own run, and does not occupy a worker.
func TestRunsAreBounded(t *testing.T) {
	many := func(n int, m func(i int) argov1.Metric) (out []argov1.Metric) {
		for i := range n {
			out = append(out, m(i))
		}
		return out
	}
	named := func(i int) argov1.Metric { return metric(fmt.Sprint("metric-", i)) }
	rules := make([]argov1.DryRun, 1000)
	for i := range rules {
		rules[i].MetricName = fmt.Sprint("metric-", i)
	}
	long := metric("m")
	long.Provider.Prometheus.Query = strings.Repeat("{{args.x}}", 50_000)
	for name, c := range map[string]struct {
		spec argov1.AnalysisRunSpec
		want string
	}{
		"arguments":        {argov1.AnalysisRunSpec{Metrics: []argov1.Metric{long}, Args: []argov1.Argument{{Name: "x", Value: new(strings.Repeat("x", 500_000))}}}, "exceeds 4 MiB"},
		"many arguments":   {argov1.AnalysisRunSpec{Metrics: many(900, func(i int) argov1.Metric { m := named(i); m.Provider.Prometheus.Query = "{{args.x}}"; return m }), Args: []argov1.Argument{{Name: "x", Value: new(strings.Repeat("x", 500_000))}}}, "exceeds 4 MiB"},
		"metrics":          {argov1.AnalysisRunSpec{Metrics: many(1001, named)}, "1001 metrics specified, at most 1000 are supported"},
		"large expression": {argov1.AnalysisRunSpec{Metrics: many(1, named), DryRun: []argov1.DryRun{{MetricName: strings.Repeat("x{1000}", 1000)}}}, "are too complex for the number of metrics"},
		"many rules":       {argov1.AnalysisRunSpec{Metrics: many(1000, named), DryRun: rules}, "are too complex for the number of metrics"},
	} {
		d := analysis.Next(analysis.Snapshot{Now: noon, Spec: c.spec})
		if d.Status.Phase != argov1.AnalysisPhaseError || !strings.Contains(d.Status.Message, c.want) {
			t.Errorf("%s: %s %.200q, want %q", name, d.Status.Phase, d.Status.Message, c.want)
		}
	}
	ordinary := argov1.AnalysisRunSpec{Metrics: many(50, named), DryRun: []argov1.DryRun{{MetricName: "metric-[0-9]+"}, {MetricName: ".*"}}, MeasurementRetention: []argov1.MeasurementRetention{{MetricName: "metric-.*", Limit: 20}}}
	if d := analysis.Next(analysis.Snapshot{Now: noon, Spec: ordinary}); d.Status.Phase != argov1.AnalysisPhaseRunning {
		t.Errorf("an ordinary run: %s %s", d.Status.Phase, d.Status.Message)
	}
}

// TestIntervalsHaveAMinimum: a shorter, or negative, interval is accepted, and the metric is measured once per second.
func TestIntervalsHaveAMinimum(t *testing.T) {
	for _, interval := range []string{"1ms", "1ns", "999ms", "-5m"} {
		p := newSimulatedRun(map[string]string{"m": strings.Repeat("S", 500)}, metric("m", "interval="+interval))
		p.runUntil(noon.Add(10 * time.Second))
		if count := p.snapshot.Status.MetricResults[0].Count; count != 11 {
			t.Errorf("interval %s: %d measurements in 10s, want 11", interval, count)
		}
		if want := "Warning Metric 'm' is measured every 1s: its interval " + interval + " is below the minimum"; p.events[0] != want || len(p.events) != 1 {
			t.Errorf("interval %s: events %q, want %q", interval, p.events, want)
		}
		p.snapshot.Answers = nil
		p.snapshot.Now = p.snapshot.Now.Add(time.Millisecond)
		if gates := fmt.Sprint(analysis.Next(p.snapshot).Gates); !strings.Contains(gates, "below the minimum of 1s") {
			t.Errorf("interval %s: gates %s", interval, gates)
		}
	}
}

// TestMeasurementsAreNeverContinuous: whatever the metric specifies.
func TestMeasurementsAreNeverContinuous(t *testing.T) {
	for name, m := range map[string]argov1.Metric{
		"errors": metric("m", "interval=1ms", "errors=1000000"), "delay": metric("m", "interval=1ms", "delay=-1h", "errors=1000000"),
	} {
		p := newSimulatedRun(map[string]string{"m": strings.Repeat("E", 500)}, m)
		p.runUntil(noon.Add(time.Minute))
		if count := p.snapshot.Status.MetricResults[0].Error; count != 7 {
			t.Errorf("%s: %d measurements in a minute, want 7", name, count)
		}
	}
	p := newSimulatedRun(map[string]string{"m": strings.Repeat("R", 500)}, metric("m", "interval=1ms"))
	p.runUntil(noon.Add(time.Minute))
	if left := len(p.outcomes["m"]); left < 430 {
		t.Errorf("a measurement in progress was checked %d times in a minute", 500-left)
	}
}

func TestRunIsDeletedAfterItsTTL(t *testing.T) {
	for _, c := range []struct {
		outcomes string
		keep     argov1.TTLStrategy
		gone     time.Duration
	}{
		{"S", argov1.TTLStrategy{SecondsAfterCompletion: new(int32(60))}, 61 * time.Second},
		{"S", argov1.TTLStrategy{SecondsAfterCompletion: new(int32(60)), SecondsAfterSuccess: new(int32(5))}, 6 * time.Second},
		{"F", argov1.TTLStrategy{SecondsAfterCompletion: new(int32(60)), SecondsAfterSuccess: new(int32(5))}, 61 * time.Second},
		{"F", argov1.TTLStrategy{SecondsAfterFailure: new(int32(0))}, time.Second},
	} {
		p := newSimulatedRun(map[string]string{"m": c.outcomes}, metric("m"))
		p.snapshot.Spec.TTLStrategy = &c.keep
		p.runUntil(noon.Add(c.gone - time.Nanosecond))
		if p.deleted {
			t.Errorf("%+v: too early", c.keep)
		}
		p.runUntil(noon.Add(c.gone))
		if !p.deleted {
			t.Errorf("%+v: still there", c.keep)
		}
	}
}

// For any metrics and answers, also in a process that has lost its state: the counts are consistent, a completed run is
// unchanged, and an incomplete one names what it waits for.
func TestRunInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		outcomes := map[string]string{}
		var metrics []argov1.Metric
		for i := range rapid.IntRange(0, 3).Draw(t, "metrics") {
			name := fmt.Sprint("m", i)
			var settings []string
			for _, key := range []string{"count", "failures", "inconclusive", "errors", "successes"} {
				if rapid.Bool().Draw(t, "has "+key) {
					settings = append(settings, fmt.Sprint(key, "=", rapid.IntRange(-1, 4).Draw(t, key)))
				}
			}
			for _, key := range []string{"interval", "delay"} {
				settings = append(settings, key+"="+rapid.SampledFrom([]string{"", "7s", "1m", "nonsense"}).Draw(t, key))
			}
			metrics = append(metrics, metric(name, settings...))
			outcomes[name] = strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"S", "S", "F", "I", "E", "R"}), 0, 12).Draw(t, "letters"), "")
		}
		p := newSimulatedRun(outcomes, metrics...)
		if rapid.Bool().Draw(t, "dry") {
			p.snapshot.Spec.DryRun = []argov1.DryRun{{MetricName: "m0"}}
		}
		for range 6 {
			p.runUntil(p.snapshot.Now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second))
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				p.snapshot.Answers = map[string]analysis.MeasurementResult{}
			}
			if rapid.IntRange(0, 9).Draw(t, "terminate") == 0 {
				p.snapshot.Spec.Terminate = true
			}
			d := analysis.Next(p.snapshot)
			if p.snapshot.Status.Phase.Completed() && (d.Status.Phase != p.snapshot.Status.Phase || len(d.Queries) > 0) {
				t.Fatalf("ended as %s, and then %s with %v", p.snapshot.Status.Phase, d.Status.Phase, d.Queries)
			}
			if !d.Status.Phase.Completed() && len(d.Queries) == 0 && d.Wake.IsZero() {
				t.Fatalf("nothing brings it on: %+v", d)
			}
			for _, result := range p.snapshot.Status.MetricResults {
				if result.Count != result.Successful+result.Failed+result.Inconclusive || result.ConsecutiveError > result.Error || len(result.Measurements) > 10 {
					t.Fatalf("counts do not add up: %+v", result)
				}
			}
		}
	})
}

// TestLongestRetentionDoesNotDeleteTheRun: the maximum of the field must not overflow.
func TestLongestRetentionDoesNotDeleteTheRun(t *testing.T) {
	now := noon
	d := analysis.Next(analysis.Snapshot{
		Now:    now,
		Spec:   argov1.AnalysisRunSpec{TTLStrategy: &argov1.TTLStrategy{SecondsAfterCompletion: new(int32(math.MaxInt32))}},
		Status: argov1.AnalysisRunStatus{Phase: argov1.AnalysisPhaseSuccessful, CompletedAt: new(metav1.NewTime(now))},
	})
	if len(d.Effects) > 0 || !d.Wake.After(now) {
		t.Errorf("got effects %v, next reconciliation at %s", d.Effects, d.Wake)
	}
}
