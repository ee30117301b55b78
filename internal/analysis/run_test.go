package analysis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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

// play runs an AnalysisRun. Letters are the results of the measurements of a metric in turn: S, F, I, E; a metric
// without letters gets no result. It ends when nothing more happens, or at the time until.
type play struct {
	s       analysis.Snapshot
	letters map[string]string
	events  []string
	deleted bool
}

func newPlay(letters map[string]string, metrics ...argov1.Metric) *play {
	return &play{
		s:       analysis.Snapshot{Now: noon, UID: "run", Spec: argov1.AnalysisRunSpec{Metrics: metrics}, Answers: map[string]analysis.MeasurementResult{}},
		letters: letters,
	}
}

func (p *play) until(end time.Time) {
	for range 1000 {
		d := analysis.Next(p.s)
		p.s.Status = d.Status
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
		for _, probe := range d.Queries {
			question, ok := probe.Request.(analysis.MeasurementRequest)
			if !ok {
				panic("a question of another kind")
			}
			letters := p.letters[question.Metric.Name]
			if letters == "" {
				continue
			}
			answered = true
			answer := analysis.MeasurementResult{StartedAt: p.s.Now, FinishedAt: p.s.Now, Value: letters[:1]}
			switch letters[:1] {
			case "E":
				answer.Phase, answer.Message = argov1.AnalysisPhaseError, "no connection"
			case "R":
				answer.Phase = argov1.AnalysisPhaseRunning
			default:
				answer.Phase, _ = condition.EvaluatePhase(context.Background(), answer.Value, question.Metric.SuccessCondition, question.Metric.FailureCondition)
			}
			p.letters[question.Metric.Name] = letters[1:]
			p.s.Answers[probe.ID] = answer
		}
		switch {
		case answered:
		case d.Wake.IsZero() || d.Wake.After(end):
			p.s.Now = end
			return
		default:
			p.s.Now = later(p.s.Now, d.Wake)
		}
	}
	panic("it never comes to rest")
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func TestRuns(t *testing.T) {
	for _, c := range []struct {
		name    string
		metric  argov1.Metric
		letters string
		want    argov1.AnalysisPhase
		message string
	}{
		{"one good measurement", metric("m"), "S", "Successful", ""},
		{"a failure within its limit", metric("m", "count=3", "failures=1", "interval=5s"), "SFS", "Successful", ""},
		{"one failure too many", metric("m", "count=3", "failures=1", "interval=5s"), "SFF", "Failed", `Metric "m" assessed Failed due to failed (2) > failureLimit (1)`},
		{"neither limit decides", metric("m", "count=5", "failures=1", "successes=3", "interval=5s"), "SSFSS", "Inconclusive", ""},
		{"enough in a row", metric("m", "count=5", "failures=1", "successes=3", "interval=5s"), "SFSSS", "Successful", ""},
		{"failures do not count, and not enough in a row", metric("m", "count=3", "failures=-1", "successes=3", "interval=5s"), "SFS", "Failed", ""},
		{"five errors in a row", metric("m", "interval=5s"), "EEEEE", "Error", `Metric "m" assessed Error due to consecutiveErrors (5) > consecutiveErrorLimit (4): "Error Message: no connection"`},
		{"errors do not count", metric("m", "count=2", "interval=5s"), "EESEES", "Successful", ""},
		{"an inconclusive one", metric("m", "count=2", "interval=5s"), "SI", "Inconclusive", `Metric "m" assessed Inconclusive due to inconclusive (1) > inconclusiveLimit (0)`},
		{"without an end", metric("m", "interval=5s"), "SSSS", "Running", ""},
		{"under way, and looked at again", metric("m"), "RRS", "Successful", ""},
		{"after a delay", metric("m", "delay=1h"), "S", "Successful", ""},
		{"nothing to ask", argov1.Metric{Name: "m"}, "S", "Error", "Analysis spec invalid: metrics[0]: no provider specified"},
		{"a count that cannot be", metric("m", "count=2", "failures=3", "interval=5s"), "S", "Error", "Analysis spec invalid: metrics[0]: count (2) must be >= failureLimit + consecutiveSuccessLimit (3 + 0) if both >= 0"},
	} {
		p := newPlay(map[string]string{"m": c.letters}, c.metric)
		p.until(noon.Add(24 * time.Hour))
		status := p.s.Status
		if status.Phase != c.want || status.Message != c.message || (status.CompletedAt != nil) != c.want.Completed() {
			t.Errorf("%s: got %s %q at %v, want %s %q", c.name, status.Phase, status.Message, status.CompletedAt, c.want, c.message)
		}
	}
}

func TestFailedMetricTerminatesTheOthers(t *testing.T) {
	p := newPlay(map[string]string{"bad": "SF", "good": "SSSSS", "silent": ""},
		metric("bad", "interval=10s"), metric("good", "interval=10s"), metric("silent", "interval=10s"), metric("later", "delay=1h"))
	p.until(noon.Add(time.Hour))
	status := p.s.Status
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
	p := newPlay(map[string]string{"tried": "F", "real": "SS"}, metric("tried"), metric("real", "count=2", "interval=10s"))
	p.s.Spec.DryRun = []argov1.DryRun{{MetricName: "tri.*"}}
	p.until(noon.Add(time.Hour))
	status := p.s.Status
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
	p := newPlay(map[string]string{"m": "SS"}, metric("m", "interval=10s"))
	p.until(noon.Add(10 * time.Second))
	p.s.Spec.Terminate = true
	p.until(noon.Add(time.Hour))
	if status := p.s.Status; status.Phase != argov1.AnalysisPhaseSuccessful || status.Message != "Run Terminated" {
		t.Errorf("got %s %q", status.Phase, status.Message)
	}
}

func TestMeasurementRetention(t *testing.T) {
	p := newPlay(map[string]string{"few": strings.Repeat("S", 20), "many": strings.Repeat("S", 20)},
		metric("few", "count=20", "interval=1s"), metric("many", "count=20", "interval=1s"))
	p.s.Spec.MeasurementRetention = []argov1.MeasurementRetention{{MetricName: "man", Limit: 15}}
	p.until(noon.Add(time.Hour))
	if few, many := p.s.Status.MetricResults[0], p.s.Status.MetricResults[1]; len(few.Measurements) != 10 || len(many.Measurements) != 15 || many.Count != 20 {
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
		p := newPlay(map[string]string{"m": strings.Repeat("S", 500)}, metric("m", "interval="+interval))
		p.until(noon.Add(10 * time.Second))
		if count := p.s.Status.MetricResults[0].Count; count != 11 {
			t.Errorf("interval %s: %d measurements in 10s, want 11", interval, count)
		}
		if want := "Warning Metric 'm' is measured every 1s: its interval " + interval + " is below the minimum"; p.events[0] != want || len(p.events) != 1 {
			t.Errorf("interval %s: events %q, want %q", interval, p.events, want)
		}
		p.s.Answers = nil
		p.s.Now = p.s.Now.Add(time.Millisecond)
		if gates := fmt.Sprint(analysis.Next(p.s).Gates); !strings.Contains(gates, "below the minimum of 1s") {
			t.Errorf("interval %s: gates %s", interval, gates)
		}
	}
}

// TestMeasurementsAreNeverContinuous: whatever the metric specifies.
func TestMeasurementsAreNeverContinuous(t *testing.T) {
	for name, m := range map[string]argov1.Metric{
		"errors": metric("m", "interval=1ms", "errors=1000000"), "delay": metric("m", "interval=1ms", "delay=-1h", "errors=1000000"),
	} {
		p := newPlay(map[string]string{"m": strings.Repeat("E", 500)}, m)
		p.until(noon.Add(time.Minute))
		if count := p.s.Status.MetricResults[0].Error; count != 7 {
			t.Errorf("%s: %d measurements in a minute, want 7", name, count)
		}
	}
	p := newPlay(map[string]string{"m": strings.Repeat("R", 500)}, metric("m", "interval=1ms"))
	p.until(noon.Add(time.Minute))
	if left := len(p.letters["m"]); left < 430 {
		t.Errorf("a measurement under way was looked at %d times in a minute", 500-left)
	}
}

func TestRunIsDeletedAfterItsTTL(t *testing.T) {
	for _, c := range []struct {
		letters string
		keep    argov1.TTLStrategy
		gone    time.Duration
	}{
		{"S", argov1.TTLStrategy{SecondsAfterCompletion: new(int32(60))}, 61 * time.Second},
		{"S", argov1.TTLStrategy{SecondsAfterCompletion: new(int32(60)), SecondsAfterSuccess: new(int32(5))}, 6 * time.Second},
		{"F", argov1.TTLStrategy{SecondsAfterCompletion: new(int32(60)), SecondsAfterSuccess: new(int32(5))}, 61 * time.Second},
		{"F", argov1.TTLStrategy{SecondsAfterFailure: new(int32(0))}, time.Second},
	} {
		p := newPlay(map[string]string{"m": c.letters}, metric("m"))
		p.s.Spec.TTLStrategy = &c.keep
		p.until(noon.Add(c.gone - time.Nanosecond))
		if p.deleted {
			t.Errorf("%+v: too early", c.keep)
		}
		p.until(noon.Add(c.gone))
		if !p.deleted {
			t.Errorf("%+v: still there", c.keep)
		}
	}
}

// For any metrics and answers, also in a process that has lost its state: the counts are consistent, a completed run is
// unchanged, and an incomplete one names what it waits for.
func TestRunInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := map[string]string{}
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
			letters[name] = strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"S", "S", "F", "I", "E", "R"}), 0, 12).Draw(t, "letters"), "")
		}
		p := newPlay(letters, metrics...)
		if rapid.Bool().Draw(t, "dry") {
			p.s.Spec.DryRun = []argov1.DryRun{{MetricName: "m0"}}
		}
		for range 6 {
			p.until(p.s.Now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second))
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				p.s.Answers = map[string]analysis.MeasurementResult{}
			}
			if rapid.IntRange(0, 9).Draw(t, "terminate") == 0 {
				p.s.Spec.Terminate = true
			}
			d := analysis.Next(p.s)
			if p.s.Status.Phase.Completed() && (d.Status.Phase != p.s.Status.Phase || len(d.Queries) > 0) {
				t.Fatalf("ended as %s, and then %s with %v", p.s.Status.Phase, d.Status.Phase, d.Queries)
			}
			if !d.Status.Phase.Completed() && len(d.Queries) == 0 && d.Wake.IsZero() {
				t.Fatalf("nothing brings it on: %+v", d)
			}
			for _, result := range p.s.Status.MetricResults {
				if result.Count != result.Successful+result.Failed+result.Inconclusive || result.ConsecutiveError > result.Error || len(result.Measurements) > 10 {
					t.Fatalf("counts do not add up: %+v", result)
				}
			}
		}
	})
}
