package rollout

import (
	"slices"
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// clocks is what is known of the clocks of the processes: since when none was set, and all say the same.
type clocks struct {
	world    *sim.World
	jumped   bool
	calm     bool
	unsteady time.Time
}

// note takes down what happened.
func (c *clocks) note(happening any) {
	switch happening.(type) {
	case sim.Jumped:
		c.jumped, c.unsteady = true, c.world.Now()
	case sim.Started, sim.Crashed: // a process begins with the right time
		c.unsteady = c.world.Now()
	}
	if !c.jumped {
		return
	}
	if over := !c.world.Trouble.Has(sim.ClockJumps); over && !c.calm { // with which all clocks are set right
		c.calm, c.unsteady = true, c.world.Now()
	}
	if c.disagree() {
		c.unsteady = c.world.Now()
	}
}

// disagree is true while the clocks of the processes that live are not the same.
func (c *clocks) disagree() bool {
	all := c.world.Instances()
	return slices.ContainsFunc(all, func(i *sim.Instance) bool { return !i.Clock.Now().Equal(all[0].Clock.Now()) })
}

// steady is true when no clock was set since then: what one process wrote down as a moment is that moment for all.
func (c *clocks) steady(then time.Time) bool { return !c.jumped || c.unsteady.Before(then) }
