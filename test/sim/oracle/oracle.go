// Package oracle checks a simulation run against invariants: the part of the checks that does not depend on the API of a
// release.
//
// A ledger records what an outside observer can know: who wrote what on which version, which process was running, whose
// clock was set, and for how long a value was valid. The ledgers of the APIs embed this one and add what only they have.
//
// Invariants that mean the same for each API are written once, over facts in common terms: a change of a weight, a move of
// users to other pods, a scale-down, a step, a wait. An API reads these facts from its events, and leaves out those whose
// process acted on a state that it could not know to be outdated, or that users changed; the core evaluates them.
//
// To add an invariant: write its rule here if it can hold for each API, add a row to the table of the API (invariants.go)
// and to docs/simulator.md, and a mutant that violates it. To add an API: a ledger, a function for each kind of fact, and a
// table.
//
// The oracle must never consult the code under test, and this package must not know any kind of release.
package oracle

import "github.com/serin-dev/serin/test/sim"

// Invariant is a row of the table of an API: a property that must hold in each of its simulation runs.
type Invariant struct {
	// Number and Text are those of docs/simulator.md.
	Number, Text string
	// Checkers verify it in one run: a rule of this package, what only one API has, or both.
	Checkers []Checker
}

// Holds returns a row.
func Holds(number, text string, checkers ...Checker) Invariant {
	return Invariant{number, text, checkers}
}

// Checker verifies an invariant, or a part of one, during one run.
type Checker interface {
	// Observe receives each event before the ledger records it.
	Observe(event any)
	// Finish checks the final state of the run.
	Finish()
}

// Recorder is the ledger of an API.
type Recorder interface {
	// Interpret translates an event of the simulator into events in the terms of the API.
	Interpret(event any) []any
	// Record remembers such an event after all checkers have seen it.
	Record(event any)
}

// Oracle checks one run against all invariants of an API.
type Oracle struct {
	ledger   Recorder
	checkers []Checker
}

// New returns the oracle of a run, which observes the world from now on.
func New(w *sim.World, ledger Recorder, invariants []Invariant) *Oracle {
	o := &Oracle{ledger: ledger}
	for _, invariant := range invariants {
		o.checkers = append(o.checkers, invariant.Checkers...)
	}
	w.Subscribe(o.observe)
	return o
}

func (o *Oracle) observe(event any) {
	for _, interpreted := range o.ledger.Interpret(event) {
		for _, c := range o.checkers {
			c.Observe(interpreted)
		}
		o.ledger.Record(interpreted)
	}
}

// Finish checks the final state of the run.
func (o *Oracle) Finish() {
	for _, c := range o.checkers {
		c.Finish()
	}
}

// EventsOnly is embedded by checkers that have nothing to check in the final state.
type EventsOnly struct{}

// Finish implements Checker.
func (EventsOnly) Finish() {}

// OnEvent is a checker of events that has nothing to check in the final state.
type OnEvent func(event any)

// Observe implements Checker.
func (f OnEvent) Observe(event any) { f(event) }

// Finish implements Checker.
func (OnEvent) Finish() {}

// AtEnd is a checker of the final state alone.
type AtEnd func()

// Observe implements Checker.
func (AtEnd) Observe(any) {}

// Finish implements Checker.
func (f AtEnd) Finish() { f() }

// each returns a checker that evaluates every fact of an event.
func each[F any](facts func(event any) []F, judge func(F)) Checker {
	return OnEvent(func(event any) {
		for _, fact := range facts(event) {
			judge(fact)
		}
	})
}

// eachAtEnd returns a checker that evaluates every fact of the final state.
func eachAtEnd[F any](facts func() []F, judge func(F)) Checker {
	return AtEnd(func() {
		for _, fact := range facts() {
			judge(fact)
		}
	})
}
