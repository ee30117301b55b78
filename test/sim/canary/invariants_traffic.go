package canary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// routeChanges are the changes of weights, for I1, I2 and I7.
type routeChanges struct{ *ledger }

// trafficShifts returns the facts for I1.
func (c *routeChanges) trafficShifts(event any) []oracle.TrafficShift {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.after.found || h.record.hasNoRouter() || h.after.canary == h.before.canary {
		return nil
	}
	r := h.record
	shift := oracle.TrafficShift{Release: r.Name(), What: fmt.Sprintf("the canary's weight went from %d to %d", h.before.canary, h.after.canary)}
	switch {
	case h.after.canary > h.before.canary:
		shift.To, shift.OthersAnswer = &r.target.Pods, true // regardless of the primary: no plan begins with a canary without pods
	case c.servesFormerTarget(r):
		return nil // neither the pods before the change nor those after it are those of this target
	default:
		shift.To, shift.OthersAnswer = &r.primary.Pods, r.target.AnsweredSince(c.OldestView()) && !c.JustStarted(h.Actor)
	}
	return []oracle.TrafficShift{shift}
}

// servesFormerTarget reports whether the Service of the primary still selects the primary of a target that the spec named before.
func (l *ledger) servesFormerTarget(r *record) bool {
	service := l.World.Server.Peek(actors.ServiceKind, namespacedName(r, r.apexName()+primarySuffix))
	return service != nil && !r.lastReplaced.IsZero() && selectedApp(service) != r.targetRef.Name+primarySuffix
}

// readyBackends is the part of I1 about pods that are removed while they have traffic.
type readyBackends struct {
	*ledger

	// served is where each replica of the gateway last sent the requests of a release.
	served map[types.NamespacedName]map[int]cluster.Traffic
}

func (c *readyBackends) Observe(event any) {
	switch h := event.(type) {
	case cluster.RequestsLost:
		c.checkLostRequests(h)
	case cluster.Traffic:
		if c.served[h.Release] == nil {
			c.served[h.Release] = map[int]cluster.Traffic{}
		}
		c.served[h.Release][h.Replica] = h
	case workloadWritten:
		// I5 checks the pods of the canary.
		if h.BySerin && h.primary && h.replicas == 0 && h.previousReplicas > 0 && h.record.route.canary < 100 {
			c.Violate("I1", h.record.Name(), "the primary was scaled from %d pods to zero with %d %% of the traffic", h.previousReplicas, 100-h.record.route.canary)
		}
	}
}

// checkLostRequests reports requests that are lost because the gateway still sends them to pods that Serin removed.
func (c *readyBackends) checkLostRequests(h cluster.RequestsLost) {
	r := c.ByName[h.Release]
	if r == nil || r.target.replicas > 0 || r.target.scaledToZero.IsZero() || h.Service != r.apexName()+"-canary" {
		return
	}
	if !r.target.AnsweredOnceSince(r.target.scaledToZero.Add(-c.drainDelay)) {
		return // the requests were lost before, because no pod of the target answered
	}
	if apex := c.Objects[oracle.KeyOf(actors.ServiceKind, types.NamespacedName{Namespace: r.Key.Namespace, Name: r.apexName()})]; apex != nil && apex.ByOthers.After(r.target.scaledToZero.Add(-c.Lag)) {
		return // a user changed the Service, and Serin did not observe it before it removed the pods
	}
	late := !h.TrafficRemoved.IsZero() && r.target.scaledToZero.Sub(h.TrafficRemoved) >= c.drainDelay-time.Millisecond || c.lateGateways
	if !late && r.route.changedByOthers.Before(c.OldestView()) && r.target.writtenByOthers.Before(c.OldestView()) && c.Clocks.Consistent(r.target.scaledToZero) && c.Now().Sub(r.target.scaledToZero) < c.drainDelay {
		c.Violate("I1", r.Name(), "requests to the canary are lost (%s): Serin removed its pods %s ago", h.Why, c.Now().Sub(r.target.scaledToZero))
	}
}

// Finish implements oracle.Checker: in the end, no request is sent to a version without pods, regardless of the actor that set
// the weight.
func (c *readyBackends) Finish() {
	for _, r := range c.All {
		if r.Gone() || isDeleting(r) || r.canary.Spec.Suspend || r.isStopped() || !c.ownsTarget(r) {
			continue
		}
		share := r.route.canary
		for _, served := range c.served[r.Key] {
			if served.Routed { // otherwise the apex Service receives the requests
				share = max(share, served.Weight(r.apexName()+"-canary"))
			}
		}
		if share > 0 && r.target.version != nil && r.target.replicas == 0 && !r.target.Answering.True && r.primary.ready.True {
			c.Violate("I1", r.Name(), "it is %s, and %d %% of the requests go to a target without pods, although the primary has some", r.phase(), share)
		}
	}
}

// plannedWeights returns the facts for I2.
func (c *routeChanges) plannedWeights(event any) []oracle.WeightChange {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || h.Type == store.Deleted {
		return nil
	}
	r, weight, before := h.record, h.after.canary, h.before.canary
	change := oracle.WeightChange{Release: r.Name(), Phase: string(r.phase()), From: before, To: weight}
	specs := c.expectations(r)
	switch {
	case h.after.problem != "" && h.before.problem == "":
		change.Problem = fmt.Sprintf("%s: canary %d, primary %d", h.after.problem, h.after.canary, h.after.primary)
	case h.before.matched && !h.after.matched && h.before.canary > 0 && h.after.canary > 0 && (!c.replacesPrimary(r, weight) || !c.promotionMayFail(r)):
		change.Problem = fmt.Sprintf("in phase %q the weight %d, which was that of matching requests, became %d for all requests", r.phase(), h.before.canary, h.after.canary)
	case !h.after.found || weight == 0 || c.mayBeOutdated(h.Actor, r) || r.statusOverwritten.After(c.OldestView()): // the process may not have observed the phase that a user wrote
		change.Allowed = true
	case weight < before:
		change.Allowed = !h.before.found || c.mayFall(r, weight, before, specs)
	default:
		change.Allowed = c.mayRise(r, weight, before, specs)
	}
	return []oracle.WeightChange{change}
}

// mayFall reports whether a weight may decrease: during a promotion or a rollback, or to the weight of the run before another
// actor raised it. I34 checks by how much during a rollback.
func (c *routeChanges) mayFall(r *record, weight, before int, expected []*expectation) bool {
	failed := func(d *expectation) bool { return r.status.FailedChecks >= d.threshold }
	if isAnalysing(r.phase()) && slices.ContainsFunc(expected, func(d *expectation) bool { return d.weighted }) &&
		(r.status.Serin != nil && (r.status.Serin.Intent == "rollback" || r.status.Serin.Intent == "cancel") || slices.ContainsFunc(expected, failed)) {
		return true
	}
	return r.phase() == flaggerv1.CanaryPhasePromoting && slices.ContainsFunc(expected, func(d *expectation) bool { return d.isPromotionStep(weight, before) }) ||
		weight == r.status.CanaryWeight
}

// mayRise reports whether a weight may increase: to the next weight of the plan, to the weight in the status, or to 100 if the
// primary cannot serve the promoted revision.
func (c *routeChanges) mayRise(r *record, weight, before int, expected []*expectation) bool {
	switch r.phase() {
	case flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		returned := slices.ContainsFunc(expected, func(d *expectation) bool { return d.isPromotionStep(weight, r.status.CanaryWeight) })
		return c.replacesPrimary(r, weight) || r.routeRecreated(before) && (weight == r.status.CanaryWeight || returned)
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
	default:
		return r.routeRecreated(before) // it was recreated with its previous weight
	}
	// The primary may have the revision of the run because of a promotion, or because a user started the run by editing the
	// status.
	primaryHasRevision := r.run != nil && (!r.run.promotedAt.IsZero() || slices.Contains(r.run.targetContents, r.primary.content))
	if weight == r.status.CanaryWeight || weight == 100 && primaryHasRevision {
		return true
	}
	starts := []int{before, r.status.CanaryWeight}
	if r.run != nil {
		starts = append(starts, r.run.weightsByOthers...)
	}
	return slices.ContainsFunc(expected, func(d *expectation) bool {
		return !d.skipAnalysis && d.isPlanned(weight, starts) && (!d.weighted || slices.ContainsFunc(starts, func(from int) bool { return d.nextWeight(from) == weight }))
	})
}

// replacesPrimary reports whether a weight routes all requests to the canary because the primary cannot serve the promoted revision.
func (c *routeChanges) replacesPrimary(r *record, weight int) bool {
	ending := r.phase() == flaggerv1.CanaryPhasePromoting || r.phase() == flaggerv1.CanaryPhaseFinalising
	return ending && weight == 100 && !r.primary.ready.AlwaysSince(c.OldestView())
}

// promotionMayFail reports whether the primary may have exceeded the deadline of its promotion.
func (c *ledger) promotionMayFail(r *record) bool {
	return r.run == nil || r.primary.exceedsDeadline || !c.Clocks.Consistent(r.run.promotedAt) || c.Now().Sub(r.run.promotedAt) >= c.shortestDeadline(r)
}

// routeRecreated reports whether a write recreates the route.
func (r *record) routeRecreated(before int) bool { return before == 0 && !r.route.found }

// canaryPods are the changes of the pods of the canary, for I5.
type canaryPods struct{ *ledger }

// scaleDowns returns the facts for I5.
func (c *canaryPods) scaleDowns(event any) []oracle.ScaleDown {
	h, ok := event.(workloadWritten)
	if !ok || !h.BySerin || h.primary || h.Type != store.Modified || h.replicas >= h.previousReplicas {
		return nil
	}
	r := h.record
	down := oracle.ScaleDown{Release: r.Name(), What: fmt.Sprintf("the canary went from %d to %d pods", h.previousReplicas, h.replicas)}
	switch {
	case r.formerTraffic(c.OldestView()) > 0 && !c.JustStarted(h.Actor):
		down.HasTraffic = true
	case r.route.canary > 0 && c.JustStarted(h.Actor): // its first list of routes may be older than a change by a user
	case r.route.canary > 0 && !r.route.changedByOthers.After(c.OldestView()) && !r.route.outdatedWrite.After(c.OldestView()):
		down.HasTraffic = true
	case c.mayBeOutdated(h.Actor, r) && r.route.trafficRemoved.After(c.OldestView()): // it may not have observed that the route had traffic
	case !r.route.removedWithoutPods && !r.route.changedByOthers.After(r.route.trafficRemoved):
		// If the write that records when traffic was removed is lost, the time of the previous record applies, which is at most
		// half a drain delay older.
		down.TrafficRemoved, down.MinDelay = r.route.trafficRemoved, c.drainDelay/2
	}
	return []oracle.ScaleDown{down}
}

// noRaiseInRollback is the part of I5 about rollbacks: they raise neither the weight nor the pods of the canary.
func (c *canaryPods) noRaiseInRollback(event any) {
	switch h := event.(type) {
	case workloadWritten:
		if h.BySerin && !h.primary && h.Type == store.Modified && h.replicas > h.previousReplicas && c.isRollingBack(h.record) {
			c.Violate("I5", h.record.Name(), "the canary went from %d to %d pods although the release is being rolled back", h.previousReplicas, h.replicas)
		}
	case routeWritten:
		recreated := h.record.routeRecreated(h.before.canary) && h.after.canary == h.record.status.CanaryWeight // it was recreated with its previous weight
		if h.BySerin && h.after.canary > h.before.canary && c.isRollingBack(h.record) && !recreated {
			c.Violate("I5", h.record.Name(), "the canary's weight rose from %d to %d although the release is being rolled back", h.before.canary, h.after.canary)
		}
	}
}

// isRollingBack reports whether every process must know that the release is being rolled back.
func (c *canaryPods) isRollingBack(r *record) bool {
	return r.run != nil && r.statusBySerin() && r.run.intent == "rollback" && r.run.intentChanged.Before(c.OldestView()) && r.status.Serin != nil &&
		r.status.Serin.Run == r.run.name && r.status.Serin.Intent == "rollback"
}

// readyWeights returns the facts for I7.
func (c *routeChanges) readyWeights(event any) []oracle.WeightChange {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.after.found {
		return nil
	}
	r := h.record
	advances := r.phase() == flaggerv1.CanaryPhaseProgressing && h.after.canary > r.status.CanaryWeight && !r.afterPromotion()
	return []oracle.WeightChange{{
		Release: r.Name(), From: h.before.canary, To: h.after.canary,
		Allowed: !advances || r.target.ready.EverSince(c.OldestView()) || r.target.disturbedAt.After(c.OldestView()),
	}}
}

// initialization is I15.
type initialization struct {
	*ledger
	oracle.EventsOnly
}

func (c *initialization) Observe(event any) {
	switch h := event.(type) {
	case oracle.Write:
		if !h.BySerin || h.Kind != actors.ServiceKind || h.Type == store.Deleted {
			return
		}
		for _, r := range c.releasesOf(h) {
			switch {
			case c.servesOther(h.Event, r):
			case !c.ownsTarget(r), c.isReplaced(r): // the primary is that of another target than a process may know
			case h.Key.Name == r.apexName() && r.phase() == flaggerv1.CanaryPhaseInitializing:
				c.checkApex(r, h)
			case h.Key.Name == r.apexName()+primarySuffix && h.Old != nil:
				c.checkPrimaryService(r, h)
			}
		}
	case workloadWritten:
		if !h.BySerin || h.primary || h.replicas >= h.previousReplicas || h.record.phase() != flaggerv1.CanaryPhaseInitializing {
			return
		}
		if c.publishesTarget(h.record) {
			c.Violate("I15", h.record.Name(), "the target went from %d to %d pods, which are still endpoints of the apex Service", h.previousReplicas, h.replicas)
		}
		if !h.record.primary.ready.EverSince(c.OldestView()) && !c.isReplaced(h.record) {
			c.Violate("I15", h.record.Name(), "the target went from %d to %d pods, but the primary has not been ready for %s", h.previousReplicas, h.replicas, c.Lag)
		}
	}
}

func (c *initialization) checkApex(r *record, h oracle.Write) {
	before := ""
	if h.Old != nil {
		before = selectedApp(h.Old)
	}
	after := selectedApp(h.New)
	if after != before && after != r.appLabel(&r.target) && !r.primary.ready.EverSince(c.OldestView()) {
		c.Violate("I15", r.Name(), "the apex Service went from %q to %q, but the primary has not been ready for %s", before, after, c.Lag)
	}
}

// checkPrimaryService checks that the Service of the primary selects another primary, that of a former target, until the new one is
// ready.
func (c *initialization) checkPrimaryService(r *record, h oracle.Write) {
	before, after := selectedApp(h.Old), selectedApp(h.New)
	moved := before != after && strings.HasSuffix(before, primarySuffix) && after == r.targetRef.Name+primarySuffix
	if moved && !r.primary.ready.EverSince(c.OldestView()) {
		c.Violate("I15", r.Name(), "Service %s went from %q to %q, but that primary has not been ready for %s", h.Key.Name, before, after, c.Lag)
	}
}

// selectedApp returns the value of the label app that a Service selects.
func selectedApp(v *store.Version) string {
	value, _ := nested(v.Content(), "spec", "selector")["app"].(string)
	return value
}

// appLabel returns the value of the label app of a workload's pods.
func (r *record) appLabel(p *workloadState) string {
	template, _ := p.template.(map[string]any)
	value, _ := nested(template, "metadata", "labels")["app"].(string)
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
			restored := selectedApp(h.New) == r.appLabel(&r.target) && selectedApp(h.New) != selectedApp(h.Old)
			if h.Key.Name == r.apexName() && restored && isDeleting(r) && c.ownsTarget(r) && !r.target.Answering.EverSince(c.OldestView()) {
				c.Violate("I16", r.Name(), "the apex Service was restored to a target that has had no ready pod for %s", c.Lag)
			}
		}
	case canaryWritten:
		if h.BySerin && h.Before != nil && h.Before.DeletionTimestamp != nil && len(h.Before.Finalizers) > 0 && (h.After == nil || len(h.After.Finalizers) == 0) {
			c.checkFinalizerRemoval(h)
		}
	}
}

// checkFinalizerRemoval checks the cluster when the finalizer is removed.
func (c *restoration) checkFinalizerRemoval(h canaryWritten) {
	r := h.Record
	// A Canary that references no workload has nothing to restore.
	notRestored := func(d *expectation) bool { return !d.spec.RevertOnDeletion || d.spec.TargetRef.Kind != r.kind.Kind }
	if r == nil || !c.ownsTarget(r) || slices.ContainsFunc(c.expectations(r), notRestored) || r.target.version == nil || r.target.removed.After(c.OldestView()) {
		return
	}
	apex := c.World.Server.Peek(actors.ServiceKind, namespacedName(r, r.apexName()))
	route := oracle.KeyOf(r.routeKind(), namespacedName(r, r.apexName()))
	if v := c.World.Server.Peek(route.Kind, route.Key); v != nil && !isControlledByCanary(v) && !belongsToOther(v, r) && r.weightsOf(v).found && c.Objects[route].Unchanged(c.OldestView()) {
		c.Violate("I16", r.Name(), "the finalizer was removed although %s %s still routes to the canary", route.Kind.Kind, route.Key.Name)
	}
	initialising := h.Before.Status.Phase == flaggerv1.CanaryPhaseInitializing // nothing was taken from the target yet
	switch {
	case !initialising && !r.target.Answering.EverSince(c.OldestView()) && !r.target.disturbedAt.After(c.OldestView()):
		c.Violate("I16", r.Name(), "the finalizer was removed although the target has had no ready pod for %s", c.Lag)
	case apex != nil && !isControlledByCanary(apex) && !belongsToOther(apex, r) && selectedApp(apex) != "" && selectedApp(apex) == r.appLabel(&r.primary) && c.Objects[oracle.KeyOf(actors.ServiceKind, apex.Key())].Unchanged(c.OldestView()):
		c.Violate("I16", r.Name(), "the finalizer was removed although the apex Service still selects the primary")
	case !c.Clocks.Consistent(h.Before.DeletionTimestamp.Time): // the time limit of the wait may have passed
	case apex != nil && !isControlledByCanary(apex) && selectedApp(apex) == r.appLabel(&r.target) && r.primary.version != nil && c.apexPublishes(r)[&r.primary]:
		c.Violate("I16", r.Name(), "the finalizer was removed although Kubernetes still publishes pods of the primary as endpoints of the apex Service")
	}
}

func (c *restoration) Finish() {
	for _, r := range c.All {
		if !r.Gone() && r.canary.DeletionTimestamp != nil && r.canary.Status.Phase != "" && r.SuspendedSince.IsZero() && c.canBeRemoved(r) {
			c.Violate("I16", r.Name(), "the Canary was deleted and still exists: phase %s, finalizers %v", r.phase(), r.canary.Finalizers)
		}
	}
}

// canBeRemoved reports whether a deleted Canary waits for nothing but Serin: its target is ready, and no other Canary has the
// same target.
func (c *restoration) canBeRemoved(r *record) bool {
	return len(c.precedingCanaries(r)) == 0 && (r.target.version == nil || r.target.ready.True) && slices.Contains(r.canary.Finalizers, "finalizer.flagger.app")
}

func isDeleting(r *record) bool { return r.canary != nil && r.canary.DeletionTimestamp != nil }

// publishesTarget reports whether the apex Service of a release publishes pods of the target as endpoints, and every process must
// know that.
func (c *ledger) publishesTarget(r *record) bool { return c.apexPublishes(r)[&r.target] }

// apexPublishes returns the workloads of which the apex Service of a release publishes pods as endpoints, as every process must
// know.
func (c *ledger) apexPublishes(r *record) map[*workloadState]bool {
	target, published := r.targetRef.Name, map[*workloadState]bool{}
	for _, slice := range c.World.Server.All(endpoints.Kind) {
		meta := slice.Meta()
		written := c.Objects[oracle.KeyOf(endpoints.Kind, slice.Key())]
		if meta.Labels[discoveryv1.LabelServiceName] != r.apexName() || written != nil && written.Last.After(c.OldestView()) {
			continue
		}
		for _, endpoint := range actors.Items(slice.Content()["endpoints"]) {
			pod, _ := nested(endpoint, "targetRef")["name"].(string)
			switch {
			case nested(endpoint, "conditions")["ready"] != true:
			case strings.HasPrefix(pod, target+primarySuffix+"-"):
				published[&r.primary] = true
			case strings.HasPrefix(pod, target+"-"):
				published[&r.target] = true
			}
		}
	}
	return published
}
