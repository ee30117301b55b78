package canary

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// neighbours is a namespace whose Canaries ask receivers that never answer, more of them than there are slots. Nothing else
// of them is simulated.
const neighbours = "neighbours"

// crowded is how many of its Canaries ask a webhook, and how many a metric.
const crowded = 2 * inFlight

// Neighbours is whether there are any. They leave a namespace one slot of each pool, so that without them more is out at once.
const Neighbours sim.FaultClass = "neighbours"

// crowd has the neighbours ask a process that starts.
func (p *process) crowd() {
	if t := p.canaries.world.Faults; !t.Has(Neighbours) || !t.InjectDrawn(Neighbours) {
		return
	}
	for i := range crowded {
		p.queries.Submit(neighbour("hook", i), []release.Query{{ID: "hangs", Request: canary.HookQuery{}}})
		p.queries.Submit(neighbour("metric", i), []release.Query{{ID: "hangs", Request: canary.MetricQuery{}}})
	}
}

// disperse ends the questions of the neighbours.
func (p *process) disperse() {
	for i := range crowded {
		for _, kind := range []string{"hook", "metric"} {
			p.queries.Forget(neighbour(kind, i).NamespacedName)
		}
	}
}

func neighbour(kind string, i int) queryrunner.Key {
	return queryrunner.Key{NamespacedName: types.NamespacedName{Namespace: neighbours, Name: fmt.Sprint(kind, "-", i)}, UID: "neighbour"}
}

// Starved reports that the next question of a release finds no slot.
type Starved struct {
	Instance string
	Release  types.NamespacedName
	Question any
}

// starved reports of the releases whose next question waits.
func (p *process) starved() {
	for _, r := range p.canaries.releases {
		if question, waits := p.queries.NextWaiting(r.Key); waits {
			p.canaries.world.Publish(Starved{p.instance.Name, r.Key, question})
		}
	}
}

// fairSlots is I35.
type fairSlots struct {
	*ledger
	oracle.EventsOnly
}

func (c *fairSlots) Observe(event any) {
	h, ok := event.(Starved)
	if !ok {
		return
	}
	pool := controller.Pool(h.Question)
	for _, out := range c.life(h.Instance).out {
		if out.answered.IsZero() && controller.Pool(out.probe.Request) == pool {
			return // it waits for its own namespace
		}
	}
	c.Violate("I35", "", "%s: its question finds no slot of the %s, and its namespace has none", h.Release.Name, pool)
}
