package canary

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// moves are facts for I1.
func (l *ledger) moves(event any) []oracle.Move {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.after.found || h.of.providerless() || h.after.canary == h.before.canary {
		return nil
	}
	r := h.of
	move := oracle.Move{Release: r.Name(), What: fmt.Sprintf("the canary's weight went from %d to %d", h.before.canary, h.after.canary)}
	if h.after.canary > h.before.canary {
		move.To, move.OthersAnswer = &r.target.Pods, true // whatever the primary has: no plan begins with a canary without pods
	} else {
		move.To, move.OthersAnswer = &r.primary.Pods, r.target.Answered(l.OldestView()) && !l.JustStarted(h.Actor)
	}
	return []oracle.Move{move}
}

// readyBackends is the part of I1 about pods that go away while they have traffic.
type readyBackends struct {
	*ledger
}

func (c *readyBackends) Observe(event any) {
	switch h := event.(type) {
	case cluster.Lost:
		c.lost(h)
	case workloadWritten:
		// I5 is about the pods of the canary.
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

// Finish: whoever set a weight, at rest no request goes to a version that Serin may have left without pods.
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

// plannedWeights are facts for I2.
func (l *ledger) plannedWeights(event any) []oracle.WeightChange {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || h.Type == store.Deleted {
		return nil
	}
	r, weight, before := h.of, h.after.canary, h.before.canary
	change := oracle.WeightChange{Release: r.Name(), Phase: string(r.phase()), From: before, To: weight}
	specs := l.expectations(r)
	switch {
	case h.after.problem != "" && h.before.problem == "":
		change.Problem = fmt.Sprintf("%s: canary %d, primary %d", h.after.problem, h.after.canary, h.after.primary)
	case !h.after.found || weight == 0 || l.outpaced(h.Actor, r) || r.tampered.After(l.OldestView()): // it may not know which phase a user wrote
		change.Allowed = true
	case weight < before:
		change.Allowed = !h.before.found || l.mayFall(r, weight, before, specs)
	default:
		change.Allowed = l.mayRise(r, weight, before, specs)
	}
	return []oracle.WeightChange{change}
}

// mayFall: on the way back of a promotion or a rollback, or to what the run had before someone else raised it. I34 is about
// how far in a rollback.
func (l *ledger) mayFall(r *record, weight, before int, wishes []*expectation) bool {
	failed := func(d *expectation) bool { return r.status.FailedChecks >= d.threshold }
	if analysing(r.phase()) && slices.ContainsFunc(wishes, func(d *expectation) bool { return d.weighted }) &&
		(r.status.Serin != nil && (r.status.Serin.Intent == "rollback" || r.status.Serin.Intent == "cancel") || slices.ContainsFunc(wishes, failed)) {
		return true
	}
	return r.phase() == flaggerv1.CanaryPhasePromoting && slices.ContainsFunc(wishes, func(d *expectation) bool { return d.returning(weight, before) }) ||
		weight == r.status.CanaryWeight
}

// mayRise: to the plan's next weight, back to what the status says, or to everything where a primary cannot serve what
// was promoted.
func (l *ledger) mayRise(r *record, weight, before int, wishes []*expectation) bool {
	switch r.phase() {
	case flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		returned := slices.ContainsFunc(wishes, func(d *expectation) bool { return d.returning(weight, r.status.CanaryWeight) })
		return weight == 100 && !r.primary.ready.Always(l.OldestView()) || r.deletedRoute(before) && (weight == r.status.CanaryWeight || returned)
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
	default:
		return r.deletedRoute(before) // it was created again as it was
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
	return slices.ContainsFunc(wishes, func(d *expectation) bool {
		return !d.skip && d.planned(weight, foreign) && (!d.weighted || slices.ContainsFunc(foreign, func(from int) bool { return d.after(from) == weight }))
	})
}

// deletedRoute is true when the route is only now created again.
func (r *record) deletedRoute(before int) bool { return before == 0 && !r.route.found }

// scaleDowns are facts for I5.
func (l *ledger) scaleDowns(event any) []oracle.ScaleDown {
	h, ok := event.(workloadWritten)
	if !ok || !h.BySerin || h.primary || h.Type != store.Modified || h.is >= h.was {
		return nil
	}
	r := h.of
	down := oracle.ScaleDown{Release: r.Name(), What: fmt.Sprintf("the canary went from %d to %d pods", h.was, h.is)}
	switch {
	case r.route.canary > 0 && l.JustStarted(h.Actor): // its first list of routes may be from before a user changed one
	case r.route.canary > 0 && !r.route.foreign.After(l.OldestView()) && !r.route.outpaced.After(l.OldestView()):
		down.Reached = true
	case l.outpaced(h.Actor, r) && r.route.left.After(l.OldestView()): // it observes a route without users, and not yet that it had some
	case !r.route.leftNone && !r.route.foreign.After(r.route.left):
		// Where the write that records when traffic left was lost, the last moment counts at which there was some, which is at
		// most half a drain older.
		down.Left, down.Delay = r.route.left, l.drain/2
	}
	return []oracle.ScaleDown{down}
}

// steadyRollback is the part of I5 about rollbacks: they raise neither the weight nor the pods of the canary.
func (l *ledger) steadyRollback(event any) {
	switch h := event.(type) {
	case workloadWritten:
		if h.BySerin && !h.primary && h.Type == store.Modified && h.is > h.was && l.rollsBack(h.of) {
			l.Violate("I5", h.of.Name(), "the canary went from %d to %d pods although the release is being rolled back", h.was, h.is)
		}
	case routeWritten:
		again := h.of.deletedRoute(h.before.canary) && h.after.canary == h.of.status.CanaryWeight // it was created again as it was
		if h.BySerin && h.after.canary > h.before.canary && l.rollsBack(h.of) && !again {
			l.Violate("I5", h.of.Name(), "the canary's weight rose from %d to %d although the release is being rolled back", h.before.canary, h.after.canary)
		}
	}
}

// rollsBack is true once every process must know that the release is being rolled back.
func (l *ledger) rollsBack(r *record) bool {
	return r.run != nil && r.mine() && r.run.intent == "rollback" && r.run.intended.Before(l.OldestView()) && r.status.Serin != nil &&
		r.status.Serin.Run == r.run.name && r.status.Serin.Intent == "rollback"
}

// readyWeights are facts for I7.
func (l *ledger) readyWeights(event any) []oracle.WeightChange {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.after.found {
		return nil
	}
	r := h.of
	advances := r.phase() == flaggerv1.CanaryPhaseProgressing && h.after.canary > r.status.CanaryWeight && !r.failedPromotion()
	return []oracle.WeightChange{{
		Release: r.Name(), From: h.before.canary, To: h.after.canary,
		Allowed: !advances || r.target.ready.Ever(l.OldestView()) || r.target.disturbed.After(l.OldestView()),
	}}
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
				c.Violate("I16", r.Name(), "the apex Service was restored to a target that has had no ready pod for %s", c.Lag)
			}
		}
	case canaryWritten:
		if h.BySerin && h.before != nil && h.before.DeletionTimestamp != nil && len(h.before.Finalizers) > 0 && (h.after == nil || len(h.after.Finalizers) == 0) {
			c.released(h)
		}
	}
}

// released checks the cluster at the moment at which the finalizer is removed.
func (c *restoration) released(h canaryWritten) {
	r := h.of
	// A Canary that references no workload has nothing that Serin could restore.
	nothing := func(d *expectation) bool { return !d.spec.RevertOnDeletion || d.spec.TargetRef.Kind != r.kind.Kind }
	if r == nil || !c.owns(r) || slices.ContainsFunc(c.expectations(r), nothing) || r.target.version == nil || r.target.removed.After(c.OldestView()) {
		return
	}
	apex := c.World.Server.Peek(actors.ServiceKind, namespacedName(r, r.apexName()))
	switch {
	case !r.target.Answering.Ever(c.OldestView()) && !r.target.disturbed.After(c.OldestView()):
		c.Violate("I16", r.Name(), "the finalizer was removed although the target has had no ready pod for %s", c.Lag)
	case apex != nil && !madeFor(apex) && selected(apex) != "" && selected(apex) == r.selects(&r.primary) && c.Objects[oracle.At(actors.ServiceKind, apex.Key())].Unchanged(c.OldestView()):
		c.Violate("I16", r.Name(), "the finalizer was removed although the apex Service still selects the primary")
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
