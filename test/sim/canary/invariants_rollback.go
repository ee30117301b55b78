package canary

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// partialReturns are rollbacks whose traffic returns in parts, for I34.
type partialReturns struct{ *ledger }

// returnsInParts reports whether the traffic of a rollback returns in parts: the release is weighted and its primary did not
// change.
func (c *partialReturns) returnsInParts(r *record) bool {
	expected := c.expectations(r)
	return len(expected) == 1 && expected[0].weighted && expected[0].hasRouter && !expected[0].skipAnalysis && r.run != nil && isAnalysing(r.phase()) &&
		r.statusBySerin() && c.ownsTarget(r) && !isDeleting(r) && !r.isStopped() && r.SuspendedSince.IsZero() && r.run.promotedAt.IsZero() &&
		r.primary.version != nil && r.primary.contentChanged().Before(r.run.began) && r.target.version != nil && r.target.contentChanged().Before(c.OldestView()) &&
		r.status.FailedChecks <= expected[0].threshold && !c.mayBeOutdated(r.statusActor, r)
}

// returnsByCapacity is the part of I34 about the primary: it receives no more traffic than its pods have capacity for. I5
// checks that the share of the canary never rises again.
func (c *partialReturns) returnsByCapacity(event any) {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.before.found || !h.after.found || h.after.canary >= h.before.canary {
		return
	}
	r := h.record
	failed := r.run != nil && r.status.FailedChecks >= r.Specs[len(r.Specs)-1].Value.threshold
	if !c.returnsInParts(r) || r.run.intent != "rollback" && !failed || c.mayBeOutdated(h.Actor, r) || r.target.contentChanged().After(r.run.began.Add(c.Lag)) {
		return
	}
	from := c.OldestView()
	if r.run.intent == "rollback" {
		from = r.run.intentChanged.Add(-c.Lag) // the required pods may have been recorded at that time
	}
	if r.primary.ready.EverSince(c.OldestView()) || !r.target.Answering.AlwaysSince(c.OldestView()) || r.target.MinServing(from) == 0 {
		return
	}
	service := c.Objects[oracle.KeyOf(actors.ServiceKind, types.NamespacedName{Namespace: r.Key.Namespace, Name: r.apexName() + "-canary"})]
	if service != nil && service.ByOthers.After(c.OldestView().Add(-cluster.EndpointsDelay)) {
		return // a user deleted the canary's Service, and the new one may have no endpoints yet
	}
	required := min(r.target.MinServing(from), oracle.MinSince(r.primary.Desired, from))
	remaining := 100 - oracle.CapacityPercent(r.primary.MaxServing(c.OldestView()), required)
	if recorded := r.status.CanaryWeight; recorded > 0 {
		remaining = min(remaining, recorded)
	}
	if remaining = min(remaining, h.before.canary); h.after.canary < remaining {
		c.Violate("I34", r.Name(), "the canary's weight went from %d to %d, but the primary has had no more than %d of the %d pods that all traffic requires",
			h.before.canary, h.after.canary, r.primary.MaxServing(c.OldestView()), required)
	}
}

// gradualRollbacks returns the facts for I34.
func (c *partialReturns) gradualRollbacks(event any) []oracle.GradualRollback {
	h, ok := event.(sim.Reconciled)
	if !ok || h.Err != nil {
		return nil
	}
	r := c.ByName[h.Release]
	if r == nil || !c.returnsInParts(r) || r.run.intent != "rollback" || !r.run.intentChanged.Before(c.OldestView()) || !r.statusChanged.Before(c.OldestView()) || !r.changed.Before(c.OldestView()) ||
		!r.route.found || r.route.canary == 0 || r.route.changed.After(c.OldestView()) || r.primary.created.After(r.run.began) {
		return nil
	}
	from := c.OldestView().Add(-cluster.EndpointsDelay)
	if c.World.Faults.Has(cluster.LateEndpoints) || c.World.Faults.Has(cluster.LateSelectors) {
		from = from.Add(-cluster.FaultDelay)
	}
	began := r.run.intentChanged.Add(-c.Lag)
	return []oracle.GradualRollback{{
		Release: r.Name(), Began: r.run.intentChanged, Share: r.route.canary, Available: r.primary.MinServing(from),
		Required: min(max(r.target.MaxServing(began), 1), oracle.MaxSince(r.primary.Desired, began)),
	}}
}

// recordCount records the numbers of available and desired pods.
func (p *workloadState) recordCount(now time.Time) {
	oracle.SetCount(&p.Serving, int(p.available), now)
	oracle.SetCount(&p.Desired, int(p.replicas), now)
}
