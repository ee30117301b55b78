//go:build linux

package demo

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/serin-dev/serin/playground/load"
)

// LineViewer prints the progress of the demo in lines.
type LineViewer struct {
	Out io.Writer

	skippedCounts int // counts since the last line
}

// countsLogInterval is the number of counts for which one line is printed.
const countsLogInterval = 5

// ShowActivity prints what the demo is doing.
func (v *LineViewer) ShowActivity(text string) { fmt.Fprintf(v.Out, "%s ...\n", text) }

// StartScenario prints the description of a scenario.
func (v *LineViewer) StartScenario(number, all int, scenario Scenario) error {
	fmt.Fprintf(v.Out, "\nRelease %d of %d: %s\n", number, all, scenario.Story)
	v.skippedCounts = 0
	return nil
}

// Progress prints every change, and the counts at intervals.
func (v *LineViewer) Progress(change bool, release string, counts load.Counts) {
	if v.skippedCounts++; !change && v.skippedCounts < countsLogInterval {
		return
	}
	v.skippedCounts = 0
	fmt.Fprintf(v.Out, "  %s; requests: %s\n", release, counts)
}

// Result prints the result of a scenario.
func (v *LineViewer) Result(scenario Scenario, r Result, err error) {
	fmt.Fprintln(v.Out, formatResult(scenario, r, err))
}

// End does nothing.
func (v *LineViewer) End() {}

// formatResult formats the result of a scenario for users.
func formatResult(scenario Scenario, r Result, err error) string {
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	text := fmt.Sprintf("%s %s was %s in %.1f s: %s, %s, %d requests, %d failed (%s)",
		mark, scenario.Version, r.Outcome, r.Seconds, count(r.Steps, "step"), count(r.Windows, "window"), r.Requests, r.FailedRequests, r.Counts)
	if err != nil {
		text += "\n  " + err.Error()
	}
	return text
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// JSONViewer prints one JSON object per scenario and nothing else.
type JSONViewer struct {
	Out io.Writer
}

// ShowActivity does nothing.
func (v JSONViewer) ShowActivity(string) {}

// StartScenario does nothing.
func (v JSONViewer) StartScenario(int, int, Scenario) error { return nil }

// Progress does nothing.
func (v JSONViewer) Progress(bool, string, load.Counts) {}

// Result prints the result as a JSON object.
func (v JSONViewer) Result(_ Scenario, r Result, _ error) {
	// Every Result can be encoded as JSON.
	text, _ := json.Marshal(r)
	fmt.Fprintf(v.Out, "%s\n", text)
}

// End does nothing.
func (v JSONViewer) End() {}
