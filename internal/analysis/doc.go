// Package analysis decides about AnalysisRuns: when each metric is measured, what its measurements result in, and the
// phase of the run. It is a pure state machine.
//
// To add a limit of metrics, see assessed and validateMetric. To add a provider, see package measure; here, only
// providers and described distinguish them.
//
// The package must not know clients, clocks, how a metric is measured, or the purpose of a run.
package analysis
