package oracle

import (
	"slices"
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// Clocks records whether the clocks of the processes can be compared.
type Clocks struct {
	// Changed reports whether a clock was set.
	Changed bool

	world *sim.World
	// corrected is set when the faults end, which corrects all clocks. inconsistent is the last time at which a clock was set
	// or two clocks differed.
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

// Now returns the time by the clock of a process. A process that has ended has none: then it is the correct time.
func (c *Clocks) Now(process string) time.Time {
	for _, i := range c.world.Instances() {
		if i.Name == process {
			return i.Clock.Now()
		}
	}
	return c.world.Now()
}

// Consistent reports whether all processes agree about a time that one of them recorded since then: no clock was set, and no
// two clocks differed. Otherwise no process can know how long ago that time was.
func (c *Clocks) Consistent(since time.Time) bool {
	return !c.Changed || c.inconsistent.Before(since) && !c.Differ()
}
