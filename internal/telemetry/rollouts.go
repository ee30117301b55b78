package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// rolloutSeries are the series about Rollouts. They have the names, labels and meanings that dashboards and alerts of Argo's
// users rely on, and end when their object is deleted.
type rolloutSeries struct {
	controller      *prometheus.GaugeVec
	info            *prometheus.GaugeVec
	phase           *prometheus.GaugeVec
	desired         *prometheus.GaugeVec
	available       *prometheus.GaugeVec
	unavailable     *prometheus.GaugeVec
	updated         *prometheus.GaugeVec
	reconciliations *prometheus.HistogramVec
	failures        *prometheus.CounterVec
	events          *prometheus.CounterVec
	duration        *prometheus.HistogramVec
	progression     *prometheus.HistogramVec
	pausedDuration  *prometheus.HistogramVec

	mu    sync.Mutex
	shown map[types.NamespacedName]Rollout
	// countedEvents are the events with a series, for each existing Rollout.
	countedEvents map[types.NamespacedName]map[eventLabels]bool
}

// eventLabels are the labels of an event counter in addition to those of its object.
type eventLabels struct{ kind, reason string }

// rolloutPhases are the values of the label phase.
var rolloutPhases = []string{"Completed", "Progressing", "Paused", "Timeout", "Error", "Abort", "InvalidSpec"}

// releaseBuckets are the buckets for the duration of a release, from seconds to a day.
var releaseBuckets = []float64{10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400}

func newRolloutSeries(d declaration) *rolloutSeries {
	object := []string{"namespace", "name"}
	return &rolloutSeries{
		controller: d.gauge("argo_rollouts_controller_info", "Version of the controller that serves Rollouts, and the Go version it was built with.",
			"version", "goversion"),
		info:        d.gauge("rollout_info", "Information about a Rollout.", "namespace", "name", "strategy", "traffic_router", "phase"),
		phase:       d.gauge("rollout_phase", "The phase of a Rollout: 1 for the one it is in, 0 for the others; rollout_info has the same information.", "namespace", "name", "strategy", "phase"),
		desired:     d.gauge("rollout_info_replicas_desired", "Desired number of pods of a Rollout.", object...),
		available:   d.gauge("rollout_info_replicas_available", "Number of available pods of a Rollout.", object...),
		unavailable: d.gauge("rollout_info_replicas_unavailable", "Number of desired pods of a Rollout that are not available.", object...),
		updated:     d.gauge("rollout_info_replicas_updated", "Number of pods of the newest revision of a Rollout.", object...),
		reconciliations: d.histogram("rollout_reconcile", "Duration of the reconciliations of a Rollout, in seconds.",
			[]float64{0.01, 0.15, .25, .5, 1}, object...),
		failures: d.counter("rollout_reconcile_error", "Reconciliations of a Rollout that failed.", object...),
		events:   d.counter("rollout_events_total", "Events about a Rollout.", "namespace", "name", "type", "reason"),
		duration: d.histogram("rollout_duration_seconds", "Time from the beginning of a release to its end.", releaseBuckets, "status"),
		progression: d.histogram("rollout_progression_duration_seconds", "Time from the beginning of a release to its end, excluding manual pauses.",
			releaseBuckets, "status"),
		pausedDuration: d.histogram("rollout_manual_pause_duration_seconds", "Duration of the manual pauses of a release.", releaseBuckets, "status"),
		shown:          map[types.NamespacedName]Rollout{},
		countedEvents:  map[types.NamespacedName]map[eventLabels]bool{},
	}
}

// Rollout is the state of one Rollout that the metrics show.
type Rollout struct {
	Namespace, Name string
	// Strategy is canary, blueGreen or none; Router is the traffic router, if dashboards know its name; Phase is the current phase.
	Strategy, Router, Phase     string
	Desired, Available, Updated int32
}

// StartRollout begins the series of a Rollout. Nothing is recorded before it and after ForgetRollout: a notification that is
// given up, or the reconciliation that finds the Rollout deleted, ends after the Rollout, and its series would never end.
func (m *Metrics) StartRollout(namespace, name string) {
	m.rollouts.mu.Lock()
	defer m.rollouts.mu.Unlock()
	m.rollouts.startRollout(types.NamespacedName{Namespace: namespace, Name: name})
}

func (r *rolloutSeries) startRollout(key types.NamespacedName) {
	if r.countedEvents[key] == nil {
		r.countedEvents[key] = map[eventLabels]bool{}
	}
}

// recordExisting calls f unless the Rollout is deleted. ForgetRollout deletes the series that f records.
func (r *rolloutSeries) recordExisting(namespace, name string, f func(countedEvents map[eventLabels]bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if countedEvents := r.countedEvents[types.NamespacedName{Namespace: namespace, Name: name}]; countedEvents != nil {
		f(countedEvents)
	}
}

// SetRollout exports the state of an existing Rollout. It is idempotent.
func (m *Metrics) SetRollout(r Rollout) {
	m.rollouts.mu.Lock()
	defer m.rollouts.mu.Unlock()
	key := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	m.rollouts.startRollout(key)
	before, known := m.rollouts.shown[key]
	if known && before == r {
		return
	}
	m.rollouts.shown[key] = r
	if known {
		m.rollouts.info.DeleteLabelValues(before.Namespace, before.Name, before.Strategy, before.Router, before.Phase)
	}
	if known && before.Strategy != r.Strategy {
		m.rollouts.dropPhases(before)
	}
	m.rollouts.info.WithLabelValues(r.Namespace, r.Name, r.Strategy, r.Router, r.Phase).Set(1)
	for _, phase := range rolloutPhases {
		value := 0.0
		if phase == r.Phase {
			value = 1
		}
		m.rollouts.phase.WithLabelValues(r.Namespace, r.Name, r.Strategy, phase).Set(value)
	}
	m.rollouts.desired.WithLabelValues(r.Namespace, r.Name).Set(float64(r.Desired))
	m.rollouts.available.WithLabelValues(r.Namespace, r.Name).Set(float64(r.Available))
	m.rollouts.unavailable.WithLabelValues(r.Namespace, r.Name).Set(float64(max(r.Desired-r.Available, 0)))
	m.rollouts.updated.WithLabelValues(r.Namespace, r.Name).Set(float64(r.Updated))
}

// recordRolloutReconciliation records a reconciliation of a Rollout.
func (m *Metrics) recordRolloutReconciliation(key types.NamespacedName, took time.Duration) {
	m.rollouts.recordExisting(key.Namespace, key.Name, func(map[eventLabels]bool) {
		m.rollouts.reconciliations.WithLabelValues(key.Namespace, key.Name).Observe(took.Seconds())
	})
}

// countRolloutFailure counts a failed reconciliation of a Rollout.
func (m *Metrics) countRolloutFailure(key types.NamespacedName) {
	m.rollouts.recordExisting(key.Namespace, key.Name, func(map[eventLabels]bool) {
		m.rollouts.failures.WithLabelValues(key.Namespace, key.Name).Inc()
	})
}

// CountRolloutEvent counts an event about a Rollout.
func (m *Metrics) CountRolloutEvent(namespace, name, kind, reason string) {
	m.rollouts.recordExisting(namespace, name, func(countedEvents map[eventLabels]bool) {
		countedEvents[eventLabels{kind, reason}] = true
		m.rollouts.events.WithLabelValues(namespace, name, kind, reason).Inc()
	})
}

// RecordRolloutRelease records the total duration of a release and the time for which users paused it; status is the result
// of the release.
func (m *Metrics) RecordRolloutRelease(status string, took, paused time.Duration) {
	m.rollouts.duration.WithLabelValues(status).Observe(took.Seconds())
	m.rollouts.progression.WithLabelValues(status).Observe(max(took-paused, 0).Seconds())
	m.rollouts.pausedDuration.WithLabelValues(status).Observe(paused.Seconds())
}

// ForgetRollout ends the series of a deleted Rollout. It deletes each series by all of its labels: a partial match visits the
// series of all Rollouts.
func (m *Metrics) ForgetRollout(namespace, name string) {
	r := m.rollouts
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if shown, known := r.shown[key]; known {
		r.info.DeleteLabelValues(namespace, name, shown.Strategy, shown.Router, shown.Phase)
		r.dropPhases(shown)
	}
	for _, family := range []*prometheus.GaugeVec{r.desired, r.available, r.unavailable, r.updated} {
		family.DeleteLabelValues(namespace, name)
	}
	r.reconciliations.DeleteLabelValues(namespace, name)
	r.failures.DeleteLabelValues(namespace, name)
	for event := range r.countedEvents[key] {
		r.events.DeleteLabelValues(namespace, name, event.kind, event.reason)
	}
	delete(r.shown, key)
	delete(r.countedEvents, key)
	m.ForgetNotifications(key)
	m.SetWaitingGate(rolloutKind, namespace, name, WaitingGate{})
}

func (r *rolloutSeries) dropPhases(shown Rollout) {
	for _, phase := range rolloutPhases {
		r.phase.DeleteLabelValues(shown.Namespace, shown.Name, shown.Strategy, phase)
	}
}
