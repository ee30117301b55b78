package operator

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// gcPercent is the growth of the heap, in percent, that starts a garbage collection. Go's default of 100 suits programs that
// compute; this one mostly waits and caches the objects that it watches. Collecting twice as often costs little time and
// saves a fifth of the memory.
const gcPercent = 50

// memoryLimitPercent is the share of the container's memory limit at which the garbage collector runs more often. The rest is
// for what the Go runtime does not count, and for the allocations during a collection.
const memoryLimitPercent = 90

// tuneMemory sets the targets of the garbage collector, unless the environment does, and disables memory profiling when
// profiles are not served. Without the soft limit, the heap could grow by half over the memory that is in use, and the kernel
// would end the process at the limit although a collection would have sufficed.
func tuneMemory(f Flags, lookup func(string) string, containerLimit string) {
	if lookup("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limit, limited := softMemoryLimit(containerLimit); limited && lookup("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	if f.ProfilingAddress == "" {
		runtime.MemProfileRate = 0
	}
}

// readContainerLimit returns the memory limit of the container, as cgroup v2 shows it: a number of bytes, or max. Outside of a
// container there is none, which is the same as no limit.
func readContainerLimit() string {
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return ""
	}
	return string(text)
}

// softMemoryLimit returns the soft limit of the Go runtime for the limit of the container, and whether there is one.
func softMemoryLimit(text string) (limit int64, limited bool) {
	bytes, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || bytes <= 0 {
		return 0, false
	}
	return bytes / 100 * memoryLimitPercent, true
}
