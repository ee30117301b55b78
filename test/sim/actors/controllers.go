package actors

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

// Controller implements sim.Controller with a production controller.
type Controller struct {
	reconcile.Reconciler

	// WatchedKinds are the kinds that the controller watches from its start.
	WatchedKinds []schema.GroupKind
	// Requests returns the releases to reconcile after a change, with the mapping that the watches have in production.
	Requests func(store.Change) []reconcile.Request
	// Send sends everything that is queued for receivers outside the process.
	Send func()
}

// Watches implements sim.Controller.
func (c *Controller) Watches() []schema.GroupKind { return c.WatchedKinds }

// RequestsFor implements sim.Controller.
func (c *Controller) RequestsFor(change store.Change) []reconcile.Request { return c.Requests(change) }

// Flush implements sim.Controller.
func (c *Controller) Flush() { c.Send() }

// FurtherController is a kind without releases. It runs a further controller in the runs of another kind.
type FurtherController func(*sim.Instance) sim.Controller

// Populate implements sim.Kind, as the methods below do.
func (FurtherController) Populate(*sim.World) {}

// Controller returns the further controller.
func (f FurtherController) Controller(i *sim.Instance) sim.Controller { return f(i) }

// Quiesce does nothing.
func (FurtherController) Quiesce(*sim.World) {}

// Settled always returns true, because the kind with the releases reports whether the run has settled.
func (FurtherController) Settled(*sim.World) bool { return true }

// UnsettledReason returns no reason.
func (FurtherController) UnsettledReason(*sim.World) string { return "" }

// SettleTimeout requires no further time.
func (FurtherController) SettleTimeout(*sim.World) time.Duration { return 0 }

// CheckEnd checks nothing.
func (FurtherController) CheckEnd(*sim.World) {}

// FinalState returns nothing, because the kind with the releases returns the final state.
func (FurtherController) FinalState(*sim.World) string { return "" }
