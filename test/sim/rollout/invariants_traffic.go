package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// putWeights are the weights that Serin last gave each route, for I1.
type putWeights struct {
	*ledger

	put map[oracle.ObjectKey][]share
}

// moves are facts for I1.
func (c *putWeights) moves(event any) []oracle.Move {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || h.Type != store.Modified {
		return nil
	}
	switch h.Kind {
	case actors.ServiceKind:
		return c.switched(h, place{Service: h.Key.Name}, c.selected(h.Old), c.selected(h.New))
	case actors.DestinationRuleKind:
		return c.relabelled(h)
	}
	moves, r := c.managed(h), h.of
	defer c.keep(h)
	if c.noneAsked(r) { // a Rollout that asks for no pods serves no requests, wherever its route leads
		return moves
	}
	if r.object.Status.Canary.Weights == nil && c.podsOf(r, r.object.Status.StableRS).Most(time.Time{}) == 0 {
		return moves // the first weights of a fix for a version that never had a pod: a step is a step
	}
	for _, s := range weightsOf(h.New) {
		if s.Weight <= weightOf(weightsOf(h.Old), s.place) || c.putBack(h, s) {
			continue
		}
		if hash := c.leads(r, s.place); hash != "" && !c.touched(r, s.place) && !c.takenAway(r, hash) && !c.ofAnother(r, s.place) {
			moves = append(moves, oracle.Move{
				Release: r.Name(), What: fmt.Sprintf("Service %s got weight %d, which leads to %s", s.place, s.Weight, hash),
				To: c.podsOf(r, hash), OthersAnswer: c.otherAnswers(r, hash),
			})
		}
	}
	return moves
}

// ofAnother reports whether another Rollout manages a Service: it wrote the weight, and its pods are behind the Service.
func (c *putWeights) ofAnother(r *record, p place) bool {
	service := c.World.Server.Peek(actors.ServiceKind, types.NamespacedName{Namespace: r.Key.Namespace, Name: p.Service})
	if service == nil {
		return false
	}
	by := service.Meta().Annotations[argov1.ManagedByAnnotation]
	return by != "" && by != r.Name() && c.ByName[keyNamed(by)] != nil
}

// putBack is true of a weight that Serin gave before, or that it recorded of a route as someone made it, and that someone
// else took: where a route leads is not asked for by writing into it.
func (c *putWeights) putBack(h routeWritten, s share) bool {
	if s.Weight <= weightOf(c.put[oracle.At(h.Kind, h.Key)], s.place) {
		return true
	}
	w := h.of.object.Status.Canary.Weights
	return w != nil && !h.of.onTheWay(s.place) && s.Weight <= int(w.Stable.Weight)
}

func (c *putWeights) keep(h routeWritten) {
	c.put[oracle.At(h.Kind, h.Key)] = weightsOf(h.New)
}

// touched is true of a place of which someone else wrote of late which pods it has.
func (l *ledger) touched(r *record, at place) bool {
	w := l.Objects[oracle.At(actors.ServiceKind, keyNamed(at.Service))]
	if at.Subset != "" {
		w = l.Objects[oracle.At(actors.DestinationRuleKind, r.Key)]
	}
	return w != nil && w.ByOthers.After(l.OldestView())
}

// takenAway is true of a revision whose ReplicaSet someone deleted of late: it had its pods until then.
func (l *ledger) takenAway(r *record, hash string) bool {
	w := l.Objects[oracle.At(actors.ReplicaSetKind, keyNamed(r.Name()+"-"+hash))]
	return l.setOf(r, hash) == nil && w != nil && w.ByOthers.After(l.OldestView())
}

// switched: a place that users reach does not move away from pods that answer to a revision without any.
func (l *ledger) switched(h routeWritten, at place, from, to string) []oracle.Move {
	r := h.of
	if l.noneAsked(r) || from == to || to == "" || from == "" || !l.usersReach(r, at) || l.takenAway(r, to) {
		return nil
	}
	return []oracle.Move{{
		Release: r.Name(), What: fmt.Sprintf("Service %s went from %s to %s", at, from, to),
		To: l.podsOf(r, to), OthersAnswer: l.podsOf(r, from).Answered(l.OldestView()),
	}}
}

// usersReach is true of a place that users reach.
func (l *ledger) usersReach(r *record, at place) bool {
	strategy := r.object.Spec.Strategy
	if b := strategy.BlueGreen; b != nil {
		return at.Service == b.ActiveService
	}
	for _, route := range []oracle.ObjectKey{oracle.At(actors.VirtualServiceKind, r.Key), oracle.At(actors.HTTPRouteKind, r.Key)} {
		if weightOf(weightsOf(l.World.Server.Peek(route.Kind, route.Key)), at) > 0 && !l.weighedUnseen(route) {
			return true
		}
	}
	return false
}

// weighedUnseen reports whether a user changed a route so recently that Serin may not have seen it: what is behind a
// Service and the route to it are two objects, and nothing can change one on the condition that the other is unchanged.
func (l *ledger) weighedUnseen(route oracle.ObjectKey) bool {
	w := l.Objects[route]
	return w != nil && w.Unanswered && w.ByOthers.After(l.OldestView())
}

func (l *ledger) otherAnswers(r *record, hash string) bool {
	for _, set := range l.setsOf(r) {
		if hashOf(set) != hash && l.sets[keyOf(set)].Answered(l.OldestView()) {
			return true
		}
	}
	return false
}

// plannedWeights are facts for I2.
func (l *ledger) plannedWeights(event any) []oracle.WeightChange {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.weights() || h.Type == store.Deleted {
		return nil
	}
	r, shares := h.of, weightsOf(h.New)
	weight, before := r.given(h.New), r.given(h.Old)
	change := oracle.WeightChange{Release: r.Name(), Phase: string(r.object.Status.Phase), From: before, To: weight}
	sum := 0
	for _, s := range shares {
		sum += s.Weight
		if s.Weight < 0 {
			change.Problem = fmt.Sprintf("Service %s has weight %d", s.place, s.Weight)
		}
	}
	if sum != 100 {
		change.Problem = fmt.Sprintf("the weights add up to %d: %v", sum, shares)
	}
	if weight <= before || !l.plain(r) || r.object.Status.StableRS == r.run.hash { // then both Services lead to the same pods
		change.Allowed = true
		return []oracle.WeightChange{change}
	}
	change.Allowed = l.hadBefore(r, weight) || slices.ContainsFunc(l.expectedSpecs(r), func(s *argov1.RolloutSpec) bool {
		canary := s.Strategy.Canary
		if canary == nil || canary.DynamicStableScale || weight == 100 {
			return true
		}
		return slices.ContainsFunc(canary.Steps, func(step argov1.CanaryStep) bool { return step.SetWeight != nil && int(*step.SetWeight) == weight })
	})
	return []oracle.WeightChange{change}
}

// hadBefore is true of a weight that is restored in a route that was created again, and of the remainder of one that
// the revision had to which the Service still leads.
func (l *ledger) hadBefore(r *record, weight int) bool {
	w := r.object.Status.Canary.Weights
	if w == nil {
		return false
	}
	had, of, leads := int(w.Canary.Weight), w.Canary.PodTemplateHash, ""
	if at, routed := l.canaryPlace(r); routed {
		leads = l.leads(r, at)
	}
	return had == weight || had > weight && (of == r.run.hash || leads == of || leads == "") // which is to all pods
}

// drains records since when no user reaches a revision, for I5.
type drains struct {
	*ledger

	left map[string]time.Time // by hash
}

// scaleDowns are facts for I5.
func (c *drains) scaleDowns(event any) []oracle.ScaleDown {
	switch h := event.(type) {
	case replicaSetWritten:
		if h.BySerin && h.is() < h.was() {
			return c.down(h)
		}
	case routeWritten:
		c.note(h.of)
	}
	return nil
}

// note records, before a write is recorded, who is reached after it.
func (c *drains) note(r *record) {
	served := c.served(r)
	for _, set := range c.setsOf(r) {
		hash := hashOf(set)
		switch {
		case slices.Contains(served, hash):
			delete(c.left, hash)
		case c.left[hash].IsZero():
			c.left[hash] = c.Now()
		}
	}
}

func (c *drains) down(h replicaSetWritten) []oracle.ScaleDown {
	r, hash := h.of, hashOf(h.before)
	if h.is() > 0 || !c.plain(r) {
		return nil
	}
	down := oracle.ScaleDown{Release: r.Name(), What: fmt.Sprintf("%s went from %d pods to none", hash, h.was())}
	down.Reached = len(c.expectedSpecs(r)) == 1 && slices.Contains(c.served(r), hash) && c.sets[h.Key].Answered(c.OldestView()) && c.otherAnswers(r, hash) && c.replicas(r) > 0 && !c.meddledRoute(c.OldestView())
	delay := c.delay(r)
	left, known := c.left[hash]
	excused := !known || delay == 0 || r.object.Status.Abort || r.object.Status.StableRS == hash || !c.Clocks.Consistent(left.Add(-c.Lag)) || !c.sets[h.Key].Answered(left)
	if !excused && !c.noneAsked(r) && !c.meddledRoute(left.Add(-c.Lag)) && !c.othersWrote(h.Actor, left.Add(-c.Lag)) && r.run.before == hash {
		down.Left, down.Delay = left, delay-time.Second
	}
	return []oracle.ScaleDown{down}
}

// othersWrote is true where another process than this one has written since then: one that was left behind may have moved
// users back for a moment, of which the delay that runs knows nothing.
func (l *ledger) othersWrote(by string, since time.Time) bool {
	for name, at := range l.wrote {
		if name != by && !at.Before(since) {
			return true
		}
	}
	return false
}

// meddledRoute is true where someone else has written a Service or the route since then.
func (l *ledger) meddledRoute(then time.Time) bool {
	for at, w := range l.Objects {
		if slices.Contains(networkKinds, at.Kind) && w.ByOthers.After(then) {
			return true
		}
	}
	return false
}

// replicas is how many pods a Rollout asks for.
func (l *ledger) replicas(r *record) int {
	if r.object.Spec.Replicas == nil {
		return 1
	}
	return int(*r.object.Spec.Replicas)
}

// delay is the shortest time for which pods stay after their users have left; zero: they need not.
func (l *ledger) delay(r *record) time.Duration {
	shortest := time.Hour
	for _, spec := range l.expectedSpecs(r) {
		shortest = min(shortest, delayOf(spec.Strategy))
	}
	return shortest
}

func delayOf(s argov1.RolloutStrategy) time.Duration {
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

// readyWeights are facts for I7.
func (l *ledger) readyWeights(event any) []oracle.WeightChange {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.weights() || h.Type != store.Modified || !l.plain(h.of) || h.of.object.Status.PromoteFull {
		return nil
	}
	r := h.of
	weight, before := r.given(h.New), r.given(h.Old)
	recorded := r.object.Status.Canary.Weights
	w := l.Objects[oracle.At(h.Kind, h.Key)]
	if weight <= before || recorded != nil && int(recorded.Canary.Weight) >= weight || w != nil && w.ByOthers.After(r.run.began) {
		return nil // what it had before is written back
	}
	enough := slices.ContainsFunc(l.expectedSpecs(r), func(s *argov1.RolloutSpec) bool {
		replicas := int32(1)
		if s.Replicas != nil {
			replicas = *s.Replicas
		}
		if s.Strategy.Canary == nil || s.Strategy.Canary.DynamicStableScale || slices.ContainsFunc(s.Strategy.Canary.Steps, func(step argov1.CanaryStep) bool { return step.SetCanaryScale != nil }) {
			return true
		}
		needed := (weight*int(replicas) + 99) / 100
		return l.podsOf(r, r.run.hash).Most(l.OldestView()) >= needed
	})
	return []oracle.WeightChange{{Release: r.Name(), From: before, To: weight, Allowed: enough || l.takenAway(r, r.run.hash)}}
}
