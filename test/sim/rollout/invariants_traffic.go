package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// readyBackends is I1.
type readyBackends struct {
	*ledger
	oracle.EventsOnly

	put map[oracle.ObjectKey][]share // what Serin last told each route
}

func (c *readyBackends) Observe(event any) {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || h.Type != store.Modified {
		return
	}
	switch h.Kind {
	case actors.ServiceKind:
		c.switched(h, place{Service: h.Key.Name}, c.selected(h.Old), c.selected(h.New))
		return
	case actors.DestinationRuleKind:
		c.relabelled(h)
		return
	}
	c.managed(h)
	r := h.of
	defer c.keep(h)
	if c.noneAsked(r) { // whoever asks for no pods reaches none, wherever the route leads
		return
	}
	if r.object.Status.Canary.Weights == nil && c.podsOf(r, r.object.Status.StableRS).Most(time.Time{}) == 0 {
		return // the first weights of a fix for a version that never had a pod: a step is a step
	}
	for _, s := range weightsOf(h.New) {
		if s.Weight <= weightOf(weightsOf(h.Old), s.place) || c.putBack(h, s) {
			continue
		}
		hash := c.leads(r, s.place)
		if p := c.podsOf(r, hash); hash != "" && c.otherAnswers(r, hash) && !p.CouldAnswer(c.OldestView()) && !c.touched(r, s.place) && !c.takenAway(r, hash) && !c.ofAnother(r, s.place) {
			c.Violate("I1", r.Name(), "Service %s got weight %d, but no pod behind it (%s) has answered for %s", s.place, s.Weight, hash, c.Lag)
		}
	}
}

// ofAnother reports whether another Rollout manages a Service: it wrote the weight, and its pods are behind the Service.
func (c *readyBackends) ofAnother(r *record, p place) bool {
	service := c.World.Server.Peek(actors.ServiceKind, types.NamespacedName{Namespace: r.Key.Namespace, Name: p.Service})
	if service == nil {
		return false
	}
	by := service.Meta().Annotations[argov1.ManagedByAnnotation]
	return by != "" && by != r.Name() && c.ByName[keyNamed(by)] != nil
}

// putBack is true of a weight that Serin gave before, or that it recorded of a route as someone made it, and that someone
// else took: where a route leads is not asked for by writing into it.
func (c *readyBackends) putBack(h routeWritten, s share) bool {
	if s.Weight <= weightOf(c.put[oracle.At(h.Kind, h.Key)], s.place) {
		return true
	}
	w := h.of.object.Status.Canary.Weights
	return w != nil && !h.of.onTheWay(s.place) && s.Weight <= int(w.Stable.Weight)
}

func (c *readyBackends) keep(h routeWritten) {
	if c.put == nil {
		c.put = map[oracle.ObjectKey][]share{}
	}
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
func (c *readyBackends) switched(h routeWritten, at place, from, to string) {
	r := h.of
	if c.noneAsked(r) || from == to || to == "" || from == "" || !c.reached(r, at) {
		return
	}
	if c.podsOf(r, from).Answered(c.OldestView()) && !c.podsOf(r, to).CouldAnswer(c.OldestView()) && !c.takenAway(r, to) {
		c.Violate("I1", r.Name(), "Service %s went from %s, which answers, to %s, of which no pod has answered for %s", at, from, to, c.Lag)
	}
}

// reached is true of a place that users reach.
func (c *readyBackends) reached(r *record, at place) bool {
	strategy := r.object.Spec.Strategy
	if b := strategy.BlueGreen; b != nil {
		return at.Service == b.ActiveService
	}
	for _, route := range []oracle.ObjectKey{oracle.At(actors.VirtualServiceKind, r.Key), oracle.At(actors.HTTPRouteKind, r.Key)} {
		if weightOf(weightsOf(c.World.Server.Peek(route.Kind, route.Key)), at) > 0 && !c.weighedUnseen(route) {
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

func (c *readyBackends) otherAnswers(r *record, hash string) bool {
	for _, set := range c.setsOf(r) {
		if hashOf(set) != hash && c.sets[keyOf(set)].Answered(c.OldestView()) {
			return true
		}
	}
	return false
}

// plannedWeights is I2.
type plannedWeights struct {
	*ledger
	oracle.EventsOnly
}

func (c *plannedWeights) Observe(event any) {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.weights() || h.Type == store.Deleted {
		return
	}
	r, shares := h.of, weightsOf(h.New)
	sum := 0
	for _, s := range shares {
		sum += s.Weight
		if s.Weight < 0 {
			c.Violate("I2", r.Name(), "Service %s has weight %d", s.place, s.Weight)
		}
	}
	if sum != 100 {
		c.Violate("I2", r.Name(), "the weights add up to %d: %v", sum, shares)
	}
	weight, before := r.given(h.New), r.given(h.Old)
	if weight <= before || !c.plain(r) || r.object.Status.StableRS == r.run.hash { // then both Services lead to the same pods
		return
	}
	planned := anyOf(c.expectedSpecs(r), func(s *argov1.RolloutSpec) bool {
		canary := s.Strategy.Canary
		if canary == nil || canary.DynamicStableScale || weight == 100 {
			return true
		}
		return slices.ContainsFunc(canary.Steps, func(step argov1.CanaryStep) bool { return step.SetWeight != nil && int(*step.SetWeight) == weight })
	})
	if !planned && !c.hadBefore(r, weight) {
		c.Violate("I2", r.Name(), "the canary's weight rose from %d to %d, which no step asks for", before, weight)
	}
}

// hadBefore is true of a weight that is written back into a route that was made again, and of what is left then of one that
// the revision had to which the Service still leads.
func (c *plannedWeights) hadBefore(r *record, weight int) bool {
	w := r.object.Status.Canary.Weights
	if w == nil {
		return false
	}
	had, of, leads := int(w.Canary.Weight), w.Canary.PodTemplateHash, ""
	if at, routed := c.canaryPlace(r); routed {
		leads = c.leads(r, at)
	}
	return had == weight || had > weight && (of == r.run.hash || leads == of || leads == "") // which is to all pods
}

// drainBeforeScaleDown is I5.
type drainBeforeScaleDown struct {
	*ledger
	oracle.EventsOnly

	left map[string]time.Time // of each hash, since when no user reaches it
}

func (c *drainBeforeScaleDown) Observe(event any) {
	switch h := event.(type) {
	case replicaSetWritten:
		if h.BySerin && h.is() < h.was() {
			c.down(h)
		}
	case routeWritten:
		c.note(h.of)
	}
}

// note records, before a write is recorded, who is reached after it.
func (c *drainBeforeScaleDown) note(r *record) {
	if c.left == nil {
		c.left = map[string]time.Time{}
	}
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

func (c *drainBeforeScaleDown) down(h replicaSetWritten) {
	r, hash := h.of, hashOf(h.before)
	if h.is() > 0 || !c.plain(r) {
		return
	}
	if len(c.expectedSpecs(r)) == 1 && slices.Contains(c.served(r), hash) && c.sets[h.Key].Answered(c.OldestView()) && c.otherAnswers(r, hash) && c.replicas(r) > 0 && !c.meddledRoute(c.OldestView()) {
		c.Violate("I5", r.Name(), "%s went from %d pods to none, and users reach it", hash, h.was())
	}
	delay := c.delay(r)
	left, known := c.left[hash]
	if !known || delay == 0 || r.object.Status.Abort || r.object.Status.StableRS == hash || !c.Clocks.Consistent(left.Add(-c.Lag)) || !c.sets[h.Key].Answered(left) {
		return
	}
	if !c.noneAsked(r) && !c.meddledRoute(left.Add(-c.Lag)) && !c.othersWrote(h.Actor, left.Add(-c.Lag)) && r.run.before == hash && c.Now().Sub(left) < delay-time.Second {
		c.Violate("I5", r.Name(), "%s lost its pods %s after its users, of %s", hash, c.Now().Sub(left), delay)
	}
}

func (c *drainBeforeScaleDown) otherAnswers(r *record, hash string) bool {
	return (&readyBackends{ledger: c.ledger}).otherAnswers(r, hash)
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
func (c *drainBeforeScaleDown) meddledRoute(then time.Time) bool {
	for at, w := range c.Objects {
		if slices.Contains(networkKinds, at.Kind) && w.ByOthers.After(then) {
			return true
		}
	}
	return false
}

func (c *drainBeforeScaleDown) replicas(r *record) int32 {
	if r.object.Spec.Replicas == nil {
		return 1
	}
	return *r.object.Spec.Replicas
}

// delay is the shortest time for which pods stay after their users have left; zero: they need not.
func (c *drainBeforeScaleDown) delay(r *record) time.Duration {
	shortest := time.Hour
	for _, spec := range c.expectedSpecs(r) {
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

// readyBeforeWeight is I7.
type readyBeforeWeight struct {
	*ledger
	oracle.EventsOnly
}

func (c *readyBeforeWeight) Observe(event any) {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.weights() || h.Type != store.Modified || !c.plain(h.of) || h.of.object.Status.PromoteFull {
		return
	}
	r := h.of
	weight, before := r.given(h.New), r.given(h.Old)
	recorded := r.object.Status.Canary.Weights
	w := c.Objects[oracle.At(h.Kind, h.Key)]
	if weight <= before || recorded != nil && int(recorded.Canary.Weight) >= weight || w != nil && w.ByOthers.After(r.run.began) {
		return // what it had before is written back
	}
	enough := anyOf(c.expectedSpecs(r), func(s *argov1.RolloutSpec) bool {
		replicas := int32(1)
		if s.Replicas != nil {
			replicas = *s.Replicas
		}
		if s.Strategy.Canary == nil || s.Strategy.Canary.DynamicStableScale || slices.ContainsFunc(s.Strategy.Canary.Steps, func(step argov1.CanaryStep) bool { return step.SetCanaryScale != nil }) {
			return true
		}
		needed := (weight*int(replicas) + 99) / 100
		return c.podsOf(r, r.run.hash).Most(c.OldestView()) >= needed
	})
	if !enough && !c.takenAway(r, r.run.hash) {
		c.Violate("I7", r.Name(), "the canary's weight rose from %d to %d, but it never had the ready pods for that within %s", before, weight, c.Lag)
	}
}
