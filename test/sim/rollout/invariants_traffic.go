package rollout

import (
	"slices"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/store"
)

// noDeadEnd is I1.
type noDeadEnd struct {
	*ledger
	without
}

func (c *noDeadEnd) see(happening any) {
	h, ok := happening.(routed)
	if !ok || !h.ours || h.Type != store.Modified {
		return
	}
	if h.Kind == serviceKind {
		c.switched(h)
		return
	}
	c.managed(h)
	r := h.of
	if c.noneAsked(r) { // whoever asks for no pods reaches none, wherever the route leads
		return
	}
	for _, s := range weightsOf(h.New) {
		if s.Weight <= weightOf(weightsOf(h.Old), s.Service) {
			continue
		}
		hash := c.selected(c.serviceOf(s.Service))
		if p := c.podsOf(r, hash); hash != "" && c.otherAnswers(r, hash) && !p.couldAnswer(c.then()) && !c.touched(s.Service) {
			c.violate("I1", r.key.Name, "Service %s got weight %d, but no pod behind it (%s) has answered for %s", s.Service, s.Weight, hash, c.delta)
		}
	}
}

// touched is true of a Service that somebody else wrote of late.
func (c *noDeadEnd) touched(service string) bool {
	w := c.objects[thing{serviceKind, keyNamed(service)}]
	return w != nil && w.foreign.After(c.then())
}

// switched: a Service that users reach does not move away from pods that answer to a revision without any.
func (c *noDeadEnd) switched(h routed) {
	from, to, r := c.selected(h.Old), c.selected(h.New), h.of
	if c.noneAsked(r) || from == to || to == "" || from == "" || !c.reached(r, h.Key.Name) {
		return
	}
	if c.podsOf(r, from).answered(c.then()) && !c.podsOf(r, to).couldAnswer(c.then()) {
		c.violate("I1", r.key.Name, "Service %s went from %s, which answers, to %s, of which no pod has answered for %s", h.Key.Name, from, to, c.delta)
	}
}

// reached is true of a Service that users reach.
func (c *noDeadEnd) reached(r *record, service string) bool {
	strategy := r.object.Spec.Strategy
	if b := strategy.BlueGreen; b != nil {
		return service == b.ActiveService
	}
	weights := append(weightsOf(c.world.Server.Peek(virtualService, r.key)), weightsOf(c.world.Server.Peek(httpRoute, r.key))...)
	return weightOf(weights, service) > 0
}

func (c *noDeadEnd) otherAnswers(r *record, hash string) bool {
	for _, set := range c.setsOf(r) {
		if hashOf(set) != hash && c.sets[keyOf(set)].answered(c.then()) {
			return true
		}
	}
	return false
}

// plannedWeights is I2.
type plannedWeights struct {
	*ledger
	without
}

func (c *plannedWeights) see(happening any) {
	h, ok := happening.(routed)
	if !ok || !h.ours || h.Kind == serviceKind || h.Type == store.Deleted {
		return
	}
	r, shares := h.of, weightsOf(h.New)
	sum := 0
	for _, s := range shares {
		sum += s.Weight
		if s.Weight < 0 {
			c.violate("I2", r.key.Name, "Service %s has weight %d", s.Service, s.Weight)
		}
	}
	if sum != 100 {
		c.violate("I2", r.key.Name, "the weights add up to %d: %v", sum, shares)
	}
	weight, before := weightOf(shares, r.key.Name+"-canary"), weightOf(weightsOf(h.Old), r.key.Name+"-canary")
	if weight <= before || !c.plain(r) || r.object.Status.StableRS == r.run.hash { // then both Services lead to the same pods
		return
	}
	planned := anyOf(c.wishes(r), func(s *argov1.RolloutSpec) bool {
		canary := s.Strategy.Canary
		if canary == nil || canary.DynamicStableScale || weight == 100 {
			return true
		}
		return slices.ContainsFunc(canary.Steps, func(step argov1.CanaryStep) bool { return step.SetWeight != nil && int(*step.SetWeight) == weight })
	})
	if !planned && !c.hadBefore(r, weight) {
		c.violate("I2", r.key.Name, "the canary's weight rose from %d to %d, which no step asks for", before, weight)
	}
}

// hadBefore is true of a weight that is written back into a route that was made again, and of what is left then of one that
// the same revision had.
func (c *plannedWeights) hadBefore(r *record, weight int) bool {
	w := r.object.Status.Canary.Weights
	return w != nil && (int(w.Canary.Weight) == weight || int(w.Canary.Weight) > weight && w.Canary.PodTemplateHash == r.run.hash)
}

// drainedFirst is I5.
type drainedFirst struct {
	*ledger
	without

	left map[string]time.Time // of each hash, since when no user reaches it
}

func (c *drainedFirst) see(happening any) {
	switch h := happening.(type) {
	case scaled:
		if h.ours && h.is() < h.was() {
			c.down(h)
		}
	case routed:
		c.note(h.of)
	}
}

// note takes down, before a write is taken down, who is reached after it.
func (c *drainedFirst) note(r *record) {
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
			c.left[hash] = c.now()
		}
	}
}

func (c *drainedFirst) down(h scaled) {
	r, hash := h.of, hashOf(h.before)
	if h.is() > 0 || !c.plain(r) {
		return
	}
	if len(c.wishes(r)) == 1 && slices.Contains(c.served(r), hash) && c.sets[h.Key].answered(c.then()) && c.otherAnswers(r, hash) && c.replicas(r) > 0 && !c.meddledRoute() {
		c.violate("I5", r.key.Name, "%s went from %d pods to none, and users reach it", hash, h.was())
	}
	delay := c.delay(r)
	left, known := c.left[hash]
	if !known || delay == 0 || r.object.Status.Abort || r.object.Status.StableRS == hash || !c.clocks.steady(left.Add(-c.delta)) || !c.sets[h.Key].answered(left) {
		return
	}
	if !c.noneAsked(r) && r.run.before == hash && c.now().Sub(left) < delay-time.Second {
		c.violate("I5", r.key.Name, "%s lost its pods %s after its users, of %s", hash, c.now().Sub(left), delay)
	}
}

func (c *drainedFirst) otherAnswers(r *record, hash string) bool {
	return (&noDeadEnd{ledger: c.ledger}).otherAnswers(r, hash)
}

// meddledRoute is true where somebody else wrote a Service or the route of late.
func (c *drainedFirst) meddledRoute() bool {
	for at, w := range c.objects {
		if (at.kind == serviceKind || at.kind == virtualService || at.kind == httpRoute) && w.foreign.After(c.then()) {
			return true
		}
	}
	return false
}

func (c *drainedFirst) replicas(r *record) int32 {
	if r.object.Spec.Replicas == nil {
		return 1
	}
	return *r.object.Spec.Replicas
}

// delay is the shortest time for which pods stay after their users have left; zero: they need not.
func (c *drainedFirst) delay(r *record) time.Duration {
	shortest := time.Hour
	for _, spec := range c.wishes(r) {
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

// enoughPods is I7.
type enoughPods struct {
	*ledger
	without
}

func (c *enoughPods) see(happening any) {
	h, ok := happening.(routed)
	if !ok || !h.ours || h.Kind == serviceKind || h.Type != store.Modified || !c.plain(h.of) || h.of.object.Status.PromoteFull {
		return
	}
	r, canary := h.of, h.of.key.Name+"-canary"
	weight, before := weightOf(weightsOf(h.New), canary), weightOf(weightsOf(h.Old), canary)
	recorded := r.object.Status.Canary.Weights
	w := c.objects[thing{h.Kind, h.Key}]
	if weight <= before || recorded != nil && int(recorded.Canary.Weight) >= weight || w != nil && w.foreign.After(r.run.began) {
		return // what it had before is written back
	}
	enough := anyOf(c.wishes(r), func(s *argov1.RolloutSpec) bool {
		replicas := int32(1)
		if s.Replicas != nil {
			replicas = *s.Replicas
		}
		if s.Strategy.Canary == nil || s.Strategy.Canary.DynamicStableScale || slices.ContainsFunc(s.Strategy.Canary.Steps, func(step argov1.CanaryStep) bool { return step.SetCanaryScale != nil }) {
			return true
		}
		needed := (weight*int(replicas) + 99) / 100
		return c.podsOf(r, r.run.hash).mostReady(c.then()) >= needed
	})
	if !enough {
		c.violate("I7", r.key.Name, "the canary's weight rose from %d to %d, but it never had the ready pods for that within %s", before, weight, c.delta)
	}
}
