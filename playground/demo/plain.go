//go:build linux

package demo

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/serin-dev/serin/playground/load"
)

// Plain shows the demo as lines.
type Plain struct {
	Out io.Writer

	quiet int // looks at the counts without a line
}

// linesEvery is how many looks at the counts pass between two lines about them.
const linesEvery = 5

// Say tells what is being done.
func (v *Plain) Say(text string) { fmt.Fprintf(v.Out, "%s ...\n", text) }

// Begin does nothing: lines need no stage.
func (v *Plain) Begin() error { return nil }

// Act announces an act.
func (v *Plain) Act(number, all int, act Act) {
	fmt.Fprintf(v.Out, "\nAct %d of %d: %s\n", number, all, act.Story)
	v.quiet = 0
}

// Progress prints every change, and the counts from time to time.
func (v *Plain) Progress(change bool, release string, counts load.Counts) {
	if v.quiet++; !change && v.quiet < linesEvery {
		return
	}
	v.quiet = 0
	fmt.Fprintf(v.Out, "  %s; requests: %s\n", release, counts)
}

// Result prints the end of an act.
func (v *Plain) Result(act Act, r Result, err error) {
	fmt.Fprintln(v.Out, line(act, r, err))
}

// End does nothing.
func (v *Plain) End() {}

// line is the result of an act for people.
func line(act Act, r Result, err error) string {
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

// JSON prints one object per act and nothing else.
type JSON struct {
	Out io.Writer
}

// Say is not for machines.
func (v JSON) Say(string) {}

// Begin does nothing.
func (v JSON) Begin() error { return nil }

// Act is not for machines.
func (v JSON) Act(int, int, Act) {}

// Progress is not for machines.
func (v JSON) Progress(bool, string, load.Counts) {}

// Result prints the object.
func (v JSON) Result(_ Act, r Result, _ error) {
	// A Result holds nothing that JSON cannot.
	text, _ := json.Marshal(r)
	fmt.Fprintf(v.Out, "%s\n", text)
}

// End does nothing.
func (v JSON) End() {}
