package telemetry

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// passes are the series about the reconciliations of one kind of the argoproj API.
type passes struct {
	took   *prometheus.HistogramVec
	failed *prometheus.CounterVec

	mu *sync.Mutex
	of map[types.NamespacedName]bool // the objects that exist
}

// passBuckets are those of the API's own series.
var passBuckets = []float64{0.01, 0.15, 0.25, 0.5, 1}

func (d declaration) passes(prefix, of string) passes {
	return passes{
		mu: &sync.Mutex{}, of: map[types.NamespacedName]bool{},
		took:   d.histogram(prefix+"_reconcile", "Duration of the reconciliations of "+of+", in seconds.", passBuckets, "namespace", "name"),
		failed: d.counter(prefix+"_reconcile_error", "Reconciliations of "+of+" that failed.", "namespace", "name"),
	}
}

// record calls f unless the object is gone.
func (m *Metrics) record(kind string, key types.NamespacedName, f func(p passes)) {
	p, ok := m.argoproj[kind]
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[key] {
		f(p)
	}
}

// Exists begins the series of an object of the argoproj API. Until then, and again after ForgetReconciled, nothing is
// recorded of it: the reconciliation that finds it gone would begin series that never end.
func (m *Metrics) Exists(kind string, key types.NamespacedName) {
	if p, ok := m.argoproj[kind]; ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.of[key] = true
	}
}

// Reconciled records a reconciliation of an object of the argoproj API.
func (m *Metrics) Reconciled(kind string, key types.NamespacedName, took time.Duration) {
	if kind == rolloutKind {
		m.rolloutReconciled(key, took)
	}
	m.record(kind, key, func(p passes) { p.took.WithLabelValues(key.Namespace, key.Name).Observe(took.Seconds()) })
}

// ReconcileFailed counts a reconciliation of an object of the argoproj API that failed.
func (m *Metrics) ReconcileFailed(kind string, key types.NamespacedName) {
	if kind == rolloutKind {
		m.rolloutFailed(key)
	}
	m.record(kind, key, func(p passes) { p.failed.WithLabelValues(key.Namespace, key.Name).Inc() })
}

// ForgetReconciled ends the series of an object that is gone.
func (m *Metrics) ForgetReconciled(kind string, key types.NamespacedName) {
	m.record(kind, key, func(p passes) {
		p.took.DeleteLabelValues(key.Namespace, key.Name)
		p.failed.DeleteLabelValues(key.Namespace, key.Name)
		delete(p.of, key)
	})
}

// Analyses are what there is of the analysis kinds at one moment.
type Analyses struct {
	Runs        []Run
	Experiments []Run
	Templates   []Template
}

// Run is an AnalysisRun, or an Experiment, which has no metrics.
type Run struct {
	Namespace, Name, Phase string
	Metrics                []RunMetric
}

// RunMetric is a metric of a run; Type is that of its provider.
type RunMetric struct {
	Name, Type, Phase string
	DryRun            bool
}

// Template is an AnalysisTemplate, or one of the cluster, which has no namespace.
type Template struct {
	Namespace, Name string
	Metrics         []RunMetric
}

// analysisPhases are all phases of runs and Experiments: their series stand for all, with 1 for the one that they are in.
var analysisPhases = []string{"Pending", "Running", "Successful", "Failed", "Error", "Inconclusive"}

// analyses are the series about AnalysisRuns, Experiments and templates. They are made of the objects when somebody asks
// for them, so that they end with the objects, and nothing has to be remembered.
type analyses struct {
	look func() Analyses

	runInfo, runPhase, metricType, metricPhase, templateInfo, templateMetric, experimentInfo, experimentPhase *prometheus.Desc
}

func (d declaration) described(name, help string, labels ...string) *prometheus.Desc {
	*d.families = append(*d.families, Family{Name: name, Type: "gauge", Help: help, Labels: labels})
	return prometheus.NewDesc(name, help, labels, nil)
}

func newAnalyses(d declaration) *analyses {
	return &analyses{
		runInfo:         d.described("analysis_run_info", "An AnalysisRun, with its phase.", "namespace", "name", "phase"),
		runPhase:        d.described("analysis_run_phase", "1 for the phase that an AnalysisRun is in, 0 for the others.", "namespace", "name", "phase"),
		metricType:      d.described("analysis_run_metric_type", "A metric of an AnalysisRun, with the type of its provider.", "namespace", "name", "metric", "type"),
		metricPhase:     d.described("analysis_run_metric_phase", "1 for the phase that a metric of an AnalysisRun is in, 0 for the others.", "namespace", "name", "metric", "type", "dry_run", "phase"),
		templateInfo:    d.described("analysis_template_info", "An AnalysisTemplate; those of the cluster have no namespace.", "namespace", "name"),
		templateMetric:  d.described("analysis_template_metric_info", "A metric of an AnalysisTemplate, with the type of its provider.", "namespace", "name", "type", "metric"),
		experimentInfo:  d.described("experiment_info", "An Experiment, with its phase.", "namespace", "name", "phase"),
		experimentPhase: d.described("experiment_phase", "1 for the phase that an Experiment is in, 0 for the others.", "namespace", "name", "phase"),
	}
}

// ShowAnalyses shows the objects that look gives, at each scrape. It is called once, before anybody scrapes.
func (m *Metrics) ShowAnalyses(look func() Analyses) {
	m.analyses.look = look
	m.registerer.MustRegister(m.analyses)
}

// Describe implements prometheus.Collector.
func (a *analyses) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		a.runInfo, a.runPhase, a.metricType, a.metricPhase, a.templateInfo, a.templateMetric, a.experimentInfo, a.experimentPhase,
	} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (a *analyses) Collect(out chan<- prometheus.Metric) {
	told := map[string]bool{} // a template may have two metrics of one name, and a series that is told twice ends the scrape
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		for i, label := range labels {
			labels[i] = strings.ToValidUTF8(label, "")
		}
		name := desc.String() + strings.Join(labels, "\x00")
		if told[name] {
			return
		}
		told[name] = true
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	phases := func(desc *prometheus.Desc, phase string, labels ...string) {
		for _, of := range analysisPhases {
			value := 0.0
			if of == phase {
				value = 1
			}
			gauge(desc, value, append(slices.Clip(labels), of)...)
		}
	}
	all := a.look()
	for _, run := range all.Runs {
		gauge(a.runInfo, 1, run.Namespace, run.Name, run.Phase)
		phases(a.runPhase, run.Phase, run.Namespace, run.Name)
		for _, m := range run.Metrics {
			gauge(a.metricType, 1, run.Namespace, run.Name, m.Name, m.Type)
			phases(a.metricPhase, m.Phase, run.Namespace, run.Name, m.Name, m.Type, strconv.FormatBool(m.DryRun))
		}
	}
	for _, e := range all.Experiments {
		gauge(a.experimentInfo, 1, e.Namespace, e.Name, e.Phase)
		phases(a.experimentPhase, e.Phase, e.Namespace, e.Name)
	}
	for _, t := range all.Templates {
		gauge(a.templateInfo, 1, t.Namespace, t.Name)
		for _, m := range t.Metrics {
			gauge(a.templateMetric, 1, t.Namespace, t.Name, m.Type, m.Name)
		}
	}
}
