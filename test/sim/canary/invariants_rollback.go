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
		r.mine() && c.owns(r) && !leaving(r) && !r.blocked() && r.suspended.IsZero() && r.run.promoted.IsZero() &&
		r.primary.version != nil && r.primary.changed().Before(r.run.began) && r.target.version != nil && r.target.changed().Before(c.OldestView()) &&
		r.status.FailedChecks <= wishes[0].threshold && !c.outpaced(r.mover, r)
}

// overloads: whatever a process saw of the pods, they did not carry what the primary gets.
func (c *gradualRollback) overloads(h routeWritten) {
	r := h.of
	failed := r.run != nil && r.status.FailedChecks >= r.specs[len(r.specs)-1].Value.threshold
	if !c.inParts(r) || r.run.intent != "rollback" && !failed || c.outpaced(h.Actor, r) || r.target.changed().After(r.run.began.Add(c.Lag)) {
		return
	}
	from := c.OldestView()
	if r.run.intent == "rollback" {
		from = r.run.intended.Add(-c.Lag) // the need may have been recorded then
	}
	if r.primary.wasReady(c.OldestView()) || !r.target.isServing(c.OldestView()) || r.target.fewest(from) == 0 {
		return
	}
	enough := min(r.target.fewest(from), r.primary.fewestAsked(from))
	rest := 100 - carried(r.primary.most(c.OldestView()), enough)
	if said := r.status.CanaryWeight; said > 0 {
		rest = min(rest, said)
	}
	if rest = min(rest, h.before.canary); h.after.canary < rest {
		c.Violate("I34", r.name(), "the canary's weight went from %d to %d, but the primary has had no more than %d pods, and %d carry everything",
			h.before.canary, h.after.canary, r.primary.most(c.OldestView()), enough)
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
	enough := min(max(r.target.most(began), 1), r.primary.mostAsked(began))
	fewest := r.primary.fewest(from)
	if rest := 100 - carried(fewest, enough); fewest > 0 && r.route.canary > rest {
		c.Violate("I34", r.name(), "rolled back since %s it still has %d %% of the traffic, although the primary has had %d pods at least, and %d carry everything",
			c.since(r.run.intended), r.route.canary, fewest, enough)
	}
}

// carried is the share in percent that pods carry of which that many are enough.
func carried(pods, enough int64) int {
	if enough <= 0 {
		return 100
	}
	return int(min(100*pods/enough, 100))
}

// count is how many pods a workload had, and was asked to have.
type count struct{ available, asked int64 }

// remembered are the counts that are kept; no one asks for what was before.
const remembered = 200

func (p *pods) recordCount(now time.Time) {
	next := count{p.available, p.replicas}
	if last, exists := p.counted.Last(); exists && last.Value == next {
		return
	}
	p.counted.Set(next, now)
	p.counted = p.counted[max(0, len(p.counted)-remembered):]
}

// extremes are the least and the most of a count since then; 0, 0: there was none.
func (p *pods) extremes(then time.Time, of func(count) int64) (least, most int64) {
	for i, c := range p.counted.Since(then) {
		if n := of(c); i == 0 {
			least, most = n, n
		} else {
			least, most = min(least, n), max(most, n)
		}
	}
	return least, most
}

func (p *pods) fewest(then time.Time) int64 { least, _ := p.extremes(then, available); return least }
func (p *pods) most(then time.Time) int64   { _, most := p.extremes(then, available); return most }

func (p *pods) fewestAsked(then time.Time) int64 {
	least, _ := p.extremes(then, askedFor)
	return least
}

func (p *pods) mostAsked(then time.Time) int64 { _, most := p.extremes(then, askedFor); return most }

func available(c count) int64 { return c.available }
func askedFor(c count) int64  { return c.asked }
