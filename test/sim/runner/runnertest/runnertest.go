// Package runnertest has assertions about simulation runs. It must not know any kind of release.
package runnertest

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim"
)

// NoViolation fails a test for each violation in a run.
func NoViolation(t *testing.T, r sim.Result) {
	t.Helper()
	for _, v := range r.Violations {
		t.Errorf("%s after %s: %s\ntrace:\n%s", v.Number, v.At, v.Text, strings.Join(r.Trace, "\n"))
	}
}

// Line is the first line of the final state with that prefix; empty: none has it.
func Line(r sim.Result, prefix string) string {
	for line := range strings.Lines(r.Final) {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	return ""
}
