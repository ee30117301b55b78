package sim

import (
	"strings"
	"time"
)

// Class is a kind of trouble. Each history has about half of them.
type Class string

// The classes of trouble that the world itself makes; a kind of release adds those of its actors.
const (
	FailBefore Class = "fail-before" // an API call fails and did nothing
	FailAfter  Class = "fail-after"  // an API call fails and did what it was asked
	Conflicts  Class = "conflict"    // somebody wrote the object in between, or it seems so
	Throttled  Class = "throttled"   // 429
	Forbidden  Class = "forbidden"   // 403 for one kind, for a while
	SlowCalls  Class = "slow"        // an API call takes seconds
	LateEvents Class = "late-events" // a watch lags seconds behind
	Relists    Class = "relist"      // a watch ends and begins anew with a list; the first list of a process may be old
	Repeats    Class = "repeat"      // a watch says something twice
	Crashes    Class = "crash"       // the process dies anywhere
	Pauses     Class = "pause"       // the process sleeps, another one leads, and it wakes up
	ClockJumps Class = "clock"       // the wall clock is set
	Pruning    Class = "pruning"     // the stored definition drops the additive status
)

// Trouble says which classes of trouble a history has, and how much of each.
type Trouble struct {
	rates   map[Class]float64
	streams map[Class]*Stream
	counts  map[Class]int
	allowed func(name string) bool
	over    bool
	// Happened are the names of the single troubles and actions that took place, in order.
	Happened []string
}

// newTrouble draws for each class whether it is in this history, and how often it strikes.
func newTrouble(d Draws, classes []Class, allowed func(string) bool) *Trouble {
	t := &Trouble{rates: map[Class]float64{}, streams: map[Class]*Stream{}, counts: map[Class]int{}, allowed: allowed}
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
func (t *Trouble) Has(class Class) bool {
	_, ok := t.rates[class]
	return ok && !t.over
}

// Strikes draws whether trouble of that class happens now. Each draw has a name of its own, so that it can be left out
// when a history is made smaller.
func (t *Trouble) Strikes(class Class) bool {
	rate, ok := t.rates[class]
	if !ok {
		return false
	}
	struck := t.streams[class].Chance(rate)
	if !struck || t.over {
		return false
	}
	return t.Occurs(class)
}

// Occurs gives trouble that an actor drew by itself its name, and says whether it takes place.
func (t *Trouble) Occurs(class Class) bool {
	_, happens := t.next(class)
	return happens
}

// next is the name of the next trouble of a class, and whether it takes place.
func (t *Trouble) next(class Class) (string, bool) {
	t.counts[class]++
	name := nth(class, t.counts[class])
	return name, t.Happens(name)
}

// Stream is where details of that class are drawn from.
func (t *Trouble) Stream(class Class) *Stream { return t.streams[class] }

// Happens records a named thing that is about to happen, unless it was left out.
func (t *Trouble) Happens(name string) bool {
	if !t.allowed(name) {
		return false
	}
	t.Happened = append(t.Happened, name)
	return true
}

// String lists the classes of a history.
func (t *Trouble) String() string {
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
