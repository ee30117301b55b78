package sim

import (
	"strings"
	"time"
)

// FaultClass is a class of faults. Each run has about half of all classes.
type FaultClass string

// The classes of faults that the engine injects; a kind of release adds those of its actors.
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
	Pruning    FaultClass = "pruning"     // the stored definition drops the additive status
)

// Faults are the classes of faults of a run, and the probability of each.
type Faults struct {
	rates   map[FaultClass]float64
	streams map[FaultClass]*Stream
	counts  map[FaultClass]int
	allowed func(name string) bool
	over    bool
	// TookPlace are the names of the single faults and actions that took place, in order.
	TookPlace []string
}

// newFaults draws which classes are in this run, and the probability of each.
func newFaults(d Draws, classes []FaultClass, allowed func(string) bool) *Faults {
	t := &Faults{rates: map[FaultClass]float64{}, streams: map[FaultClass]*Stream{}, counts: map[FaultClass]int{}, allowed: allowed}
	for _, class := range classes {
		s := d.Stream("trouble/" + string(class))
		present := s.Chance(0.5)
		rate := Pick(s, 0.002, 0.01, 0.03, 0.1)
		if present {
			t.rates[class] = rate
		}
		t.streams[class] = s
	}
	return t
}

// Has reports whether the class is in this run, and faults are not over.
func (t *Faults) Has(class FaultClass) bool {
	_, ok := t.rates[class]
	return ok && !t.over
}

// Inject draws whether a fault of that class occurs now. Each fault has a name, so that it can be left out when a run is
// shrunk.
func (t *Faults) Inject(class FaultClass) bool {
	rate, ok := t.rates[class]
	if !ok {
		return false
	}
	occurs := t.streams[class].Chance(rate)
	if !occurs || t.over {
		return false
	}
	return t.InjectDrawn(class)
}

// InjectDrawn names a fault that an actor has drawn, and reports whether it takes place.
func (t *Faults) InjectDrawn(class FaultClass) bool {
	_, happens := t.next(class)
	return happens
}

// next is the name of the next fault of a class, and whether it takes place.
func (t *Faults) next(class FaultClass) (string, bool) {
	t.counts[class]++
	name := nth(class, t.counts[class])
	return name, t.TakesPlace(name)
}

// Stream is the random stream for the details of that class.
func (t *Faults) Stream(class FaultClass) *Stream { return t.streams[class] }

// TakesPlace records the name of a fault or an action, and is false if it was left out.
func (t *Faults) TakesPlace(name string) bool {
	if !t.allowed(name) {
		return false
	}
	t.TookPlace = append(t.TookPlace, name)
	return true
}

// String lists the classes of a run.
func (t *Faults) String() string {
	var names []string
	for class := range t.rates {
		names = append(names, string(class))
	}
	return strings.Join(sorted(names), " ")
}

// short delays of a healthy cluster.
const (
	usualCall = 4 * time.Millisecond
	slowCall  = 8 * time.Second
)
