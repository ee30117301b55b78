// Package runnertest contains assertions about simulation runs. It must not know any kind of release.
package runnertest

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim"
)

// NoViolation reports a test error for each violation in a run.
func NoViolation(t *testing.T, r sim.Result) {
	t.Helper()
	for _, v := range r.Violations {
		t.Errorf("%s after %s: %s\ntrace:\n%s", v.Number, v.At, v.Text, strings.Join(r.Trace, "\n"))
	}
}

// Line returns the first line of the final state with the given prefix, or "".
func Line(r sim.Result, prefix string) string {
	for line := range strings.Lines(r.FinalState) {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	return ""
}
