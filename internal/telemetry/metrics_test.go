package telemetry

import (
	"errors"
	"flag"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/serin-dev/serin/internal/release"
)

var update = flag.Bool("update", false, "write the list of metrics into docs/metrics.md")

// series returns the sorted lines of a scrape, without comments, buckets, and the counters that exist from the start.
func series(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	out := []string{}
	for line := range strings.Lines(text(t, registry)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket{") && !strings.HasPrefix(line, "serin_panics_total{") {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

func text(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&b, family); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

var shopCart = Canary{
	Namespace: "shop", Name: "cart-canary", Target: "cart", Phase: "Progressing", Strategy: "canary",
	Weights: &Weights{Primary: 80, Canary: 20},
}

func TestACanaryShowsTheSeriesThatDashboardsRead(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	m.SetInfo("1.2.3", "istio")
	m.SetCanary(shopCart)
	m.SetCanary(shopCart)
	m.SetCheckValue("shop", "cart", "request-success-rate", 99.5)
	m.RecordAnalysisDuration("shop", "cart", 250*time.Millisecond)
	m.SetWaitingGate("Canary", "shop", "cart-canary", WaitingGate{"window", release.ByTime, time.UnixMilli(1_000_500)})

	want := []string{
		`argo_rollouts_controller_info{goversion="` + runtime.Version() + `",version="1.2.3"} 1`,
		`flagger_canary_duration_seconds_count{name="cart",namespace="shop"} 1`,
		`flagger_canary_duration_seconds_sum{name="cart",namespace="shop"} 0.25`,
		`flagger_canary_failures_total{analysis_status="completed",deployment_strategy="canary",name="cart",namespace="shop"} 0`,
		`flagger_canary_metric_analysis{metric="request-success-rate",name="cart",namespace="shop"} 99.5`,
		`flagger_canary_status{name="cart",namespace="shop"} 0`,
		`flagger_canary_successes_total{analysis_status="completed",deployment_strategy="canary",name="cart",namespace="shop"} 0`,
		`flagger_canary_successes_total{analysis_status="skipped",deployment_strategy="canary",name="cart",namespace="shop"} 0`,
		`flagger_canary_total{namespace="shop"} 1`,
		`flagger_canary_weight{namespace="shop",workload="cart"} 20`,
		`flagger_canary_weight{namespace="shop",workload="cart-primary"} 80`,
		`flagger_info{mesh_provider="istio",version="1.2.3"} 1`,
		`serin_canary_phase{name="cart-canary",namespace="shop",phase="Progressing"} 1`,
		`serin_gate_waiting_since_timestamp_seconds{gate="window",kind="Canary",name="cart-canary",namespace="shop",opener="time"} 1000.5`,
	}
	expect(t, "series", series(t, registry), want)

	m.CountSuccess("shop", "cart", "canary", AnalysisCompleted)
	m.CountFailure("shop", "cart", "canary")
	after := strings.Join(series(t, registry), "\n")
	for _, want := range []string{
		`flagger_canary_successes_total{analysis_status="completed",deployment_strategy="canary",name="cart",namespace="shop"} 1`,
		`flagger_canary_failures_total{analysis_status="completed",deployment_strategy="canary",name="cart",namespace="shop"} 1`,
	} {
		if !strings.Contains(after, want) {
			t.Errorf("no series %s in\n%s", want, after)
		}
	}
}

// W54: flagger_canary_status has the values of Flagger; serin_canary_phase shows the exact phase.
func TestCanaryStatusHasFlaggersValuesAndThePhaseIsExact(t *testing.T) {
	for phase, want := range map[string]string{
		"":                 "",
		"Initializing":     "",
		"Initialized":      "1",
		"Waiting":          "1",
		"Progressing":      "0",
		"WaitingPromotion": "1",
		"Promoting":        "1",
		"Finalising":       "1",
		"Succeeded":        "1",
		"Failed":           "2",
		"Terminating":      "1",
	} {
		registry := prometheus.NewRegistry()
		m := New(registry)
		before := shopCart
		before.Phase = "Initializing"
		m.SetCanary(before)
		now := shopCart
		now.Phase = phase
		m.SetCanary(now)

		var status, phases []string
		for _, line := range series(t, registry) {
			switch name, value := line[:strings.Index(line, "{")], line[strings.LastIndex(line, " ")+1:]; name {
			case "flagger_canary_status":
				status = append(status, value)
			case "serin_canary_phase":
				phases = append(phases, line)
			}
		}
		expect(t, "status in "+phase, strings.Join(status, ""), want)
		if phase == "" {
			expect(t, "phases", len(phases), 0)
			continue
		}
		expect(t, "phases", phases, []string{`serin_canary_phase{name="cart-canary",namespace="shop",phase="` + phase + `"} 1`})
	}
}

func TestUnknownWeightsKeepTheLastKnownSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	m.SetCanary(shopCart)
	unknown := shopCart
	unknown.Weights = nil
	m.SetCanary(unknown)
	if all := strings.Join(series(t, registry), "\n"); !strings.Contains(all, `flagger_canary_weight{namespace="shop",workload="cart"} 20`) {
		t.Errorf("the weight is gone:\n%s", all)
	}
}

// W45: series outlived their objects, and totals froze.
func TestSeriesEndWithTheCanary(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	none := series(t, registry)
	other := shopCart
	other.Name, other.Target = "till-canary", "till"
	m.SetCanary(other)
	ofOther := series(t, registry)

	m.SetCanary(shopCart)
	m.SetCheckValue("shop", "cart", "latency", 1)
	m.RecordAnalysisDuration("shop", "cart", time.Second)
	m.SetWaitingGate("Canary", "shop", "cart-canary", WaitingGate{"window", release.ByTime, time.Unix(1, 0)})
	m.SetWaitingGate("Canary", "shop", "cart-canary", WaitingGate{"success-rate", release.ByAnswer, time.Unix(2, 0)})
	m.CountSuccess("shop", "cart", "canary", AnalysisSkipped)
	m.CountFailure("shop", "cart", "canary")
	if got, want := strings.Join(series(t, registry), "\n"), `flagger_canary_total{namespace="shop"} 2`; !strings.Contains(got, want) {
		t.Errorf("no series %s in\n%s", want, got)
	}

	m.ForgetCanary("shop", "cart-canary")
	expect(t, "series after one was deleted", series(t, registry), ofOther)
	m.ForgetCanary("shop", "till-canary")
	expect(t, "series after both were deleted", series(t, registry), none)
	m.ForgetCanary("shop", "till-canary")
	m.SetCheckValue("shop", "till", "latency", 1) // the measurement ends after the deletion
	m.RecordAnalysisDuration("shop", "till", time.Second)
	m.CountFailure("shop", "till", "canary")
	expect(t, "series after a second deletion and late records", series(t, registry), none)
	if len(m.canaries)+len(m.gates)+len(m.canariesByNamespace)+len(m.targets) != 0 {
		t.Errorf("state that remains: %v %v %v %v", m.canaries, m.gates, m.canariesByNamespace, m.targets)
	}
}

func TestATargetOfTheSameNameKeepsItsSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	daemon := shopCart
	daemon.Name = "cart-daemon"
	m.SetCanary(daemon)
	want := series(t, registry)
	m.SetCanary(shopCart)
	m.ForgetCanary("shop", "cart-canary")
	expect(t, "series", series(t, registry), want)
}

func TestAChangedTargetEndsTheSeriesOfTheOldOne(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	retargeted := shopCart
	retargeted.Target = "basket"
	m.SetCanary(retargeted)
	want := series(t, registry)

	registry = prometheus.NewRegistry()
	m = New(registry)
	m.SetCanary(shopCart)
	m.SetCheckValue("shop", "cart", "latency", 1)
	m.SetCanary(retargeted)
	expect(t, "series", series(t, registry), want)
}

// An increase is visible only after a sample before it.
func TestAlertsAreCountedAsLongAsTheirCanaryExists(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	m.CountAlert("shop", "cart-canary", nil) // it was deleted while the alert was sent
	if all := text(t, registry); strings.Contains(all, "serin_alerts_total{") {
		t.Errorf("a Canary that does not exist has a series: %s", all)
	}
	m.SetCanary(shopCart)
	m.CountAlert("shop", "cart-canary", errors.New("refused"))
	all := text(t, registry)
	for _, want := range []string{
		`serin_alerts_total{name="cart-canary",namespace="shop",outcome="failed"} 1`, `serin_alerts_total{name="cart-canary",namespace="shop",outcome="sent"} 0`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in %s", want, all)
		}
	}
	m.ForgetCanary("shop", "cart-canary")
	if all := text(t, registry); strings.Contains(all, "serin_alerts_total{") {
		t.Errorf("a deleted Canary has a series: %s", all)
	}
}

func TestPanicsAreCountedFromZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	if all, want := text(t, registry), `serin_panics_total{kind="Experiment"} 0`; !strings.Contains(all, want) {
		t.Errorf("no series %s in\n%s", want, all)
	}
	m.CountPanic("Experiment")
	if all, want := text(t, registry), `serin_panics_total{kind="Experiment"} 1`; !strings.Contains(all, want) {
		t.Errorf("no series %s in\n%s", want, all)
	}
}

func TestAGateHasOneSeriesForItsCurrentOpener(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	gate := WaitingGate{"confirm-promotion/qa", release.ByUser, time.Unix(1, 0)}
	m.SetWaitingGate("Canary", "shop", "cart", gate)
	gate.Opener = release.ByAnswer
	m.SetWaitingGate("Canary", "shop", "cart", gate)
	expect(t, "series", series(t, registry), []string{
		`serin_gate_waiting_since_timestamp_seconds{gate="confirm-promotion/qa",kind="Canary",name="cart",namespace="shop",opener="answer"} 1`,
	})
}

func TestAGateThatOpensHasNoSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	m.SetWaitingGate("Rollout", "shop", "cart", WaitingGate{"pause", release.ByUser, time.Unix(1, 0)})
	m.SetWaitingGate("Rollout", "shop", "cart", WaitingGate{})
	expect(t, "series", series(t, registry), []string{})
}

// The flagger_* names are fixed by Flagger; Serin's own must follow the conventions, and their help must be a sentence.
func TestMetricsFollowPrometheusConventions(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	m.SetCanary(shopCart)
	m.SetWaitingGate("Canary", "shop", "cart", WaitingGate{"window", release.ByTime, time.Unix(1, 0)})
	m.RecordQueryDuration(WebhookQuery, release.Yes, time.Second)
	m.RecordDecisionDuration("Canary", time.Microsecond)
	m.RecordLateness("Canary", -time.Second)
	m.apiRequests.WithLabelValues("get", "pods", "200")
	problems, err := promlint.New(strings.NewReader(text(t, registry))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if !strings.HasPrefix(problem.Metric, "flagger_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
	labels := []string{"kind", "namespace", "name", "gate", "opener", "provider", "outcome", "phase", "verb", "resource", "code", "plugin"} // an administrator configures the plugins
	for _, family := range m.Families() {
		if !strings.HasPrefix(family.Name, "serin_") {
			continue
		}
		if !strings.HasSuffix(family.Help, ".") {
			t.Errorf("help of %s is no sentence: %s", family.Name, family.Help)
		}
		for _, label := range family.Labels {
			if !slices.Contains(labels, label) {
				t.Errorf("%s has the label %s, which may have any number of values", family.Name, label)
			}
		}
	}
}

func TestFlaggersFamiliesAreComplete(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	want := []Family{
		{"flagger_info", "gauge", "Flagger version and mesh provider information", []string{"version", "mesh_provider"}},
		{"flagger_canary_total", "gauge", "Total number of canary object", []string{"namespace"}},
		{"flagger_canary_status", "gauge", "Last canary analysis result", []string{"name", "namespace"}},
		{"flagger_canary_weight", "gauge", "The virtual service destination weight current value", []string{"workload", "namespace"}},
		{"flagger_canary_duration_seconds", "histogram", "Seconds spent performing canary analysis.", []string{"name", "namespace"}},
		{"flagger_canary_metric_analysis", "gauge", "Last canary analysis result per metric", []string{"name", "namespace", "metric"}},
		{"flagger_canary_successes_total", "counter", "Total number of canary successes", []string{"name", "namespace", "deployment_strategy", "analysis_status"}},
		{"flagger_canary_failures_total", "counter", "Total number of canary failures", []string{"name", "namespace", "deployment_strategy", "analysis_status"}},
	}
	expect(t, "families", m.Families()[:len(want)], want)

	m.SetCanary(shopCart)
	m.RecordAnalysisDuration("shop", "cart", time.Second)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		var buckets []float64
		for _, bucket := range family.GetMetric()[0].GetHistogram().GetBucket() {
			buckets = append(buckets, bucket.GetUpperBound())
		}
		expect(t, "buckets", buckets, []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10})
	}
}

func TestTheDocumentationListsEveryMetric(t *testing.T) {
	const page, begin, end = "../../docs/metrics.md", "<!-- metrics -->\n", "<!-- end of metrics -->\n"
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(content), begin)
	listed, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("docs/metrics.md lacks the marks %q and %q", begin, end)
	}
	table := New(prometheus.NewRegistry()).Markdown()
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if listed != table {
		t.Errorf("docs/metrics.md differs from the declared metrics: go test ./internal/telemetry -update")
		expect(t, "list", strings.Split(listed, "\n"), strings.Split(table, "\n"))
	}
}
