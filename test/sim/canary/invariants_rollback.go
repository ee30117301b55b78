package canary

import (
	"time"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// gradualRollback is I34. That the share never rises again is I5.
type gradualRollback struct {
	*ledger
	oracle.EventsOnly
}

func (c *gradualRollback) Observe(event any) {
	switch h := event.(type) {
	case routeWritten:
		if h.BySerin && h.before.found && h.after.found && h.after.canary < h.before.canary {
			c.overloads(h)
		}
	case sim.Reconciled:
		if r := c.ByName[h.Release]; r != nil && h.Err == nil {
			c.withholds(r)
		}
	}
}

// inParts is true of a rollback whose traffic returns in parts: that of a weighted release whose primary did not change.
func (c *gradualRollback) inParts(r *record) bool {
	wishes := c.expectations(r)
	return len(wishes) == 1 && wishes[0].weighted && wishes[0].routed && !wishes[0].skip && r.run != nil && analysing(r.phase()) &&
		r.mine() && c.owns(r) && !leaving(r) && !r.blocked() && r.Suspended.IsZero() && r.run.promoted.IsZero() &&
		r.primary.version != nil && r.primary.changed().Before(r.run.began) && r.target.version != nil && r.target.changed().Before(c.OldestView()) &&
		r.status.FailedChecks <= wishes[0].threshold && !c.outpaced(r.mover, r)
}

// overloads: whatever a process saw of the pods, they did not carry what the primary gets.
func (c *gradualRollback) overloads(h routeWritten) {
	r := h.of
	failed := r.run != nil && r.status.FailedChecks >= r.Specs[len(r.Specs)-1].Value.threshold
	if !c.inParts(r) || r.run.intent != "rollback" && !failed || c.outpaced(h.Actor, r) || r.target.changed().After(r.run.began.Add(c.Lag)) {
		return
	}
	from := c.OldestView()
	if r.run.intent == "rollback" {
		from = r.run.intended.Add(-c.Lag) // the need may have been recorded then
	}
	if r.primary.ready.Ever(c.OldestView()) || !r.target.Answering.Always(c.OldestView()) || r.target.Fewest(from) == 0 {
		return
	}
	enough := min(r.target.Fewest(from), oracle.Fewest(r.primary.Desired, from))
	rest := 100 - carried(r.primary.Most(c.OldestView()), enough)
	if said := r.status.CanaryWeight; said > 0 {
		rest = min(rest, said)
	}
	if rest = min(rest, h.before.canary); h.after.canary < rest {
		c.Violate("I34", r.Name(), "the canary's weight went from %d to %d, but the primary has had no more than %d pods, and %d carry everything",
			h.before.canary, h.after.canary, r.primary.Most(c.OldestView()), enough)
	}
}

// withholds: whatever a process saw of the pods, they carry more than the primary has.
func (c *gradualRollback) withholds(r *record) {
	if !c.inParts(r) || r.run.intent != "rollback" || !r.run.intended.Before(c.OldestView()) || !r.moved.Before(c.OldestView()) || !r.changed.Before(c.OldestView()) ||
		!r.route.found || r.route.canary == 0 || r.route.touched.After(c.OldestView()) || r.primary.created.After(r.run.began) {
		return
	}
	from := c.OldestView().Add(-cluster.Published)
	if c.World.Faults.Has(cluster.LateEndpoints) {
		from = from.Add(-cluster.Late)
	}
	began := r.run.intended.Add(-c.Lag)
	enough := min(max(r.target.Most(began), 1), oracle.Most(r.primary.Desired, began))
	fewest := r.primary.Fewest(from)
	if rest := 100 - carried(fewest, enough); fewest > 0 && r.route.canary > rest {
		c.Violate("I34", r.Name(), "rolled back since %s it still has %d %% of the traffic, although the primary has had %d pods at least, and %d carry everything",
			c.since(r.run.intended), r.route.canary, fewest, enough)
	}
}

// carried is the share in percent that pods carry of which that many are enough.
func carried(pods, enough int) int {
	if enough <= 0 {
		return 100
	}
	return int(min(100*pods/enough, 100))
}

// recordCount records how many pods are available, and how many are desired.
func (p *workloadState) recordCount(now time.Time) {
	oracle.Count(&p.Serving, int(p.available), now)
	oracle.Count(&p.Desired, int(p.replicas), now)
}
