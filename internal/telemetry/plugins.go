package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pluginSeries are the metrics of plugins. The administrator configures the plugins, and calls of all others are recorded under one
// name, so the number of series is limited, and they remain until the process ends.
type pluginSeries struct {
	calls     *prometheus.HistogramVec
	starts    *prometheus.CounterVec
	processes *prometheus.GaugeVec
}

func newPluginSeries(d declaration) pluginSeries {
	return pluginSeries{
		calls: d.histogram("serin_plugin_call_duration_seconds",
			"Time from a call of a plugin until its answer, including the start of its process; the outcome is success, error if there was no answer or the answer is an error, or refused if the call was not sent. The plugin is unknown if it is not configured.",
			[]float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60}, "plugin", "kind", "outcome"),
		starts:    d.counter("serin_plugin_starts_total", "Starts of the process of a plugin; the outcome is success or error.", "plugin", "kind", "outcome"),
		processes: d.gauge("serin_plugin_processes", "Running processes of a plugin: 1, or 0 after its process has ended.", "plugin", "kind"),
	}
}

// RecordPluginCall records a call of a plugin. kind is the list of the configuration that contains it. plugin must not be a name that
// only a user has chosen: its series would remain.
func (m *Metrics) RecordPluginCall(plugin, kind, outcome string, took time.Duration) {
	m.plugins.calls.WithLabelValues(plugin, kind, outcome).Observe(took.Seconds())
}

// CountPluginStart counts an attempt to start the process of a plugin, and the process if the outcome is success.
func (m *Metrics) CountPluginStart(plugin, kind, outcome string) {
	m.plugins.starts.WithLabelValues(plugin, kind, outcome).Inc()
	if outcome == "success" {
		m.plugins.processes.WithLabelValues(plugin, kind).Inc()
	}
}

// CountPluginEnd counts the end of a process that was started successfully.
func (m *Metrics) CountPluginEnd(plugin, kind string) {
	m.plugins.processes.WithLabelValues(plugin, kind).Dec()
}
