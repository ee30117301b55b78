package oracle

import (
	"slices"
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// Clocks records whether the clocks of the processes can be compared.
type Clocks struct {
	// Changed is true once a clock was set.
	Changed bool

	world *sim.World
	// corrected is true once the faults are over, which corrects all clocks; inconsistent is when clocks were last set, or
	// last differed.
	corrected    bool
	inconsistent time.Time
}

func (c *Clocks) record(event any) {
	switch event.(type) {
	case sim.ClockChanged:
		c.Changed, c.inconsistent = true, c.world.Now()
	case sim.ProcessStarted, sim.ProcessCrashed: // a process starts with the correct time
		c.inconsistent = c.world.Now()
	}
	if !c.Changed {
		return
	}
	if over := !c.world.Faults.Has(sim.ClockJumps); over && !c.corrected {
		c.corrected, c.inconsistent = true, c.world.Now()
	}
	if c.Differ() {
		c.inconsistent = c.world.Now()
	}
}

// Differ reports whether the clocks of the running processes differ now.
func (c *Clocks) Differ() bool {
	all := c.world.Instances()
	return slices.ContainsFunc(all, func(i *sim.Instance) bool { return !i.Clock.Now().Equal(all[0].Clock.Now()) })
}

// Consistent reports whether a moment that one process recorded since then is the same moment for every other process: no
// clock was set, and no two clocks differed. Otherwise no process can know how long ago it was.
func (c *Clocks) Consistent(since time.Time) bool {
	return !c.Changed || c.inconsistent.Before(since) && !c.Differ()
}
