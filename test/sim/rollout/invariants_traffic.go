package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// writtenWeights are the weights that Serin last wrote into each route, for I1.
type writtenWeights struct {
	*ledger

	weights map[oracle.ObjectKey][]weightedDestination
}

// trafficShifts returns the facts for I1.
func (c *writtenWeights) trafficShifts(event any) []oracle.TrafficShift {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || h.Type != store.Modified {
		return nil
	}
	switch h.Kind {
	case actors.ServiceKind:
		return c.revisionShift(h, destination{Service: h.Key.Name}, c.selectedHash(h.Old), c.selectedHash(h.New))
	case cluster.DestinationRuleKind, cluster.ServiceResolverKind:
		return c.subsetShifts(h)
	}
	shifts, r := c.managedRouteShifts(h), h.record
	defer c.recordWeights(h)
	if c.mayHaveNoPods(r) { // a Rollout without desired pods serves no requests
		return shifts
	}
	if r.object.Status.Canary.Weights == nil && c.podsOf(r, r.object.Status.StableRS).MaxServing(time.Time{}) == 0 {
		return shifts // the stable version never had a ready pod: the weights of steps apply nevertheless
	}
	for _, s := range weightsOf(h.New) {
		if s.Weight <= weightOf(weightsOf(h.Old), s.destination) || c.restoresWeight(h, s) {
			continue
		}
		if hash := c.hashBehind(r, s.destination); hash != "" && !c.podsChangedByOthers(r, s.destination) && !c.replicaSetDeleted(r, hash) && !c.managedByOther(r, s.destination) {
			shifts = append(shifts, oracle.TrafficShift{
				Release: r.Name(), What: fmt.Sprintf("Service %s received weight %d, and selects %s", s.destination, s.Weight, hash),
				To: c.podsOf(r, hash), OthersAnswer: c.otherRevisionAnswers(r, hash),
			})
		}
	}
	return shifts
}

// managedByOther reports whether another Rollout manages a Service, which then wrote the weight and whose pods are behind the
// Service.
func (l *ledger) managedByOther(r *record, p destination) bool {
	service := l.World.Server.Peek(actors.ServiceKind, types.NamespacedName{Namespace: r.Key.Namespace, Name: p.Service})
	if service == nil {
		return false
	}
	by := service.Meta().Annotations[argov1.ManagedByAnnotation]
	return by != "" && by != r.Name() && l.ByName[keyNamed(by)] != nil
}

// restoresWeight reports whether Serin set a weight before, or recorded it from a route, and another actor changed it.
// Restoring a weight is not a decision of the release.
func (c *writtenWeights) restoresWeight(h routeWritten, s weightedDestination) bool {
	if s.Weight <= weightOf(c.weights[oracle.KeyOf(h.Kind, h.Key)], s.destination) {
		return true
	}
	w := h.record.object.Status.Canary.Weights
	return w != nil && !h.record.isCanary(s.destination) && s.Weight <= int(w.Stable.Weight)
}

func (c *writtenWeights) recordWeights(h routeWritten) {
	c.weights[oracle.KeyOf(h.Kind, h.Key)] = weightsOf(h.New)
}

// podsChangedByOthers reports whether another actor recently changed which pods are behind a destination.
func (l *ledger) podsChangedByOthers(r *record, at destination) bool {
	w := l.Objects[oracle.KeyOf(actors.ServiceKind, keyNamed(at.Service))]
	if at.Subset != "" {
		w = l.Objects[oracle.KeyOf(l.subsetKind(r), r.Key)]
	}
	return w != nil && w.ByOthers.After(l.OldestView())
}

// replicaSetDeleted reports whether another actor recently deleted the ReplicaSet of a revision, which had pods until then.
func (l *ledger) replicaSetDeleted(r *record, hash string) bool {
	w := l.Objects[oracle.KeyOf(actors.ReplicaSetKind, keyNamed(r.Name()+"-"+hash))]
	return l.replicaSetOf(r, hash) == nil && w != nil && w.ByOthers.After(l.OldestView())
}

// revisionShift returns a fact for I1 if a destination with traffic switches to another revision.
func (c *writtenWeights) revisionShift(h routeWritten, at destination, from, to string) []oracle.TrafficShift {
	r := h.record
	if c.mayHaveNoPods(r) || from == to || to == "" || from == "" || !c.receivesTraffic(r, at) || c.replicaSetDeleted(r, to) {
		return nil
	}
	return []oracle.TrafficShift{{
		Release: r.Name(), What: fmt.Sprintf("Service %s went from %s to %s", at, from, to),
		To: c.podsOf(r, to), OthersAnswer: c.podsOf(r, from).AnsweredSince(c.OldestView()),
	}}
}

// receivesTraffic reports whether a destination receives traffic.
func (c *writtenWeights) receivesTraffic(r *record, at destination) bool {
	strategy := r.object.Spec.Strategy
	if b := strategy.BlueGreen; b != nil {
		return at.Service == b.ActiveService
	}
	for _, kind := range cluster.WeightKinds {
		route := oracle.KeyOf(kind, r.Key)
		if weightOf(weightsOf(c.World.Server.Peek(route.Kind, route.Key)), at) > 0 && !c.weightJustChanged(route) {
			return true
		}
	}
	return false
}

// weightJustChanged reports whether a user changed a route so recently that Serin may not have observed it. A Service and the
// route to it are two objects, and neither can be changed on the condition that the other is unchanged.
func (c *writtenWeights) weightJustChanged(route oracle.ObjectKey) bool {
	w := c.Objects[route]
	return w != nil && w.AwaitsSerin && w.ByOthers.After(c.OldestView())
}

func (l *ledger) otherRevisionAnswers(r *record, hash string) bool {
	for _, set := range l.replicaSetsOf(r) {
		if hashOf(set) != hash && l.pods[keyOf(set)].AnsweredSince(l.OldestView()) {
			return true
		}
	}
	return false
}

// canaryWeights are the changes of the weight of the canary, for I2 and I7.
type canaryWeights struct{ *ledger }

// plannedWeights returns the facts for I2.
func (c *canaryWeights) plannedWeights(event any) []oracle.WeightChange {
	h, ok := event.(routeWritten)
	if ok && slices.Contains(cluster.SubsetKinds, h.Kind) {
		return c.stableSubsets(h)
	}
	if !ok || !h.BySerin || !h.hasWeights() || h.Type == store.Deleted {
		return nil
	}
	r, shares := h.record, weightsOf(h.New)
	weight, before := r.canaryWeight(h.New), r.canaryWeight(h.Old)
	change := oracle.WeightChange{Release: r.Name(), Phase: string(r.object.Status.Phase), From: before, To: weight}
	sum := 0
	for _, s := range shares {
		sum += s.Weight
		if s.Weight < 0 {
			change.Problem = fmt.Sprintf("Service %s has weight %d", s.destination, s.Weight)
		}
	}
	if sum != 100 {
		change.Problem = fmt.Sprintf("the weights add up to %d: %v", sum, shares)
	}
	if weight <= before || !c.followsPlan(r) || r.object.Status.StableRS == r.run.hash { // then both Services select the same pods
		change.Allowed = true
		return []oracle.WeightChange{change}
	}
	change.Allowed = c.restoresPreviousWeight(r, weight) || slices.ContainsFunc(c.expectedSpecs(r), func(s *argov1.RolloutSpec) bool {
		canary := s.Strategy.Canary
		if canary == nil || canary.DynamicStableScale || weight == 100 {
			return true
		}
		return slices.ContainsFunc(canary.Steps, func(step argov1.CanaryStep) bool { return step.SetWeight != nil && int(*step.SetWeight) == weight })
	})
	return []oracle.WeightChange{change}
}

// restoresPreviousWeight reports whether a weight is restored in a recreated route, or is the rest of the weight of the
// revision that the canary Service still selects.
func (c *canaryWeights) restoresPreviousWeight(r *record, weight int) bool {
	w := r.object.Status.Canary.Weights
	if w == nil {
		return false
	}
	had, hash, selected := int(w.Canary.Weight), w.Canary.PodTemplateHash, ""
	if at, routed := c.canaryDestination(r); routed {
		selected = c.hashBehind(r, at)
	}
	return had == weight || had > weight && (hash == r.run.hash || selected == hash || selected == "") // an empty hash selects all pods
}

// drains records since when a revision has no traffic, for I5.
type drains struct {
	*ledger

	trafficRemoved map[string]time.Time // by hash
}

// scaleDowns returns the facts for I5.
func (c *drains) scaleDowns(event any) []oracle.ScaleDown {
	switch h := event.(type) {
	case replicaSetWritten:
		if h.BySerin && h.replicas() < h.previousReplicas() {
			return c.scaleDown(h)
		}
	case routeWritten:
		c.recordTraffic(h.record)
	}
	return nil
}

// recordTraffic records, before a write is recorded, which revisions have traffic after it.
func (c *drains) recordTraffic(r *record) {
	served := c.hashesWithTraffic(r)
	for _, set := range c.replicaSetsOf(r) {
		hash := hashOf(set)
		switch {
		case slices.Contains(served, hash):
			delete(c.trafficRemoved, hash)
		case c.trafficRemoved[hash].IsZero():
			c.trafficRemoved[hash] = c.Now()
		}
	}
}

func (c *drains) scaleDown(h replicaSetWritten) []oracle.ScaleDown {
	r, hash := h.record, hashOf(h.before)
	if h.replicas() > 0 || !c.followsPlan(r) {
		return nil
	}
	down := oracle.ScaleDown{Release: r.Name(), What: fmt.Sprintf("%s was scaled from %d pods to zero", hash, h.previousReplicas())}
	down.HasTraffic = len(c.expectedSpecs(r)) == 1 && slices.Contains(c.hashesWithTraffic(r), hash) && c.pods[h.Key].AnsweredSince(c.OldestView()) && c.otherRevisionAnswers(r, hash) && r.requestedReplicas() > 0 && !c.routeChangedByOthers(c.OldestView())
	delay := c.minScaleDownDelay(r)
	left, known := c.trafficRemoved[hash]
	excused := !known || delay == 0 || r.object.Status.Abort || r.object.Status.StableRS == hash || !c.Clocks.Consistent(left.Add(-c.Lag)) || !c.pods[h.Key].AnsweredSince(left)
	if !excused && !c.mayHaveNoPods(r) && !c.routeChangedByOthers(left.Add(-c.Lag)) && !c.work.otherProcessWrote(h.Actor, left.Add(-c.Lag)) && r.run.stableBefore == hash {
		down.TrafficRemoved, down.MinDelay = left, delay-time.Second
	}
	return []oracle.ScaleDown{down}
}

// routeChangedByOthers reports whether another actor has written a Service or the route since then.
func (c *drains) routeChangedByOthers(then time.Time) bool {
	for at, w := range c.Objects {
		if slices.Contains(networkKinds, at.Kind) && w.ByOthers.After(then) {
			return true
		}
	}
	return false
}

// requestedReplicas returns the number of pods that a Rollout requests.
func (r *record) requestedReplicas() int {
	if r.object.Spec.Replicas == nil {
		return 1
	}
	return int(*r.object.Spec.Replicas)
}

// minScaleDownDelay returns the minimum time for which pods remain after their traffic was removed.
func (c *drains) minScaleDownDelay(r *record) time.Duration {
	shortest := time.Hour
	for _, spec := range c.expectedSpecs(r) {
		shortest = min(shortest, scaleDownDelay(spec.Strategy))
	}
	return shortest
}

func scaleDownDelay(s argov1.RolloutStrategy) time.Duration {
	seconds := new(int32(30))
	switch {
	case s.BlueGreen != nil && s.BlueGreen.ScaleDownDelaySeconds != nil:
		seconds = s.BlueGreen.ScaleDownDelaySeconds
	case s.BlueGreen != nil:
	case s.Canary == nil || s.Canary.TrafficRouting == nil || s.Canary.DynamicStableScale:
		return 0
	case s.Canary.ScaleDownDelaySeconds != nil:
		seconds = s.Canary.ScaleDownDelaySeconds
	}
	return time.Duration(*seconds) * time.Second
}

// readyWeights returns the facts for I7.
func (c *canaryWeights) readyWeights(event any) []oracle.WeightChange {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.hasWeights() || h.Type != store.Modified || !c.followsPlan(h.record) || h.record.object.Status.PromoteFull {
		return nil
	}
	r := h.record
	weight, before := r.canaryWeight(h.New), r.canaryWeight(h.Old)
	recorded := r.object.Status.Canary.Weights
	w := c.Objects[oracle.KeyOf(h.Kind, h.Key)]
	if weight <= before || recorded != nil && int(recorded.Canary.Weight) >= weight || w != nil && w.ByOthers.After(r.run.began) {
		return nil // a previous weight is restored
	}
	if d, found := c.canaryDestination(r); found && c.managedByOther(r, d) {
		return nil
	}
	enough := slices.ContainsFunc(c.expectedSpecs(r), func(s *argov1.RolloutSpec) bool {
		replicas := int32(1)
		if s.Replicas != nil {
			replicas = *s.Replicas
		}
		if s.Strategy.Canary == nil || s.Strategy.Canary.DynamicStableScale || slices.ContainsFunc(s.Strategy.Canary.Steps, func(step argov1.CanaryStep) bool { return step.SetCanaryScale != nil }) {
			return true
		}
		needed := (weight*int(replicas) + 99) / 100
		return c.podsOf(r, r.run.hash).MaxServing(c.OldestView()) >= needed
	})
	return []oracle.WeightChange{{Release: r.Name(), From: before, To: weight, Allowed: enough || c.replicaSetDeleted(r, r.run.hash)}}
}
