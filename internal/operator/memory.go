package operator

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// memoryLimitPercent is the share of the container's memory limit at which the garbage collector runs more often. The rest is
// for what the Go runtime does not count, and for the allocations during a collection.
const memoryLimitPercent = 90

// The heap grows by this percentage of what is in use before the next collection. During the start, all cached objects are
// allocated between the garbage of their decoding. The pages that they share with it remain in use for good, and are as many as the
// garbage was: with 1,000 Canaries, the lower percentage saves 24 of 98 MB, and costs up to half more processor time once.
const (
	startGCPercent = 25
	usualGCPercent = 100
	// maxStart ends the start of a process that does not become quiet, because releases are in progress throughout.
	maxStart = 5 * time.Minute
)

// tuneMemory sets the limit of the garbage collector, and how often it runs during the start, unless the environment does. It
// disables memory profiling when profiles are not served. Without the soft limit, the heap could grow by half over the memory that is
// in use, and the kernel would end the process at the limit although a collection would have sufficed. The caller must call
// endStart when the caches are filled.
func tuneMemory(f Flags, lookup func(string) string, containerLimit string) (endStart func()) {
	if limit, limited := softMemoryLimit(containerLimit); limited && lookup("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	if f.ProfilingAddress == "" {
		runtime.MemProfileRate = 0
	}
	if lookup("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(startGCPercent)
	return sync.OnceFunc(func() { debug.SetGCPercent(usualGCPercent) })
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

const (
	// memoryCheckInterval is the time between two checks whether the process has become quiet.
	memoryCheckInterval = 10 * time.Second
	// minQuietAllocations is what a quiet process may always allocate in that time, in bytes: renewed Leases and watches, and changes
	// of objects that belong to no release.
	minQuietAllocations = 2 << 20
	// quietPart is the part of the heap in use, as a divisor, that a quiet process may allocate in that time. Scrapes of the metrics
	// grow with the number of releases, as the heap does.
	quietPart = 16
	// minReturned is the garbage that is worth a collection of a small heap, in bytes, and returnedPart the part of a large one, as a
	// divisor: the cost of a collection grows with the heap.
	minReturned  = 8 << 20
	returnedPart = 4
)

// memoryReturner decides when to return unused memory to the operating system: once after each busy time. Without it, the garbage
// of the last releases would remain until the next collection, and the heap would have its size of the busiest time. To collect
// more often instead would cost processor time while releases are in progress.
type memoryReturner struct {
	// lastTotal and returnedTotal are the bytes allocated since the start of the process, at the last check and at the last return.
	lastTotal, returnedTotal uint64
}

// check receives the number of bytes allocated since the start of the process, and of those in use after the last collection. It
// reports whether to return memory now.
func (r *memoryReturner) check(total, inUse uint64) bool {
	quiet := total-r.lastTotal <= max(minQuietAllocations, inUse/quietPart)
	r.lastTotal = total
	if !quiet || total-r.returnedTotal < max(minReturned, inUse/returnedPart) {
		return false
	}
	r.returnedTotal = total
	return true
}

// returnMemory returns unused memory to the operating system after each busy time, until ctx is done. forget removes the
// references to memory that only a busy process needs. endStart is called at the end of the first busy time, or after maxStart.
func returnMemory(ctx context.Context, clk clock.WithTicker, forget, endStart func()) error {
	ticker := clk.NewTicker(memoryCheckInterval)
	defer ticker.Stop()
	began := clk.Now()
	var returner memoryReturner
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			returns := returner.check(heapBytes())
			if returns {
				forget()
				debug.FreeOSMemory()
			}
			if returns || clk.Since(began) >= maxStart {
				endStart()
			}
		}
	}
}

// heapBytes returns the number of bytes allocated since the start of the process, and of those in use after the last collection.
func heapBytes() (total, inUse uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}
