package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// rollouts are the series about Rollouts. Names, labels and meanings are those that dashboards and alerts of Argo's users
// rely on; they end with their object.
type rollouts struct {
	info        *prometheus.GaugeVec
	phase       *prometheus.GaugeVec
	desired     *prometheus.GaugeVec
	available   *prometheus.GaugeVec
	unavailable *prometheus.GaugeVec
	updated     *prometheus.GaugeVec
	passes      *prometheus.HistogramVec
	failures    *prometheus.CounterVec
	events      *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	progression *prometheus.HistogramVec
	held        *prometheus.HistogramVec

	mu    sync.Mutex
	shown map[types.NamespacedName]Rollout
}

// rolloutPhases are the values of the label phase.
var rolloutPhases = []string{"Completed", "Progressing", "Paused", "Timeout", "Error", "Abort", "InvalidSpec"}

// releaseBuckets are for how long a release takes: from seconds to a day.
var releaseBuckets = []float64{10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400}

func newRollouts(d declaration) *rollouts {
	object := []string{"namespace", "name"}
	return &rollouts{
		info:        d.gauge("rollout_info", "Information about a Rollout.", "namespace", "name", "strategy", "traffic_router", "phase"),
		phase:       d.gauge("rollout_phase", "The phase of a Rollout: 1 for the one it is in, 0 for the others; rollout_info tells the same.", "namespace", "name", "strategy", "phase"),
		desired:     d.gauge("rollout_info_replicas_desired", "Pods that a Rollout asks for.", object...),
		available:   d.gauge("rollout_info_replicas_available", "Pods of a Rollout that are available.", object...),
		unavailable: d.gauge("rollout_info_replicas_unavailable", "Pods that a Rollout asks for and that are not available.", object...),
		updated:     d.gauge("rollout_info_replicas_updated", "Pods of the newest revision of a Rollout.", object...),
		passes: d.histogram("rollout_reconcile", "Time that a pass over a Rollout took, in seconds.",
			[]float64{0.01, 0.15, .25, .5, 1}, object...),
		failures: d.counter("rollout_reconcile_error", "Passes over a Rollout that failed.", object...),
		events:   d.counter("rollout_events_total", "Events about a Rollout.", "namespace", "name", "type", "reason"),
		duration: d.histogram("rollout_duration_seconds", "Time from the beginning of a release to its end.", releaseBuckets, "status"),
		progression: d.histogram("rollout_progression_duration_seconds", "Time from the beginning of a release to its end, without the time that people held it.",
			releaseBuckets, "status"),
		held:  d.histogram("rollout_manual_pause_duration_seconds", "Time for which people held a release.", releaseBuckets, "status"),
		shown: map[types.NamespacedName]Rollout{},
	}
}

// Rollout is what the metrics show of one Rollout.
type Rollout struct {
	Namespace, Name string
	// Strategy is canary, blueGreen or none; Router the name of the router where dashboards know it; Phase where it is.
	Strategy, Router, Phase     string
	Desired, Available, Updated int32
}

// Rollout shows the state of a Rollout. Showing the same state again changes nothing.
func (m *Metrics) Rollout(r Rollout) {
	m.rollouts.mu.Lock()
	defer m.rollouts.mu.Unlock()
	key := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	before, known := m.rollouts.shown[key]
	if known && before == r {
		return
	}
	m.rollouts.shown[key] = r
	if known {
		m.rollouts.info.DeleteLabelValues(before.Namespace, before.Name, before.Strategy, before.Router, before.Phase)
	}
	if known && before.Strategy != r.Strategy {
		m.rollouts.phase.DeletePartialMatch(prometheus.Labels{"namespace": r.Namespace, "name": r.Name})
	}
	m.rollouts.info.WithLabelValues(r.Namespace, r.Name, r.Strategy, r.Router, r.Phase).Set(1)
	for _, phase := range rolloutPhases {
		is := 0.0
		if phase == r.Phase {
			is = 1
		}
		m.rollouts.phase.WithLabelValues(r.Namespace, r.Name, r.Strategy, phase).Set(is)
	}
	m.rollouts.desired.WithLabelValues(r.Namespace, r.Name).Set(float64(r.Desired))
	m.rollouts.available.WithLabelValues(r.Namespace, r.Name).Set(float64(r.Available))
	m.rollouts.unavailable.WithLabelValues(r.Namespace, r.Name).Set(float64(max(r.Desired-r.Available, 0)))
	m.rollouts.updated.WithLabelValues(r.Namespace, r.Name).Set(float64(r.Updated))
}

// RolloutPassed records how long a pass over a Rollout took.
func (m *Metrics) RolloutPassed(namespace, name string, took time.Duration) {
	m.rollouts.passes.WithLabelValues(namespace, name).Observe(took.Seconds())
}

// RolloutFailed counts a pass over a Rollout that failed.
func (m *Metrics) RolloutFailed(namespace, name string) {
	m.rollouts.failures.WithLabelValues(namespace, name).Inc()
}

// RolloutTold counts an event about a Rollout.
func (m *Metrics) RolloutTold(namespace, name, kind, reason string) {
	m.rollouts.events.WithLabelValues(namespace, name, kind, reason).Inc()
}

// RolloutEnded records how long a release took in all, and for how long people held it; status says how it ended.
func (m *Metrics) RolloutEnded(status string, took, held time.Duration) {
	m.rollouts.duration.WithLabelValues(status).Observe(took.Seconds())
	m.rollouts.progression.WithLabelValues(status).Observe(max(took-held, 0).Seconds())
	m.rollouts.held.WithLabelValues(status).Observe(held.Seconds())
}

// ForgetRollout ends the series of a Rollout that is gone.
func (m *Metrics) ForgetRollout(namespace, name string) {
	m.rollouts.mu.Lock()
	defer m.rollouts.mu.Unlock()
	delete(m.rollouts.shown, types.NamespacedName{Namespace: namespace, Name: name})
	of := prometheus.Labels{"namespace": namespace, "name": name}
	for _, family := range []*prometheus.GaugeVec{
		m.rollouts.info, m.rollouts.phase, m.rollouts.desired, m.rollouts.available, m.rollouts.unavailable, m.rollouts.updated,
	} {
		family.DeletePartialMatch(of)
	}
	m.rollouts.passes.DeletePartialMatch(of)
	m.rollouts.failures.DeletePartialMatch(of)
	m.rollouts.events.DeletePartialMatch(of)
	m.notifications.forget(of)
}
