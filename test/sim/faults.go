package sim

import (
	"strings"
	"time"
)

// FaultClass is a class of faults or user actions. Each run includes about half of all classes.
type FaultClass string

// The classes of faults that the engine injects. A kind of release adds the classes of its actors.
const (
	FailBefore FaultClass = "fail-before" // an API call fails without any effect
	FailAfter  FaultClass = "fail-after"  // an API call fails although it took effect
	Conflicts  FaultClass = "conflict"    // an API call fails as if the object had changed
	Throttled  FaultClass = "throttled"   // 429
	Forbidden  FaultClass = "forbidden"   // 403 for one kind, for a while
	SlowCalls  FaultClass = "slow"        // an API call takes seconds
	LateEvents FaultClass = "late-events" // a watch lags seconds behind
	Relists    FaultClass = "relist"      // a watch restarts with a list; the first list of a process may be outdated
	Repeats    FaultClass = "repeat"      // a watch delivers an event twice
	Crashes    FaultClass = "crash"       // the process crashes at any point
	Pauses     FaultClass = "pause"       // the process is suspended, another one becomes the leader, and it resumes
	ClockJumps FaultClass = "clock"       // the wall clock is set
	Moves      FaultClass = "move"        // the shard of all releases moves to another process
	Preemption FaultClass = "preemption"  // a task does not run for a while between two reads of a cache
	Pruning    FaultClass = "pruning"     // the stored definition drops the additive status
)

// Faults are the classes of faults in a run, with the probability of each.
type Faults struct {
	rates   map[FaultClass]float64
	streams map[FaultClass]*Stream
	counts  map[FaultClass]int
	allowed func(name string) bool
	ended   bool
	// Occurred are the names of the single faults and actions that occurred, in order.
	Occurred []string
}

// newFaults draws which classes are included in this run, and the probability of each.
func newFaults(d Draws, classes []FaultClass, allowed func(string) bool) *Faults {
	t := &Faults{rates: map[FaultClass]float64{}, streams: map[FaultClass]*Stream{}, counts: map[FaultClass]int{}, allowed: allowed}
	for _, class := range classes {
		s := d.Stream("trouble/" + string(class)) // the name is part of the meaning of a seed
		present := s.Chance(0.5)
		rate := Pick(s, 0.002, 0.01, 0.03, 0.1)
		if present {
			t.rates[class] = rate
		}
		t.streams[class] = s
	}
	return t
}

// Has reports whether the class is included in this run and faults have not ended.
func (f *Faults) Has(class FaultClass) bool {
	_, ok := f.rates[class]
	return ok && !f.ended
}

// Inject draws whether a fault of the class occurs now. Each fault has a name, so that it can be omitted when a run is shrunk.
func (f *Faults) Inject(class FaultClass) bool {
	rate, ok := f.rates[class]
	if !ok {
		return false
	}
	occurs := f.streams[class].Chance(rate)
	if !occurs || f.ended {
		return false
	}
	return f.InjectDrawn(class)
}

// InjectDrawn assigns a name to a fault that an actor has drawn, and reports whether it occurs.
func (f *Faults) InjectDrawn(class FaultClass) bool {
	_, occurs := f.injectNext(class)
	return occurs
}

// injectNext returns the name of the next fault of a class, and whether it occurs.
func (f *Faults) injectNext(class FaultClass) (string, bool) {
	f.counts[class]++
	name := faultName(class, f.counts[class])
	return name, f.Admit(name)
}

// Stream returns the random stream for the details of the class.
func (f *Faults) Stream(class FaultClass) *Stream { return f.streams[class] }

// Admit reports whether the named fault or action occurs in this run, and if so records its name.
func (f *Faults) Admit(name string) bool {
	if !f.allowed(name) {
		return false
	}
	f.Occurred = append(f.Occurred, name)
	return true
}

// String lists the classes that are included in a run.
func (f *Faults) String() string {
	var names []string
	for class := range f.rates {
		names = append(names, string(class))
	}
	return strings.Join(sorted(names), " ")
}

// The typical latency of an API call, and the maximum latency of a slow one.
const (
	callLatency     = 4 * time.Millisecond
	slowCallLatency = 8 * time.Second
)
