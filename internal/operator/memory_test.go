package operator

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestMemoryIsReturnedOnceAfterEachBusyTime(t *testing.T) {
	const mb = 1 << 20
	for _, tt := range []struct {
		name      string
		inUse     uint64
		allocated []uint64 // between two checks
		want      []bool
	}{
		{"after the start", 20 * mb, []uint64{50 * mb, 1 * mb, 1 * mb}, []bool{false, true, false}},
		{"not while releases are in progress", 20 * mb, []uint64{50 * mb, 20 * mb, 3 * mb}, []bool{false, false, false}},
		{"again after a release", 20 * mb, []uint64{50 * mb, 0, 30 * mb, 0, 0}, []bool{false, true, false, true, false}},
		{"not for little", 20 * mb, []uint64{50 * mb, 0, 3 * mb, 0}, []bool{false, true, false, false}},
		{"for what many quiet checks add up to", 20 * mb, []uint64{50 * mb, 0, 2 * mb, 2 * mb, 2 * mb, 2 * mb}, []bool{false, true, false, false, false, true}},
		{"with scrapes of many releases", 320 * mb, []uint64{900 * mb, 20 * mb, 20 * mb, 20 * mb}, []bool{false, true, false, false}},
		{"a large heap for much only", 320 * mb, []uint64{900 * mb, 20 * mb, 20 * mb, 20 * mb, 20 * mb, 20 * mb}, []bool{false, true, false, false, false, true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r memoryReturner
			total := uint64(0)
			for i, n := range tt.allocated {
				total += n
				if got := r.check(total, tt.inUse); got != tt.want[i] {
					t.Errorf("check %d, after %d MB: returns memory: %t, want %t", i, total/mb, got, tt.want[i])
				}
			}
		})
	}
}

// TestTheMemoryLimitOfTheContainerIsThatOfTheCollector: Go does not know the limit of its container.
func TestTheMemoryLimitOfTheContainerIsThatOfTheCollector(t *testing.T) {
	before, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(usualGCPercent)
	t.Cleanup(func() {
		debug.SetMemoryLimit(before)
		debug.SetGCPercent(percent)
	})
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

func TestTheCollectorRunsMoreOftenUntilTheCachesAreFilled(t *testing.T) {
	percent := debug.SetGCPercent(usualGCPercent)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	current := func() int {
		percent := debug.SetGCPercent(usualGCPercent)
		debug.SetGCPercent(percent)
		return percent
	}
	endStart := tuneMemory(Flags{ProfilingAddress: "127.0.0.1:6060"}, func(string) string { return "" }, "")
	if got := current(); got != startGCPercent {
		t.Errorf("during the start: %d %%, want %d %%", got, startGCPercent)
	}
	ctx, cancel := context.WithCancel(t.Context())
	clk, ended := testingclock.NewFakeClock(time.Unix(0, 0)), make(chan error)
	go func() {
		ended <- returnMemory(ctx, clk, func() {}, func() {
			endStart()
			cancel()
		})
	}()
	for waiting := true; waiting; {
		select {
		case err := <-ended:
			if waiting = false; err != nil {
				t.Error(err)
			}
		default:
			clk.Step(memoryCheckInterval)
		}
	}
	if got := current(); got != usualGCPercent {
		t.Errorf("after the start: %d %%, want %d %%", got, usualGCPercent)
	}
	debug.SetGCPercent(60)
	tuneMemory(Flags{ProfilingAddress: "127.0.0.1:6060"}, func(string) string { return "60" }, "")() // GOGC is set
	if got := current(); got != 60 {
		t.Errorf("with GOGC: %d %%, want 60 %%", got)
	}
}
