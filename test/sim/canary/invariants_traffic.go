package canary

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// readyBackends is I1.
type readyBackends struct {
	*ledger
}

func (c *readyBackends) Observe(event any) {
	switch h := event.(type) {
	case routeWritten:
		if !h.BySerin || !h.after.found || h.of.providerless() {
			return
		}
		r := h.of
		target, primary := &r.target, &r.primary
		switch {
		case h.after.canary > h.before.canary && !target.Answering.Ever(c.OldestView()):
			c.Violate("I1", r.Name(), "weight %d of the canary, which has had no ready pod for %s", h.after.canary, c.Lag)
		case h.after.canary < h.before.canary && !primary.Answering.Ever(c.OldestView()) && target.Answering.Always(c.OldestView()) && !c.JustStarted(h.Actor):
			c.Violate("I1", r.Name(), "the canary's weight went from %d to %d, but the primary has had no ready pod for %s, and the canary has",
				h.before.canary, h.after.canary, c.Lag)
		}
	case cluster.Lost:
		c.lost(h)
	case workloadWritten:
		// What has traffic keeps pods; I5 is about the canary.
		if h.BySerin && h.primary && h.is == 0 && h.was > 0 && h.of.route.canary < 100 {
			c.Violate("I1", h.of.Name(), "the primary went from %d pods to none with %d %% of the traffic", h.was, 100-h.of.route.canary)
		}
	}
}

// lost: requests are lost where the gateway still sends them to pods that Serin took away.
func (c *readyBackends) lost(h cluster.Lost) {
	r := c.ByName[h.Release]
	if r == nil || r.target.replicas > 0 || r.target.emptied.IsZero() || h.Service != r.apexName()+"-canary" {
		return
	}
	if apex := c.Objects[oracle.At(actors.ServiceKind, types.NamespacedName{Namespace: r.Key.Namespace, Name: r.apexName()})]; apex != nil && apex.ByOthers.After(c.OldestView().Add(-c.drain)) {
		return // someone sent users there, and a gateway has seen it only now
	}
	late := !h.Left.IsZero() && r.target.emptied.Sub(h.Left) >= c.drain-time.Millisecond || c.lateGateways
	if !late && r.route.foreign.Before(c.OldestView()) && r.target.foreign.Before(c.OldestView()) && c.Clocks.Consistent(r.target.emptied) && c.Now().Sub(r.target.emptied) < c.drain {
		c.Violate("I1", r.Name(), "requests to the canary are lost (%s): Serin took its pods away %s ago", h.Why, c.Now().Sub(r.target.emptied))
	}
}

// end: whoever set a weight, at rest no one is sent to a version that Serin may have left without pods.
func (c *readyBackends) Finish() {
	for _, r := range c.All {
		if r.Gone() || leaving(r) || r.canary.Spec.Suspend || r.blocked() || !c.owns(r) {
			continue
		}
		if r.route.canary > 0 && r.target.version != nil && r.target.replicas == 0 && !r.target.Answering.True && r.primary.ready.True {
			c.Violate("I1", r.Name(), "it is %s, and %d %% of the requests go to a target without pods, although the primary has some", r.phase(), r.route.canary)
		}
	}
}

// plannedWeights is I2.
type plannedWeights struct {
	*ledger
	oracle.EventsOnly
}

func (c *plannedWeights) Observe(event any) {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || h.Type == store.Deleted {
		return
	}
	r, weight, before := h.of, h.after.canary, h.before.canary
	wishes := c.expectations(r)
	switch {
	case h.after.problem != "" && h.before.problem == "":
		c.Violate("I2", r.Name(), "%s: canary %d, primary %d", h.after.problem, h.after.canary, h.after.primary)
	case !h.after.found || weight == before || weight == 0 || c.outpaced(h.Actor, r):
	case r.tampered.After(c.OldestView()): // a process may not know yet which phase a user wrote
	case h.before.found && weight < before && !c.mayFall(r, weight, before, wishes):
		c.Violate("I2", r.Name(), "in phase %s the canary's weight fell from %d to %d", r.phase(), before, weight)
	case weight > before && !c.mayRise(r, weight, before, wishes):
		c.Violate("I2", r.Name(), "in phase %s the canary's weight rose from %d to %d, which is not planned (the status says %d)",
			r.phase(), before, weight, r.status.CanaryWeight)
	}
}

// mayFall: on the way back of a promotion or a rollback, or to what the run had before someone else raised it. I34 is about
// how far in a rollback.
func (c *plannedWeights) mayFall(r *record, weight, before int, wishes []*expectation) bool {
	failed := func(d *expectation) bool { return r.status.FailedChecks >= d.threshold }
	if analysing(r.phase()) && anyOf(wishes, func(d *expectation) bool { return d.weighted }) &&
		(r.status.Serin != nil && (r.status.Serin.Intent == "rollback" || r.status.Serin.Intent == "cancel") || anyOf(wishes, failed)) {
		return true
	}
	return r.phase() == flaggerv1.CanaryPhasePromoting && anyOf(wishes, func(d *expectation) bool { return d.returning(weight, before) }) ||
		weight == r.status.CanaryWeight
}

// mayRise: to the plan's next weight, back to what the status says, or to everything where a primary cannot serve what
// was promoted.
func (c *plannedWeights) mayRise(r *record, weight, before int, wishes []*expectation) bool {
	switch r.phase() {
	case flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		returned := anyOf(wishes, func(d *expectation) bool { return d.returning(weight, r.status.CanaryWeight) })
		return weight == 100 && !r.primary.ready.Always(c.OldestView()) || r.deletedRoute(before) && (weight == r.status.CanaryWeight || returned)
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
	default:
		return r.deletedRoute(before) // it was made again as it was
	}
	// The primary has what the run is about, since a promotion or since before someone let a run begin by hand.
	has := r.run != nil && (!r.run.promoted.IsZero() || slices.Contains(r.run.contents, r.primary.content))
	if weight == r.status.CanaryWeight || weight == 100 && has {
		return true
	}
	foreign := []int{before, r.status.CanaryWeight}
	if r.run != nil {
		foreign = append(foreign, r.run.foreign...)
	}
	return anyOf(wishes, func(d *expectation) bool {
		return !d.skip && d.planned(weight, foreign) && (!d.weighted || slices.ContainsFunc(foreign, func(from int) bool { return d.after(from) == weight }))
	})
}

// deletedRoute is true when the route is only now made again.
func (r *record) deletedRoute(before int) bool { return before == 0 && !r.route.found }

// drainBeforeScaleDown is I5.
type drainBeforeScaleDown struct {
	*ledger
	oracle.EventsOnly
}

func (c *drainBeforeScaleDown) Observe(event any) {
	switch h := event.(type) {
	case workloadWritten:
		if h.BySerin && !h.primary && h.Type == store.Modified {
			c.scaled(h)
		}
	case routeWritten:
		again := h.of.deletedRoute(h.before.canary) && h.after.canary == h.of.status.CanaryWeight // it was made again as it was
		if h.BySerin && h.after.canary > h.before.canary && c.rollsBack(h.of) && !again {
			c.Violate("I5", h.of.Name(), "the canary's weight rose from %d to %d although the release is being taken back", h.before.canary, h.after.canary)
		}
	}
}

func (c *drainBeforeScaleDown) scaled(h workloadWritten) {
	r := h.of
	switch {
	case h.is > h.was && c.rollsBack(r):
		c.Violate("I5", r.Name(), "the canary went from %d to %d pods although the release is being taken back", h.was, h.is)
	case h.is >= h.was:
	case r.route.canary > 0 && c.JustStarted(h.Actor): // its first list of routes may be from before a user changed one
	case r.route.canary > 0 && !r.route.foreign.After(c.OldestView()) && !r.route.outpaced.After(c.OldestView()):
		c.Violate("I5", r.Name(), "the canary went from %d to %d pods with %d %% of the traffic", h.was, h.is, r.route.canary)
	case c.outpaced(h.Actor, r) && r.route.left.After(c.OldestView()): // it sees a route without users, and not yet that it had some
	case !r.route.left.IsZero() && !r.route.leftNone && c.Clocks.Consistent(r.route.left) && c.Now().Sub(r.route.left) < c.least() && !r.route.foreign.After(r.route.left):
		c.Violate("I5", r.Name(), "the canary lost its pods %s after its traffic, which is less than the %s that requests under way have", c.Now().Sub(r.route.left), c.drain)
	}
}

// least is how long pods must have had no traffic. Where the write that says when it left was lost, the moment counts at
// which it was last known to be there, which is at most half a drain older.
func (c *drainBeforeScaleDown) least() time.Duration { return c.drain / 2 }

// rollsBack is true once everybody must know that the release is being rolled back.
func (c *drainBeforeScaleDown) rollsBack(r *record) bool {
	return r.run != nil && r.mine() && r.run.intent == "rollback" && r.run.intended.Before(c.OldestView()) && r.status.Serin != nil &&
		r.status.Serin.Run == r.run.name && r.status.Serin.Intent == "rollback"
}

// readyBeforeWeight is I7.
type readyBeforeWeight struct {
	*ledger
	oracle.EventsOnly
}

func (c *readyBeforeWeight) Observe(event any) {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.after.found || h.after.canary <= h.before.canary {
		return
	}
	r := h.of
	advances := r.phase() == flaggerv1.CanaryPhaseProgressing && h.after.canary > r.status.CanaryWeight && !r.failedPromotion()
	if advances && !r.target.ready.Ever(c.OldestView()) && !r.target.disturbed.After(c.OldestView()) {
		c.Violate("I7", r.Name(), "the canary's weight rose from %d to %d, but it has not had enough ready pods for %s", h.before.canary, h.after.canary, c.Lag)
	}
}

// takeover is I15.
type takeover struct {
	*ledger
	oracle.EventsOnly
}

func (c *takeover) Observe(event any) {
	switch h := event.(type) {
	case oracle.Write:
		if !h.BySerin || h.Kind != actors.ServiceKind || h.Type == store.Deleted {
			return
		}
		for _, r := range c.releasesOf(h) {
			if h.Key.Name == r.apexName() && r.phase() == flaggerv1.CanaryPhaseInitializing && c.owns(r) {
				c.apex(r, h)
			}
		}
	case workloadWritten:
		if h.BySerin && !h.primary && h.is < h.was && h.of.phase() == flaggerv1.CanaryPhaseInitializing && !h.of.primary.ready.Ever(c.OldestView()) {
			c.Violate("I15", h.of.Name(), "the target went from %d to %d pods, but the primary has not been ready for %s", h.was, h.is, c.Lag)
		}
	}
}

func (c *takeover) apex(r *record, h oracle.Write) {
	before := ""
	if h.Old != nil {
		before = selected(h.Old)
	}
	after := selected(h.New)
	if after != before && after != r.selects(&r.target) && !r.primary.ready.Ever(c.OldestView()) {
		c.Violate("I15", r.Name(), "the apex Service went from %q to %q, but the primary has not been ready for %s", before, after, c.Lag)
	}
}

// selected is the value of the label app that a Service selects.
func selected(v *store.Version) string {
	value, _ := within(v.Content(), "spec", "selector")["app"].(string)
	return value
}

// selects is the value of the label app that the pods of a copy have.
func (r *record) selects(p *workloadState) string {
	template, _ := p.template.(map[string]any)
	value, _ := within(template, "metadata", "labels")["app"].(string)
	return value
}

// restoration is I16.
type restoration struct {
	*ledger
}

func (c *restoration) Observe(event any) {
	switch h := event.(type) {
	case oracle.Write:
		if !h.BySerin || h.Kind != actors.ServiceKind || h.Type != store.Modified {
			return
		}
		for _, r := range c.releasesOf(h) {
			back := selected(h.New) == r.selects(&r.target) && selected(h.New) != selected(h.Old)
			if h.Key.Name == r.apexName() && back && leaving(r) && c.owns(r) && !r.target.Answering.Ever(c.OldestView()) {
				c.Violate("I16", r.Name(), "the apex Service was given back to a target that has had no ready pod for %s", c.Lag)
			}
		}
	case canaryWritten:
		if h.BySerin && h.before != nil && h.before.DeletionTimestamp != nil && len(h.before.Finalizers) > 0 && (h.after == nil || len(h.after.Finalizers) == 0) {
			c.released(h)
		}
	}
}

// released looks at the world at the moment at which nothing holds the Canary any more.
func (c *restoration) released(h canaryWritten) {
	r := h.of
	// A Canary that names what is no workload has nothing that Serin could give back.
	nothing := func(d *expectation) bool { return !d.spec.RevertOnDeletion || d.spec.TargetRef.Kind != r.kind.Kind }
	if r == nil || !c.owns(r) || anyOf(c.expectations(r), nothing) || r.target.version == nil || r.target.removed.After(c.OldestView()) {
		return
	}
	apex := c.World.Server.Peek(actors.ServiceKind, namespacedName(r, r.apexName()))
	switch {
	case !r.target.Answering.Ever(c.OldestView()) && !r.target.disturbed.After(c.OldestView()):
		c.Violate("I16", r.Name(), "the finalizer went although the target has had no ready pod for %s", c.Lag)
	case apex != nil && !madeFor(apex) && selected(apex) != "" && selected(apex) == r.selects(&r.primary) && c.Objects[oracle.At(actors.ServiceKind, apex.Key())].Unchanged(c.OldestView()):
		c.Violate("I16", r.Name(), "the finalizer went although the apex Service still selects the primary")
	}
}

func (c *restoration) Finish() {
	for _, r := range c.All {
		if !r.Gone() && r.canary.DeletionTimestamp != nil && r.canary.Status.Phase != "" && r.Suspended.IsZero() && c.settledFor(r) {
			c.Violate("I16", r.Name(), "the Canary was deleted and is still there: phase %s, finalizers %v", r.phase(), r.canary.Finalizers)
		}
	}
}

// settledFor is true when nothing but Serin holds a deleted Canary: its target runs, and no other Canary is in its way.
func (l *ledger) settledFor(r *record) bool {
	return len(l.rivals(r)) == 0 && (r.target.version == nil || r.target.ready.True) && slices.Contains(r.canary.Finalizers, "finalizer.flagger.app")
}

func leaving(r *record) bool { return r.canary != nil && r.canary.DeletionTimestamp != nil }
