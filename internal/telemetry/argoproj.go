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

// reconciliationSeries are the series about the reconciliations of one kind of the argoproj API.
type reconciliationSeries struct {
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec

	mu      *sync.Mutex
	objects map[types.NamespacedName]bool // the objects that exist
}

// reconciliationBuckets are the buckets of the same series of Argo Rollouts.
var reconciliationBuckets = []float64{0.01, 0.15, 0.25, 0.5, 1}

func (d declaration) declareReconciliations(prefix, object string) reconciliationSeries {
	return reconciliationSeries{
		mu: &sync.Mutex{}, objects: map[types.NamespacedName]bool{},
		duration: d.histogram(prefix+"_reconcile", "Duration of the reconciliations of "+object+", in seconds.", reconciliationBuckets, "namespace", "name"),
		failures: d.counter(prefix+"_reconcile_error", "Reconciliations of "+object+" that failed.", "namespace", "name"),
	}
}

// recordReconciliation calls f unless the object is deleted.
func (m *Metrics) recordReconciliation(kind string, key types.NamespacedName, f func(p reconciliationSeries)) {
	p, ok := m.argoproj[kind]
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects[key] {
		f(p)
	}
}

// StartReconciled begins the series of an object of the argoproj API. Nothing is recorded before it and after
// ForgetReconciled: the reconciliation that finds the object deleted would otherwise begin series that never end.
func (m *Metrics) StartReconciled(kind string, key types.NamespacedName) {
	if p, ok := m.argoproj[kind]; ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.objects[key] = true
	}
}

// RecordReconciliation records a reconciliation of an object of the argoproj API.
func (m *Metrics) RecordReconciliation(kind string, key types.NamespacedName, took time.Duration) {
	if kind == rolloutKind {
		m.recordRolloutReconciliation(key, took)
	}
	m.recordReconciliation(kind, key, func(p reconciliationSeries) {
		p.duration.WithLabelValues(key.Namespace, key.Name).Observe(took.Seconds())
	})
}

// CountReconcileFailure counts a reconciliation of an object of the argoproj API that failed.
func (m *Metrics) CountReconcileFailure(kind string, key types.NamespacedName) {
	if kind == rolloutKind {
		m.countRolloutFailure(key)
	}
	m.recordReconciliation(kind, key, func(p reconciliationSeries) { p.failures.WithLabelValues(key.Namespace, key.Name).Inc() })
}

// ForgetReconciled ends the series of a deleted object.
func (m *Metrics) ForgetReconciled(kind string, key types.NamespacedName) {
	m.recordReconciliation(kind, key, func(p reconciliationSeries) {
		p.duration.DeleteLabelValues(key.Namespace, key.Name)
		p.failures.DeleteLabelValues(key.Namespace, key.Name)
		delete(p.objects, key)
	})
}

// Analyses are all objects of the analysis kinds at one moment.
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

// RunMetric is a metric of a run; Type is the type of its provider.
type RunMetric struct {
	Name, Type, Phase string
	DryRun            bool
}

// Template is an AnalysisTemplate, or a ClusterAnalysisTemplate, which has no namespace.
type Template struct {
	Namespace, Name string
	Metrics         []RunMetric
}

// analysisPhases are all phases of runs and Experiments. Each object has a series per phase, with 1 for its current one.
var analysisPhases = []string{"Pending", "Running", "Successful", "Failed", "Error", "Inconclusive"}

// analysisCollector collects the series about AnalysisRuns, Experiments and templates. It derives them from the objects at each
// scrape, so that they end with the objects and need no state.
type analysisCollector struct {
	list func() Analyses

	runInfo, runPhase, metricType, metricPhase, templateInfo, templateMetric, experimentInfo, experimentPhase *prometheus.Desc
}

func (d declaration) declareDescribed(name, help string, labels ...string) *prometheus.Desc {
	*d.families = append(*d.families, Family{Name: name, Type: "gauge", Help: help, Labels: labels})
	return prometheus.NewDesc(name, help, labels, nil)
}

func newAnalysisCollector(d declaration) *analysisCollector {
	return &analysisCollector{
		runInfo:         d.declareDescribed("analysis_run_info", "An AnalysisRun, with its phase.", "namespace", "name", "phase"),
		runPhase:        d.declareDescribed("analysis_run_phase", "1 for the phase that an AnalysisRun is in, 0 for the others.", "namespace", "name", "phase"),
		metricType:      d.declareDescribed("analysis_run_metric_type", "A metric of an AnalysisRun, with the type of its provider.", "namespace", "name", "metric", "type"),
		metricPhase:     d.declareDescribed("analysis_run_metric_phase", "1 for the phase that a metric of an AnalysisRun is in, 0 for the others.", "namespace", "name", "metric", "type", "dry_run", "phase"),
		templateInfo:    d.declareDescribed("analysis_template_info", "An AnalysisTemplate; those of the cluster have no namespace.", "namespace", "name"),
		templateMetric:  d.declareDescribed("analysis_template_metric_info", "A metric of an AnalysisTemplate, with the type of its provider.", "namespace", "name", "type", "metric"),
		experimentInfo:  d.declareDescribed("experiment_info", "An Experiment, with its phase.", "namespace", "name", "phase"),
		experimentPhase: d.declareDescribed("experiment_phase", "1 for the phase that an Experiment is in, 0 for the others.", "namespace", "name", "phase"),
	}
}

// RegisterAnalyses exports the objects that list returns at each scrape. It must be called once, before the first scrape.
func (m *Metrics) RegisterAnalyses(list func() Analyses) {
	m.analyses.list = list
	m.registerer.MustRegister(m.analyses)
}

// Describe implements prometheus.Collector.
func (a *analysisCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		a.runInfo, a.runPhase, a.metricType, a.metricPhase, a.templateInfo, a.templateMetric, a.experimentInfo, a.experimentPhase,
	} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (a *analysisCollector) Collect(out chan<- prometheus.Metric) {
	collected := map[string]bool{} // a template may have two metrics of one name, and a duplicate series fails the scrape
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		for i, label := range labels {
			labels[i] = strings.ToValidUTF8(label, "")
		}
		name := desc.String() + strings.Join(labels, "\x00")
		if collected[name] {
			return
		}
		collected[name] = true
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	phases := func(desc *prometheus.Desc, current string, labels ...string) {
		for _, phase := range analysisPhases {
			value := 0.0
			if phase == current {
				value = 1
			}
			gauge(desc, value, append(slices.Clip(labels), phase)...)
		}
	}
	all := a.list()
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
