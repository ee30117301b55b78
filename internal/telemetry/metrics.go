package telemetry

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

// The values of the label analysis_status.
const (
	AnalysisCompleted = "completed"
	AnalysisSkipped   = "skipped"
)

// The values of the label kind of serin_probe_duration_seconds.
const (
	WebhookQuery = "hook"
	MetricQuery  = "metric"
)

// The values of the label kind of other metrics.
const (
	canaryKind      = "Canary"
	rolloutKind     = "Rollout"
	analysisRunKind = "AnalysisRun"
	experimentKind  = "Experiment"
)

// reconciledKinds are all kinds that have a reconciler.
var reconciledKinds = []string{canaryKind, rolloutKind, analysisRunKind, experimentKind}

// Metrics are all series of the controller itself. The flagger_* families have the names, labels and help texts that
// dashboards and alerts of users rely on; their label name is the name of the target, not of the Canary. The series of an
// object end when it is deleted. All methods are safe for concurrent use.
type Metrics struct {
	families []Family

	info      *prometheus.GaugeVec
	total     *prometheus.GaugeVec
	status    *prometheus.GaugeVec
	weight    *prometheus.GaugeVec
	duration  *prometheus.HistogramVec
	analysis  *prometheus.GaugeVec
	successes *prometheus.CounterVec
	failures  *prometheus.CounterVec

	phase            *prometheus.GaugeVec
	waiting          *prometheus.GaugeVec
	queries          *prometheus.HistogramVec
	decisionDuration *prometheus.HistogramVec
	lateness         *prometheus.HistogramVec
	apiRequests      *prometheus.CounterVec
	shardsHeld       *prometheus.GaugeVec
	panics           *prometheus.CounterVec
	rollouts         *rolloutSeries

	notifications *notificationSeries
	alerts        *prometheus.CounterVec
	plugins       pluginSeries

	registerer prometheus.Registerer
	argoproj   map[string]reconciliationSeries // by kind
	analyses   *analysisCollector

	mu                  sync.Mutex
	canaries            map[types.NamespacedName]Canary // as last shown
	gates               map[waitingRelease]WaitingGate  // those with a series
	canariesByNamespace map[string]int                  // the number of Canaries
	targets             map[types.NamespacedName]*targetSeries
}

// targetSeries lists the series that are named after a target. It counts Canaries because a Deployment and a DaemonSet may
// share a name.
type targetSeries struct {
	canaries            int
	metrics, strategies map[string]bool
}

type waitingRelease struct{ kind, namespace, name string }

// WaitingGate is the gate that blocks a release. The zero value means none.
type WaitingGate struct {
	Name   string
	Opener release.Opener
	// Since is the beginning of the wait.
	Since time.Time
}

// Family is the declaration of one metric.
type Family struct {
	Name, Type, Help string
	Labels           []string
}

// New declares and registers every metric. It panics when one is registered already, which is a mistake in main.
// The caller registers the collectors of the Go runtime and the process.
func New(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{
		registerer: registerer, argoproj: map[string]reconciliationSeries{},
		canaries:            map[types.NamespacedName]Canary{},
		gates:               map[waitingRelease]WaitingGate{},
		canariesByNamespace: map[string]int{},
		targets:             map[types.NamespacedName]*targetSeries{},
	}
	d := declaration{registerer: registerer, families: &m.families}

	m.info = d.gauge("flagger_info", "Flagger version and mesh provider information", "version", "mesh_provider")
	m.total = d.gauge("flagger_canary_total", "Total number of canary object", "namespace")
	m.status = d.gauge("flagger_canary_status", "Last canary analysis result", "name", "namespace")
	m.weight = d.gauge("flagger_canary_weight", "The virtual service destination weight current value",
		"workload", "namespace")
	m.duration = d.histogram("flagger_canary_duration_seconds", "Seconds spent performing canary analysis.",
		prometheus.DefBuckets, "name", "namespace")
	m.analysis = d.gauge("flagger_canary_metric_analysis", "Last canary analysis result per metric",
		"name", "namespace", "metric")
	m.successes = d.counter("flagger_canary_successes_total", "Total number of canary successes",
		"name", "namespace", "deployment_strategy", "analysis_status")
	m.failures = d.counter("flagger_canary_failures_total", "Total number of canary failures",
		"name", "namespace", "deployment_strategy", "analysis_status")

	m.phase = d.gauge("serin_canary_phase", "The phase a Canary is in: 1 for that phase, no series for any other.",
		"namespace", "name", "phase")
	m.waiting = d.gauge("serin_gate_waiting_since_timestamp_seconds",
		"Time since which the first closed gate has blocked a release, in seconds since 1970; the opener is person, cluster, answer or time.",
		"kind", "namespace", "name", "gate", "opener")
	m.queries = d.histogram("serin_probe_duration_seconds",
		"Time from a query to a metrics provider or a webhook until its answer, including retries.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "kind", "outcome")
	m.decisionDuration = d.histogram("serin_decision_duration_seconds", "Duration of one decision about a release.",
		[]float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 1e-3, 1e-2, .1}, "kind")
	m.lateness = d.histogram("serin_step_lateness_seconds",
		"Delay between the time at which a step was due and the time at which it was taken.",
		[]float64{.001, .005, .01, .05, .1, .25, .5, 1, 2, 5, 10, 60}, "kind")
	m.apiRequests = d.counter("serin_api_requests_total",
		"Requests to the API server; the code is none if there was no response.", "verb", "resource", "code")
	m.shardsHeld = d.gauge("serin_shards_held", "Shards whose releases this process reconciles; no series without -shards.")
	m.panics = d.counter("serin_panics_total",
		"Reconciliations that panicked; the release reports it, and other releases are unaffected.", "kind")
	m.alerts = d.counter("serin_alerts_total",
		"Alerts about a Canary; the outcome is sent, or failed for those that were given up.", "namespace", "name", "outcome")
	m.rollouts = newRolloutSeries(d)
	m.notifications = newNotificationSeries(d)
	m.plugins = newPluginSeries(d)
	m.argoproj[analysisRunKind] = d.declareReconciliations("analysis_run", "an AnalysisRun")
	m.argoproj[experimentKind] = d.declareReconciliations("experiment", "an Experiment")
	m.analyses = newAnalysisCollector(d)
	// A panic is rare: without a sample before the first one, increase() would miss it.
	for _, kind := range reconciledKinds {
		m.panics.WithLabelValues(kind)
	}
	return m
}

// declaration creates, registers and lists metrics, so that each is declared in one place.
type declaration struct {
	registerer prometheus.Registerer
	families   *[]Family
}

func (d declaration) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return registerCollector(d, "gauge", name, help, labels,
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func (d declaration) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return registerCollector(d, "counter", name, help, labels,
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (d declaration) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return registerCollector(d, "histogram", name, help, labels,
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

func registerCollector[C prometheus.Collector](d declaration, kind, name, help string, labels []string, collector C) C {
	d.registerer.MustRegister(collector)
	*d.families = append(*d.families, Family{Name: name, Type: kind, Help: help, Labels: labels})
	return collector
}

// Families returns all metrics in the order of their declaration.
func (m *Metrics) Families() []Family { return m.families }

// Markdown returns the table of all metrics for the documentation.
func (m *Metrics) Markdown() string {
	var b strings.Builder
	b.WriteString("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, f := range m.families {
		labels := "none"
		if len(f.Labels) > 0 {
			labels = "`" + strings.Join(f.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, labels, f.Help)
	}
	return b.String()
}

// SetInfo exports the version, under the metric names of Flagger and Argo Rollouts, and the configured mesh provider.
func (m *Metrics) SetInfo(version, meshProvider string) {
	m.info.WithLabelValues(version, meshProvider).Set(1)
	m.rollouts.controller.WithLabelValues(version, runtime.Version()).Set(1)
}

// SetShardsHeld exports the number of shards that this process holds.
func (m *Metrics) SetShardsHeld(shards int) { m.shardsHeld.WithLabelValues().Set(float64(shards)) }

// Canary is the state of one Canary that the metrics show.
type Canary struct {
	Namespace, Name string
	// Target is the name of the workload.
	Target string
	// Phase is the phase in the status; empty while the status has none.
	Phase string
	// Strategy is canary, blue-green or ab-testing.
	Strategy string
	// Weights are the shares of traffic, 0 to 100. nil means unknown: the last known weights remain.
	Weights *Weights
}

// Weights are the shares of traffic of the two workloads of a Canary.
type Weights struct{ Primary, Canary int }

// SetCanary exports the state of a Canary. It is idempotent, so every reconciliation may call it. The first call creates the
// counters of the strategy with zero, so that their first increment is visible as an increase.
func (m *Metrics) SetCanary(c Canary) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	before, known := m.canaries[key]
	if known && before.Target != c.Target {
		m.dropCanary(before)
		known = false
	}
	if !known {
		m.addCanary(c)
		before = Canary{}
	}
	weights := c.Weights
	if weights == nil {
		weights = before.Weights
	}
	shown := c
	shown.Weights = weights
	m.canaries[key] = shown

	if c.Strategy != "" && before.Strategy != c.Strategy {
		m.targets[types.NamespacedName{Namespace: c.Namespace, Name: c.Target}].strategies[c.Strategy] = true
		m.successes.WithLabelValues(c.Target, c.Namespace, c.Strategy, AnalysisCompleted)
		m.successes.WithLabelValues(c.Target, c.Namespace, c.Strategy, AnalysisSkipped)
		m.failures.WithLabelValues(c.Target, c.Namespace, c.Strategy, AnalysisCompleted)
	}
	if before.Phase != c.Phase {
		m.phase.DeleteLabelValues(c.Namespace, c.Name, before.Phase)
		if c.Phase != "" {
			m.phase.WithLabelValues(c.Namespace, c.Name, c.Phase).Set(1)
		}
	}
	if result, ok := analysisResult(c.Phase); ok {
		m.status.WithLabelValues(c.Target, c.Namespace).Set(result)
	}
	if c.Weights != nil {
		m.weight.WithLabelValues(c.Target+"-primary", c.Namespace).Set(float64(c.Weights.Primary))
		m.weight.WithLabelValues(c.Target, c.Namespace).Set(float64(c.Weights.Canary))
	}
}

// analysisResult returns the value of flagger_canary_status. Like Flagger, it reports every phase that is neither progressing
// nor failed as a success; serin_canary_phase is more precise. There is no value before the initialisation has ended.
func analysisResult(phase string) (float64, bool) {
	switch phase {
	case "", "Initializing":
		return 0, false
	case "Progressing":
		return 0, true
	case "Failed":
		return 2, true
	default:
		return 1, true
	}
}

// CountSuccess counts a success of a Canary that SetCanary has exported; status is AnalysisCompleted or AnalysisSkipped.
func (m *Metrics) CountSuccess(namespace, target, strategy, status string) {
	m.countResult(m.successes, namespace, target, strategy, status)
}

// CountFailure counts a failure of a Canary that SetCanary has exported.
func (m *Metrics) CountFailure(namespace, target, strategy string) {
	m.countResult(m.failures, namespace, target, strategy, AnalysisCompleted)
}

func (m *Metrics) countResult(family *prometheus.CounterVec, namespace, target, strategy, status string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if series := m.targets[types.NamespacedName{Namespace: namespace, Name: target}]; series != nil {
		series.strategies[strategy] = true
		family.WithLabelValues(target, namespace, strategy, status).Inc()
	}
}

// RecordAnalysisDuration records the duration of a reconciliation that judged or advanced a Canary.
func (m *Metrics) RecordAnalysisDuration(namespace, target string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.targets[types.NamespacedName{Namespace: namespace, Name: target}] != nil {
		m.duration.WithLabelValues(target, namespace).Observe(took.Seconds())
	}
}

// SetCheckValue exports the last value of a check: the success rate in percent, the duration in seconds, others unchanged. A
// measurement that ends after its Canary was deleted is ignored: its series would never end.
func (m *Metrics) SetCheckValue(namespace, target, metric string, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if series := m.targets[types.NamespacedName{Namespace: namespace, Name: target}]; series != nil {
		series.metrics[metric] = true
		m.analysis.WithLabelValues(target, namespace, metric).Set(value)
	}
}

// CountPanic counts a reconciliation that panicked.
func (m *Metrics) CountPanic(kind string) { m.panics.WithLabelValues(kind).Inc() }

// The outcomes of alerts.
const (
	alertSent   = "sent"
	alertFailed = "failed"
)

// CountAlert counts an alert about a Canary that SetCanary has exported: err is the reason why Serin gave it up, nil means that
// it was sent. Both series start with the first alert, so that a Canary without alerts has none.
func (m *Metrics) CountAlert(namespace, name string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.canaries[types.NamespacedName{Namespace: namespace, Name: name}]; !known {
		return // its series would never end
	}
	sent, failed := m.alerts.WithLabelValues(namespace, name, alertSent), m.alerts.WithLabelValues(namespace, name, alertFailed)
	if err == nil {
		sent.Inc()
	} else {
		failed.Inc()
	}
}

// SetWaitingGate exports the gate that blocks a release of that kind.
func (m *Metrics) SetWaitingGate(kind, namespace, name string, gate WaitingGate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setWaiting(waitingRelease{kind, namespace, name}, gate)
}

func (m *Metrics) setWaiting(r waitingRelease, gate WaitingGate) {
	if before, known := m.gates[r]; known && (before.Name != gate.Name || before.Opener != gate.Opener) {
		m.waiting.DeleteLabelValues(r.kind, r.namespace, r.name, before.Name, string(before.Opener))
	}
	if gate == (WaitingGate{}) {
		delete(m.gates, r)
		return
	}
	m.gates[r] = gate
	m.waiting.WithLabelValues(r.kind, r.namespace, r.name, gate.Name, string(gate.Opener)).Set(float64(gate.Since.UnixMilli()) / 1000)
}

// RecordQueryDuration records the time between a query and its answer; kind is WebhookQuery or MetricQuery.
func (m *Metrics) RecordQueryDuration(kind string, outcome release.Outcome, took time.Duration) {
	m.queries.WithLabelValues(kind, string(outcome)).Observe(took.Seconds())
}

// RecordDecisionDuration records the duration of one decision about a release of that kind.
func (m *Metrics) RecordDecisionDuration(kind string, took time.Duration) {
	m.decisionDuration.WithLabelValues(kind).Observe(took.Seconds())
}

// RecordLateness records the delay of a step of a release of that kind; a negative delay counts as zero.
func (m *Metrics) RecordLateness(kind string, by time.Duration) {
	m.lateness.WithLabelValues(kind).Observe(max(by, 0).Seconds())
}

// HideCanary ends the series of SetCanary, for a Canary that does not release its target. The series that are named after the target
// remain while another Canary of the namespace has a target of that name.
func (m *Metrics) HideCanary(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, known := m.canaries[types.NamespacedName{Namespace: namespace, Name: name}]; known {
		m.dropCanary(c)
	}
}

// ForgetCanary ends all series of a deleted Canary.
func (m *Metrics) ForgetCanary(namespace, name string) {
	m.HideCanary(namespace, name)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, outcome := range []string{alertSent, alertFailed} {
		m.alerts.DeleteLabelValues(namespace, name, outcome)
	}
	m.setWaiting(waitingRelease{canaryKind, namespace, name}, WaitingGate{})
}

func (m *Metrics) addCanary(c Canary) {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Target}
	if m.targets[key] == nil {
		m.targets[key] = &targetSeries{metrics: map[string]bool{}, strategies: map[string]bool{}}
	}
	m.targets[key].canaries++
	m.canariesByNamespace[c.Namespace]++
	m.total.WithLabelValues(c.Namespace).Set(float64(m.canariesByNamespace[c.Namespace]))
}

// dropCanary ends the series of a Canary that has some.
func (m *Metrics) dropCanary(c Canary) {
	delete(m.canaries, types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	m.phase.DeleteLabelValues(c.Namespace, c.Name, c.Phase)

	m.canariesByNamespace[c.Namespace]--
	if remaining := m.canariesByNamespace[c.Namespace]; remaining > 0 {
		m.total.WithLabelValues(c.Namespace).Set(float64(remaining))
	} else {
		delete(m.canariesByNamespace, c.Namespace)
		m.total.DeleteLabelValues(c.Namespace)
	}

	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Target}
	series := m.targets[key]
	if series.canaries--; series.canaries > 0 {
		return
	}
	delete(m.targets, key)
	m.dropTarget(c.Namespace, c.Target, series)
}

// dropTarget deletes each series by all of its labels: a partial match visits the series of all Canaries.
func (m *Metrics) dropTarget(namespace, name string, series *targetSeries) {
	m.status.DeleteLabelValues(name, namespace)
	m.duration.DeleteLabelValues(name, namespace)
	for metric := range series.metrics {
		m.analysis.DeleteLabelValues(name, namespace, metric)
	}
	for strategy := range series.strategies {
		for _, status := range []string{AnalysisCompleted, AnalysisSkipped} {
			m.successes.DeleteLabelValues(name, namespace, strategy, status)
			m.failures.DeleteLabelValues(name, namespace, strategy, status)
		}
	}
	m.weight.DeleteLabelValues(name, namespace)
	m.weight.DeleteLabelValues(name+"-primary", namespace)
}
