package operator

import (
	"runtime/debug"
	"testing"
)

func TestGarbageIsCollectedAsTheEnvironmentSays(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for said, want := range map[string]int{"75": 100, "": garbageTargetBytes} { // Go itself has read the variable
		debug.SetGCPercent(100)
		tuneMemory(Flags{ProfilingAddress: "127.0.0.1:6060"}, func(string) string { return said })
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC %q: collects at %d %%, want %d", said, got, want)
		}
	}
}
