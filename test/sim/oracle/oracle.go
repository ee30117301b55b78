// Package oracle checks a simulation run against invariants. It contains the part of the checks that does not depend on the API
// of a release.
//
// A ledger records what an outside observer can know: which actor wrote an object based on which version, which processes were
// running, whose clock was set, and for how long a value was valid. The ledgers of the APIs embed this one and add their own
// records.
//
// Invariants that mean the same for each API are written once, over facts in common terms: a change of a weight, a shift of
// users to other pods, a scale-down, a step, a wait. An API derives these facts from its events. It leaves out facts whose
// process acted on a state that it could not know to be outdated, or that users changed. This package evaluates the facts.
//
// To add an invariant: write its rule here if it can hold for each API, add a row to the table of the API (invariants.go) and
// to docs/simulator.md, and add a mutant that violates it. To add an API: write a ledger, a function for each kind of fact, and
// a table.
//
// The oracle must never consult the code under test, and this package must not know any kind of release.
package oracle

import "github.com/serin-dev/serin/test/sim"

// Invariant is a row of the table of an API: a property that must hold in each of its simulation runs.
type Invariant struct {
	// Number and Text are documented in docs/simulator.md.
	Number, Text string
	// Checkers verify the invariant in one run. A checker is a rule of this package or is specific to one API.
	Checkers []Checker
}

// NewInvariant returns a row of the table.
func NewInvariant(number, text string, checkers ...Checker) Invariant {
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
	// Record records such an event after all checkers have observed it.
	Record(event any)
}

// Oracle checks one run against all invariants of an API.
type Oracle struct {
	ledger   Recorder
	checkers []Checker
}

// New returns the oracle of a run, which observes all further events of the world.
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

// OnEvent is a checker that evaluates events only.
type OnEvent func(event any)

// Observe implements Checker.
func (f OnEvent) Observe(event any) { f(event) }

// Finish implements Checker.
func (OnEvent) Finish() {}

// AtEnd is a checker that evaluates the final state only.
type AtEnd func()

// Observe implements Checker.
func (AtEnd) Observe(any) {}

// Finish implements Checker.
func (f AtEnd) Finish() { f() }

// checkEach returns a checker that evaluates every fact that an event yields.
func checkEach[F any](facts func(event any) []F, check func(F)) Checker {
	return OnEvent(func(event any) {
		for _, fact := range facts(event) {
			check(fact)
		}
	})
}

// checkEachAtEnd returns a checker that evaluates every fact of the final state.
func checkEachAtEnd[F any](facts func() []F, check func(F)) Checker {
	return AtEnd(func() {
		for _, fact := range facts() {
			check(fact)
		}
	})
}
