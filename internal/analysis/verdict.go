// Package analysis judges what was measured: conditions about values, metrics by their measurements, and runs by their
// metrics. All of it is pure.
//
// It must not know how anything is measured, clients, clocks, or what a run was made for.
package analysis

// Verdict is how a measurement, a metric or a run ended, or where it stands.
type Verdict string

// The verdicts, in the words of the API.
const (
	Pending      Verdict = "Pending"
	Running      Verdict = "Running"
	Successful   Verdict = "Successful"
	Failed       Verdict = "Failed"
	Errored      Verdict = "Error"
	Inconclusive Verdict = "Inconclusive"
)
