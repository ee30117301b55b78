// Package playtest is what tests say of histories of all kinds of releases. It must not know any kind.
package playtest

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim"
)

// NoViolation fails a test for each violation in a history.
func NoViolation(t *testing.T, r sim.Result) {
	t.Helper()
	for _, v := range r.Violations {
		t.Errorf("%s after %s: %s\nhistory:\n%s", v.Number, v.At, v.Sentence, strings.Join(r.History, "\n"))
	}
}

// Line is the first line of what a history came to that begins so; empty: none does.
func Line(r sim.Result, beginning string) string {
	for line := range strings.Lines(r.Final) {
		if strings.HasPrefix(line, beginning) {
			return line
		}
	}
	return ""
}
