package canary

import (
	"time"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// inParts is true of a rollback whose traffic returns in parts: that of a weighted release whose primary did not change.
func (l *ledger) inParts(r *record) bool {
	wishes := l.expectations(r)
	return len(wishes) == 1 && wishes[0].weighted && wishes[0].routed && !wishes[0].skip && r.run != nil && analysing(r.phase()) &&
		r.mine() && l.owns(r) && !leaving(r) && !r.blocked() && r.Suspended.IsZero() && r.run.promoted.IsZero() &&
		r.primary.version != nil && r.primary.changed().Before(r.run.began) && r.target.version != nil && r.target.changed().Before(l.OldestView()) &&
		r.status.FailedChecks <= wishes[0].threshold && !l.outpaced(r.mover, r)
}

// carriedReturn is the part of I34 about the primary: it gets no more than its pods carry. That the share of the canary never
// rises again is I5.
func (l *ledger) carriedReturn(event any) {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.before.found || !h.after.found || h.after.canary >= h.before.canary {
		return
	}
	r := h.of
	failed := r.run != nil && r.status.FailedChecks >= r.Specs[len(r.Specs)-1].Value.threshold
	if !l.inParts(r) || r.run.intent != "rollback" && !failed || l.outpaced(h.Actor, r) || r.target.changed().After(r.run.began.Add(l.Lag)) {
		return
	}
	from := l.OldestView()
	if r.run.intent == "rollback" {
		from = r.run.intended.Add(-l.Lag) // the need may have been recorded then
	}
	if r.primary.ready.Ever(l.OldestView()) || !r.target.Answering.Always(l.OldestView()) || r.target.Fewest(from) == 0 {
		return
	}
	enough := min(r.target.Fewest(from), oracle.Fewest(r.primary.Desired, from))
	rest := 100 - oracle.Carried(r.primary.Most(l.OldestView()), enough)
	if said := r.status.CanaryWeight; said > 0 {
		rest = min(rest, said)
	}
	if rest = min(rest, h.before.canary); h.after.canary < rest {
		l.Violate("I34", r.Name(), "the canary's weight went from %d to %d, but the primary has had no more than %d pods, and %d carry everything",
			h.before.canary, h.after.canary, r.primary.Most(l.OldestView()), enough)
	}
}

// returns are facts for I34.
func (l *ledger) returns(event any) []oracle.Return {
	h, ok := event.(sim.Reconciled)
	if !ok || h.Err != nil {
		return nil
	}
	r := l.ByName[h.Release]
	if r == nil || !l.inParts(r) || r.run.intent != "rollback" || !r.run.intended.Before(l.OldestView()) || !r.moved.Before(l.OldestView()) || !r.changed.Before(l.OldestView()) ||
		!r.route.found || r.route.canary == 0 || r.route.touched.After(l.OldestView()) || r.primary.created.After(r.run.began) {
		return nil
	}
	from := l.OldestView().Add(-cluster.Published)
	if l.World.Faults.Has(cluster.LateEndpoints) {
		from = from.Add(-cluster.Late)
	}
	began := r.run.intended.Add(-l.Lag)
	return []oracle.Return{{
		Release: r.Name(), Began: r.run.intended, Share: r.route.canary, Fewest: r.primary.Fewest(from),
		Enough: min(max(r.target.Most(began), 1), oracle.Most(r.primary.Desired, began)),
	}}
}

// recordCount records how many pods are available, and how many are desired.
func (p *workloadState) recordCount(now time.Time) {
	oracle.Count(&p.Serving, int(p.available), now)
	oracle.Count(&p.Desired, int(p.replicas), now)
}
