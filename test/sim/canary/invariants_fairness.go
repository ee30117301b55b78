package canary

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// neighbourNamespace is a namespace whose Canaries query receivers that never answer. There are more such queries than slots.
// These Canaries are not simulated in any other way.
const neighbourNamespace = "neighbours"

// neighbourCount is the number of its Canaries that call a webhook, and of those that query a metric.
const neighbourCount = 2 * maxInFlightPerPool

// Neighbours is the class of runs with such a namespace. It leaves every other namespace one slot of each pool, so that runs
// without it have more queries in flight.
const Neighbours sim.FaultClass = "neighbours"

// submitNeighbourQueries submits the queries of the neighbours to a process that starts.
func (p *process) submitNeighbourQueries() {
	if t := p.canaries.World.Faults; !t.Has(Neighbours) || !t.InjectDrawn(Neighbours) {
		return
	}
	for i := range neighbourCount {
		p.submitNeighbourQuery(neighbourKey("hook", i), canary.HookQuery{})
		p.submitNeighbourQuery(neighbourKey("metric", i), canary.MetricQuery{})
	}
}

func (p *process) submitNeighbourQuery(key queryrunner.Key, request any) {
	if err := p.queries.Submit(key, []release.Query{{ID: "hangs", Request: request}}); err != nil {
		panic(err)
	}
}

// forgetNeighbourQueries ends the queries of the neighbours.
func (p *process) forgetNeighbourQueries() {
	for i := range neighbourCount {
		for _, kind := range []string{"hook", "metric"} {
			p.queries.Forget(neighbourKey(kind, i).NamespacedName)
		}
	}
}

func neighbourKey(kind string, i int) queryrunner.Key {
	return queryrunner.Key{NamespacedName: types.NamespacedName{Namespace: neighbourNamespace, Name: fmt.Sprint(kind, "-", i)}, UID: "neighbour"}
}

// Starved reports that no slot is free for the next query of a release.
type Starved struct {
	Instance string
	Release  types.NamespacedName
	Request  any
}

// reportStarved reports the releases whose next query waits for a slot.
func (p *process) reportStarved() {
	for _, r := range p.canaries.Releases {
		if question, waits := p.queries.NextWaiting(r.Key); waits {
			p.canaries.World.Publish(Starved{p.instance.Name, r.Key, question})
		}
	}
}

// fairQueries is I35.
type fairQueries struct {
	*ledger
	oracle.EventsOnly
}

func (c *fairQueries) Observe(event any) {
	h, ok := event.(Starved)
	if !ok {
		return
	}
	pool := controller.Pool(h.Request)
	process := c.processState(h.Instance)
	for _, out := range slices.AppendSeq(slices.Clone(process.abandoned), maps.Values(process.inFlight)) {
		if out.answeredAt.IsZero() && controller.Pool(out.request.Request) == pool {
			return // it waits for a query of its own namespace
		}
	}
	c.Violate("I35", "", "%s: its query waits for a slot of the %s, although its namespace uses none", h.Release.Name, pool)
}
