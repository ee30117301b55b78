package rollout

import (
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// controllerKind runs a further controller in the same runs. It has no releases of its own.
type controllerKind struct {
	*Rollouts

	controller func(*process) sim.Controller
}

// Populate implements sim.Kind, as the methods below do.
func (p *controllerKind) Populate(*sim.World) {}

// Controller returns the further controller.
func (p *controllerKind) Controller(i *sim.Instance) sim.Controller {
	return p.controller(p.process(i))
}

// Quiesce does nothing.
func (p *controllerKind) Quiesce(*sim.World) {}

// Settled always returns true, because the Rollouts report whether the run has settled.
func (p *controllerKind) Settled(*sim.World) bool { return true }

// UnsettledReason returns no reason.
func (p *controllerKind) UnsettledReason(*sim.World) string { return "" }

// SettleTimeout requires no further time.
func (p *controllerKind) SettleTimeout(*sim.World) time.Duration { return 0 }

// CheckEnd checks nothing.
func (p *controllerKind) CheckEnd(*sim.World) {}

// FinalState returns nothing, because the Rollouts return the final state.
func (p *controllerKind) FinalState(*sim.World) string { return "" }
