// Package oracle checks a simulation run against invariants: the part of the checks that does not depend on the API of a
// release.
//
// A ledger records what an outside observer can know: who wrote what on which version, which process was running, whose
// clock was set, and for how long a value was valid. Invariants that mean the same for each API (ownership, secrets,
// preconditions, bounded work, conflicts, leftovers) are written once, over a small vocabulary that the package of an API
// provides. The ledgers of the APIs embed this one and add what only they have: phases, weights, questions, pods.
//
// The oracle must never consult the code under test, and this package must not know any kind of release.
package oracle

import "github.com/serin-dev/serin/test/sim"

// Invariant is a property that must hold in every simulation run of an API whose ledger is an L.
type Invariant[L any] struct {
	// Number and Text are those of docs/simulator.md.
	Number, Text string
	// New returns a checker for one run.
	New func(L) Checker
}

// Checker verifies one invariant during one run.
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
func New[L Recorder](w *sim.World, ledger L, invariants []Invariant[L]) *Oracle {
	o := &Oracle{ledger: ledger}
	for _, invariant := range invariants {
		o.checkers = append(o.checkers, invariant.New(ledger))
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

// Both returns one checker for the two parts of an invariant: the shared one, and what one API adds.
func Both(shared, added Checker) Checker { return both{shared, added} }

type both [2]Checker

// Observe implements Checker.
func (b both) Observe(event any) {
	for _, c := range b {
		c.Observe(event)
	}
}

// Finish implements Checker.
func (b both) Finish() {
	for _, c := range b {
		c.Finish()
	}
}
