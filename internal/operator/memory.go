package operator

import (
	"runtime"
	"runtime/debug"
)

// collectAt is how much garbage there may be before it is collected, in percent of what is in use. Go's 100 is for programs
// that compute; this one waits, and mostly holds what it watches: half the garbage costs it little time, and saves a fifth
// of the memory.
const collectAt = 50

// economise chooses how much garbage there may be, unless the environment does, and keeps no books for a profile of
// memory that nobody can read.
func economise(f Flags, lookup func(string) string) {
	if lookup("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if f.ProfilingAddress == "" {
		runtime.MemProfileRate = 0
	}
}
