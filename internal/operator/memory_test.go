package operator

import (
	"runtime/debug"
	"testing"
)

func TestGOGCOverridesTheGCPercent(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for value, want := range map[string]int{"75": 100, "": gcPercent} { // the Go runtime has read the variable already
		debug.SetGCPercent(100)
		tuneMemory(Flags{ProfilingAddress: "127.0.0.1:6060"}, func(string) string { return value })
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC %q: collects at %d %%, want %d", value, got, want)
		}
	}
}
