package telemetry

import "github.com/prometheus/client_golang/prometheus"

// NewTaskCounter declares the metric of the load tester and returns the function that counts a task that ended.
func NewTaskCounter(registerer prometheus.Registerer) func(kind, outcome string) {
	var families []Family
	tasks := declaration{registerer: registerer, families: &families}.counter("serin_loadtester_tasks_total",
		"Tasks that ended, by their type; the outcome is success or failure.", "type", "outcome")
	return func(kind, outcome string) { tasks.WithLabelValues(kind, outcome).Inc() }
}
