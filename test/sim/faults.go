package sim

import (
	"strings"
	"time"
)

// FaultClass is a kind of trouble. Each history has about half of them.
type FaultClass string

// The classes of trouble that the world itself makes; a kind of release adds those of its actors.
const (
	FailBefore FaultClass = "fail-before" // an API call fails and did nothing
	FailAfter  FaultClass = "fail-after"  // an API call fails and did what it was asked
	Conflicts  FaultClass = "conflict"    // somebody wrote the object in between, or it seems so
	Throttled  FaultClass = "throttled"   // 429
	Forbidden  FaultClass = "forbidden"   // 403 for one kind, for a while
	SlowCalls  FaultClass = "slow"        // an API call takes seconds
	LateEvents FaultClass = "late-events" // a watch lags seconds behind
	Relists    FaultClass = "relist"      // a watch ends and begins anew with a list; the first list of a process may be old
	Repeats    FaultClass = "repeat"      // a watch says something twice
	Crashes    FaultClass = "crash"       // the process dies anywhere
	Pauses     FaultClass = "pause"       // the process sleeps, another one leads, and it wakes up
	ClockJumps FaultClass = "clock"       // the wall clock is set
	Pruning    FaultClass = "pruning"     // the stored definition drops the additive status
)

// Faults says which classes of trouble a history has, and how much of each.
type Faults struct {
	rates   map[FaultClass]float64
	streams map[FaultClass]*Stream
	counts  map[FaultClass]int
	allowed func(name string) bool
	over    bool
	// Recorded are the names of the single troubles and actions that took place, in order.
	Recorded []string
}

// newFaults draws for each class whether it is in this history, and how often it strikes.
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

// Has is true when the class is in this history and troubles are not over.
func (t *Faults) Has(class FaultClass) bool {
	_, ok := t.rates[class]
	return ok && !t.over
}

// Inject draws whether trouble of that class happens now. Each draw has a name of its own, so that it can be left out
// when a history is made smaller.
func (t *Faults) Inject(class FaultClass) bool {
	rate, ok := t.rates[class]
	if !ok {
		return false
	}
	struck := t.streams[class].Chance(rate)
	if !struck || t.over {
		return false
	}
	return t.InjectDrawn(class)
}

// InjectDrawn gives trouble that an actor drew by itself its name, and says whether it takes place.
func (t *Faults) InjectDrawn(class FaultClass) bool {
	_, happens := t.next(class)
	return happens
}

// next is the name of the next trouble of a class, and whether it takes place.
func (t *Faults) next(class FaultClass) (string, bool) {
	t.counts[class]++
	name := nth(class, t.counts[class])
	return name, t.Record(name)
}

// Stream is where details of that class are drawn from.
func (t *Faults) Stream(class FaultClass) *Stream { return t.streams[class] }

// Record records a named thing that is about to happen, unless it was left out.
func (t *Faults) Record(name string) bool {
	if !t.allowed(name) {
		return false
	}
	t.Recorded = append(t.Recorded, name)
	return true
}

// String lists the classes of a history.
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
