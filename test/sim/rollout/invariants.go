package rollout

import (
	"fmt"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// Invariant is one thing that must hold whatever happens to a Rollout.
type Invariant struct {
	// Number as in docs/simulator.md.
	Number   string
	Sentence string

	check func(*ledger) checker
}

// checker looks at everything that happens, before the ledger takes it down, and at the end.
type checker interface {
	see(happening any)
	end()
}

// Invariants are all that are checked of Rollouts. I9 and I9q are the engine's; I30 is checked by a test of its own.
func Invariants() []Invariant {
	return nil
}

// oracle holds a history against all invariants.
type oracle struct {
	ledger   *ledger
	checkers []checker
}

// newOracle watches a world from now on.
func newOracle(w *sim.World, c *cluster.Cluster) *oracle {
	o := &oracle{ledger: newLedger(w, c)}
	for _, invariant := range Invariants() {
		o.checkers = append(o.checkers, invariant.check(o.ledger))
	}
	w.Watch(o.see)
	return o
}

func (o *oracle) see(happening any) {
	for _, c := range o.checkers {
		c.see(happening)
	}
	o.ledger.note(happening)
}

// calm tells that the troubles are over.
func (o *oracle) calm() { o.ledger.calm = true }

// end checks what must hold at the very end.
func (o *oracle) end() {
	for _, c := range o.checkers {
		c.end()
	}
}

// without has nothing to check at the end.
type without struct{}

func (without) end() {}

// violate records a violation.
func (l *ledger) violate(number, who, format string, args ...any) {
	if who != "" {
		who += ": "
	}
	l.world.Violate(number, "%s%s", who, fmt.Sprintf(format, args...))
}
