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
// To add an invariant: write its rule and its facts here if it can hold for each API (Facts), or a checker in the package of the
// API, which embeds the ledger and records what only this invariant needs; add its text and its checkers (invariants.go of the
// API), a row in docs/simulator.md, and a mutant that violates it. To add an API: write a ledger, the functions of Facts, and a
// list of invariants.
//
// The oracle must never consult the code under test, and this package must not know any kind of release.
package oracle

import "github.com/serin-dev/serin/test/sim"

// Invariant is a row of the table of an API: a property that must hold in each of its simulation runs. Number and text are
// documented in docs/simulator.md.
type Invariant struct{ Number, Text string }

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

// New returns the oracle of a run, which observes all further events of the world. The checkers of an invariant are those of the
// API, and then the shared rule, if there is one.
func New(w *sim.World, ledger Recorder, invariants []Invariant, checkers Checkers) *Oracle {
	o := &Oracle{ledger: ledger}
	for _, invariant := range invariants {
		if len(checkers[invariant.Number]) == 0 {
			panic("no checker of " + invariant.Number) // a programming error
		}
		o.checkers = append(o.checkers, checkers[invariant.Number]...)
	}
	if len(checkers) > len(invariants) {
		panic("checkers of invariants that the API does not have") // a programming error
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
