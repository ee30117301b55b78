// Package leaktest checks that a process retains nothing of objects that came and went: no series, no goroutines, no heap.
//
// A test passes a logger in the context of its reconcilers: without one, the library retains every logger that was derived.
//
// It is for tests. It must not know the kinds of objects, and what their reconcilers retain in which part: that is what
// their footprint lists.
package leaktest

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/serin-dev/serin/internal/waittest"
)

// warmUpObjects are the objects that come and go before the first measurement, which allocate everything that is allocated once.
const warmUpObjects = 50

// maxOthers is the growth of the numbers of series and of goroutines that is no leak: a rare result has its own series, and there
// may be more idle connections. It is far less than one per object.
const maxOthers = 10

// maxHeap and maxHeapPerObject are the growth of the heap, in bytes, that is no leak: shared buffers that were smaller at the first
// measurement, and less than the key of an object.
const (
	maxHeap          = 256 << 10
	maxHeapPerObject = 64
)

// Check lets objects come and go, and waits until the process retains nothing of them. comeAndGo creates, reconciles and deletes
// the objects with the numbers in [from, to); tests in memory remove their own records of them.
func Check(tb testing.TB, registry prometheus.Gatherer, objects int, comeAndGo func(from, to int)) {
	tb.Helper()
	comeAndGo(0, warmUpObjects)
	before := measure(tb, registry)
	for range 3 { // caches of the runtime survive a garbage collection, and the end of a goroutine or a connection may be late
		before = before.min(measure(tb, registry))
	}
	comeAndGo(warmUpObjects, warmUpObjects+objects)
	first := true
	waittest.Until(tb, fmt.Sprintf("nothing remains of %d objects", objects), func() error {
		now := measure(tb, registry)
		if first {
			tb.Logf("%d objects: %+v before, %+v after", objects, before, now)
			first = false
		}
		grown := now.heap - before.heap
		if now.series <= before.series+maxOthers && now.goroutines <= before.goroutines+maxOthers && grown <= maxHeap+objects*maxHeapPerObject {
			return nil
		}
		return fmt.Errorf("%d series, %d before; %d goroutines, %d before; %d bytes per object remain", now.series, before.series, now.goroutines, before.goroutines, grown/objects)
	})
}

// usage is what a process uses.
type usage struct{ series, goroutines, heap int }

func (u usage) min(other usage) usage {
	return usage{u.series, min(u.goroutines, other.goroutines), min(u.heap, other.heap)}
}

func measure(tb testing.TB, registry prometheus.Gatherer) (u usage) {
	tb.Helper()
	families, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, family := range families {
		u.series += len(family.GetMetric())
	}
	clear(families) // the measurement itself must not count
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u.goroutines, u.heap = runtime.NumGoroutine(), int(memory.HeapAlloc)
	return u
}
