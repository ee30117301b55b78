package rollout

import (
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// part is one more controller of the same runs: it has no releases of its own.
type part struct {
	*Rollouts

	controller func(*process) sim.Controller
}

// Populate implements sim.Kind, as the methods below do.
func (p *part) Populate(*sim.World) {}

// Controller makes the one of this part.
func (p *part) Controller(i *sim.Instance) sim.Controller { return p.controller(p.process(i)) }

// Quiesce does nothing.
func (p *part) Quiesce(*sim.World) {}

// Settled is for the Rollouts to say.
func (p *part) Settled(*sim.World) bool { return true }

// Unsettled has nothing to say.
func (p *part) Unsettled(*sim.World) string { return "" }

// Patience needs none.
func (p *part) Patience(*sim.World) time.Duration { return 0 }

// End checks nothing.
func (p *part) End(*sim.World) {}

// Final is said by the Rollouts.
func (p *part) Final(*sim.World) string { return "" }
