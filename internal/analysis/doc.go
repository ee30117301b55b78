// Package analysis decides about AnalysisRuns: which metrics are measured when, what the measurements mean, and what a run
// comes to. All of it is pure.
//
// It must not know how anything is measured, clients, clocks, or what a run was made for.
package analysis
