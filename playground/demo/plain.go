//go:build linux

package demo

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/serin-dev/serin/playground/load"
)

// LineViewer shows the demo as lines.
type LineViewer struct {
	Out io.Writer

	nextCounts int // looks at the counts without a line
}

// countsLogInterval is how many looks at the counts pass between two lines about them.
const countsLogInterval = 5

// Say tells what is being done.
func (v *LineViewer) Say(text string) { fmt.Fprintf(v.Out, "%s ...\n", text) }

// Begin does nothing: lines need no stage.
func (v *LineViewer) Begin() error { return nil }

// StartScenario announces an act.
func (v *LineViewer) StartScenario(number, all int, act Scenario) {
	fmt.Fprintf(v.Out, "\nAct %d of %d: %s\n", number, all, act.Story)
	v.nextCounts = 0
}

// Progress prints every change, and the counts from time to time.
func (v *LineViewer) Progress(change bool, release string, counts load.Counts) {
	if v.nextCounts++; !change && v.nextCounts < countsLogInterval {
		return
	}
	v.nextCounts = 0
	fmt.Fprintf(v.Out, "  %s; requests: %s\n", release, counts)
}

// Result prints the end of an act.
func (v *LineViewer) Result(act Scenario, r Result, err error) {
	fmt.Fprintln(v.Out, formatResult(act, r, err))
}

// End does nothing.
func (v *LineViewer) End() {}

// formatResult is the result of an act for people.
func formatResult(act Scenario, r Result, err error) string {
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	text := fmt.Sprintf("%s %s was %s in %.1f s: %d steps, %d windows, %d requests, %d failed (%s)",
		mark, act.Version, r.Outcome, r.Seconds, r.Steps, r.Windows, r.Requests, r.FailedRequests, r.Counts)
	if err != nil {
		text += "\n  " + err.Error()
	}
	return text
}

// JSONViewer prints one object per act and nothing else.
type JSONViewer struct {
	Out io.Writer
}

// Say is not for machines.
func (v JSONViewer) Say(string) {}

// Begin does nothing.
func (v JSONViewer) Begin() error { return nil }

// StartScenario is not for machines.
func (v JSONViewer) StartScenario(int, int, Scenario) {}

// Progress is not for machines.
func (v JSONViewer) Progress(bool, string, load.Counts) {}

// Result prints the object.
func (v JSONViewer) Result(_ Scenario, r Result, _ error) {
	// A Result holds nothing that JSONViewer cannot.
	text, _ := json.Marshal(r)
	fmt.Fprintf(v.Out, "%s\n", text)
}

// End does nothing.
func (v JSONViewer) End() {}
