package oracle

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// maxRequeues is how often an object may be requeued immediately without a change. maxReconciliations is the maximum number of
// reconciliations for each event and each second.
const (
	maxRequeues        = 3
	maxReconciliations = 20
)

// BoundedWork is I21: no object is reconciled repeatedly without a change.
type BoundedWork struct {
	*Ledger
	EventsOnly

	requeues, reconciliations map[types.NamespacedName]int
	// events is the value of Ledger.Events at the last reconciliation.
	events int
}

// NewBoundedWork returns the checker of I21.
func NewBoundedWork(l *Ledger) *BoundedWork {
	return &BoundedWork{Ledger: l, requeues: map[types.NamespacedName]int{}, reconciliations: map[types.NamespacedName]int{}}
}

// Observe implements Checker.
func (c *BoundedWork) Observe(event any) {
	e, ok := event.(sim.Reconciled)
	if !ok {
		return
	}
	if c.Events != c.events {
		clear(c.requeues)
		c.events = c.Events
	}
	key := e.Release
	c.reconciliations[key]++
	if most := maxReconciliations * (10 + c.Events + int(c.Now().Sub(c.Began)/time.Second)); c.reconciliations[key] > most {
		c.Violate("I21", key.Name, "it was reconciled %d times, but only %d events occurred", c.reconciliations[key], c.Events)
	}
	if e.Err != nil || e.Result.RequeueAfter <= 0 || e.Result.RequeueAfter > time.Millisecond {
		delete(c.requeues, key)
		return
	}
	if c.requeues[key]++; c.requeues[key] > maxRequeues {
		c.Violate("I21", key.Name, "it was requeued immediately %d times without a change", c.requeues[key])
	}
}

// Forgotten is I36: no metric series and no state in the memory of a process outlives its object.
type Forgotten struct {
	*Ledger
	EventsOnly
}

// Observe implements Checker.
func (c *Forgotten) Observe(event any) {
	if e, ok := event.(actors.Leftover); ok {
		c.Violate("I36", "", "%s: %s", e.Instance, e.What)
	}
}

// Fenced is I38: a process sends no write and no query after another one took over, not even one that fails.
type Fenced struct {
	*Ledger
	EventsOnly
}

// Observe implements Checker.
func (c *Fenced) Observe(event any) {
	switch e := event.(type) {
	case sim.RequestSent:
		if !e.Call.Read() && e.Call.Kind != (schema.GroupKind{Kind: "Event"}) {
			c.check(e.Instance, e.Call.Key.Name, e.Call.String())
		}
	case actors.QuerySent:
		c.check(e.Instance, e.Key.Name, "query "+e.Query.ID)
	}
}

func (c *Fenced) check(process, release, sent string) {
	own := c.Started[process]
	for successor, started := range c.Started {
		if started.After(own) {
			c.Violate("I38", release, "%s sent %q after %s had taken over", process, sent, successor)
			return
		}
	}
}
