package operator

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestGOGCOverridesTheGCPercent(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for value, want := range map[string]int{"75": 100, "": gcPercent} { // the Go runtime has read the variable already
		debug.SetGCPercent(100)
		tuneMemory(Flags{ProfilingAddress: "127.0.0.1:6060"}, func(string) string { return value }, "")
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC %q: collects at %d %%, want %d", value, got, want)
		}
	}
}

// TestTheMemoryLimitOfTheContainerIsThatOfTheCollector: Go does not know the limit of its container.
func TestTheMemoryLimitOfTheContainerIsThatOfTheCollector(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	gc := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetMemoryLimit(before); debug.SetGCPercent(gc) })
	for _, tt := range []struct {
		content, environment string
		want                 int64
	}{
		{"536870912\n", "", 483183810},
		{"536870912\n", "1GiB", math.MaxInt64}, // the Go runtime has read the variable already
		{"max\n", "", math.MaxInt64},
		{"", "", math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		lookup := func(name string) string { return map[string]string{"GOMEMLIMIT": tt.environment}[name] }
		tuneMemory(Flags{ProfilingAddress: "127.0.0.1:6060"}, lookup, tt.content)
		if got := debug.SetMemoryLimit(-1); got != tt.want {
			t.Errorf("memory.max %q, GOMEMLIMIT %q: limit %d, want %d", tt.content, tt.environment, got, tt.want)
		}
	}
}
