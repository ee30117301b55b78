package operator

import (
	"runtime"
	"runtime/debug"
)

// garbageTargetBytes is the growth of the heap, in percent, that starts a garbage collection. Go's default of 100 suits programs
// that compute; this one mostly waits and caches what it watches. Collecting twice as often costs little time and saves
// a fifth of the memory.
const garbageTargetBytes = 50

// tuneMemory sets the garbage collection target, unless the environment does, and disables memory profiling when
// profiles are not served.
func tuneMemory(f Flags, lookup func(string) string) {
	if lookup("GOGC") == "" {
		debug.SetGCPercent(garbageTargetBytes)
	}
	if f.ProfilingAddress == "" {
		runtime.MemProfileRate = 0
	}
}
