// Package analysis decides about AnalysisRuns: when each metric is measured, what its measurements result in, and the
// phase of the run. It is a pure state machine.
//
// To add a limit of metrics, see assessMetric and ValidateMetric. To add a provider, see package measure; this package
// distinguishes providers only in metricMetadata and in the types of the API.
//
// The package must not know clients, clocks, how a metric is measured, or the purpose of a run.
package analysis
