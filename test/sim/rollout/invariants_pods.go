package rollout

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// boundedScaling is I18.
type boundedScaling struct {
	*ledger
	oracle.EventsOnly
}

func (c *boundedScaling) Observe(event any) {
	if h, is := event.(oracle.Write); is {
		c.lent(h)
	}
	h, ok := event.(replicaSetWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.was() == h.is() || !c.plain(h.of) {
		return
	}
	r := h.of
	// Of blue-green what waits for its scale-down delay has the size that the spec asks for.
	waits := r.object.Spec.Strategy.BlueGreen != nil && h.after.Annotations[argov1.ScaleDownDeadlineAnnotation] != ""
	grows := h.is() > h.was() && hashOf(h.after) != r.object.Status.StableRS && !waits
	if grows && !r.Rested.IsZero() && r.Rested.Before(c.OldestView()) && len(c.expectedSpecs(r)) == 1 {
		c.Violate("I18", r.Name(), "at rest %s went from %d to %d pods", h.Key.Name, h.was(), h.is())
	}
	if h.is() > h.was() {
		c.surge(h)
	}
}

// surge: without a router no more pods are asked for than the plan allows.
func (c *boundedScaling) surge(h replicaSetWritten) {
	r, total := h.of, h.is()
	for _, set := range c.setsOf(r) {
		if set.Name != h.Key.Name {
			total += wanted(set)
		}
	}
	allowed := int32(-1)
	for _, s := range c.expectedSpecs(r) {
		if s.Strategy.Canary == nil || s.Strategy.Canary.TrafficRouting != nil {
			return
		}
		allowed = max(allowed, most(s))
	}
	if total > allowed && c.restedScale(r) && !c.JustStarted(h.Actor) {
		c.Violate("I18", r.Name(), "%d pods are asked for, of at most %d", total, allowed)
	}
}

// restedScale is true where no one has changed the number of pods since the release began: whoever takes pods away while
// others are being made finds too many.
func (c *boundedScaling) restedScale(r *record) bool {
	if r.Specs.Replaced(r.run.began.Add(-time.Minute)) {
		return false
	}
	for _, set := range c.setsOf(r) {
		if w := c.Objects[oracle.At(actors.ReplicaSetKind, keyOf(set))]; w != nil && w.ByOthers.After(r.run.began.Add(-time.Minute)) {
			return false
		}
	}
	return true
}

// most is how many pods of all revisions there may be.
func most(s *argov1.RolloutSpec) int32 {
	replicas := int32(1)
	if s.Replicas != nil {
		replicas = *s.Replicas
	}
	surge := s.Strategy.Canary.MaxSurge
	if surge == nil {
		surge = new(intstr.FromString("25%"))
	}
	more, err := intstr.GetScaledValueFromIntOrPercent(surge, int(replicas), true)
	if err != nil {
		return 1 << 30
	}
	return replicas + int32(more)
}

// pausedUnscaled is I25.
type pausedUnscaled struct {
	*ledger
	oracle.EventsOnly

	// known are the Rollouts of which a status says that the pause was seen, by the process that lives.
	known map[types.UID]bool
}

func (c *pausedUnscaled) Observe(event any) {
	switch h := event.(type) {
	case sim.ProcessStarted: // what it sees first may be outdated
		c.known = nil
	case replicaSetWritten:
		if h.BySerin && h.Type == store.Modified && h.was() != h.is() && c.still(h.of) {
			c.Violate("I25", h.of.Name(), "it is paused, and %s went from %d to %d pods", h.Key.Name, h.was(), h.is())
		}
	case rolloutWritten:
		defer c.note(h)
		if h.of == nil || !h.BySerin || !h.status() || h.begins || !c.still(h.of) || !h.of.meddled.Before(h.of.Suspended.Add(time.Second)) {
			return
		}
		before, after := h.before.Status.CurrentStepIndex, h.after.Status.CurrentStepIndex
		if h.of.object.Spec.RollbackWindow != nil {
			return // a revision within it skips all steps, and no pod moves
		}
		if before != nil && after != nil && *after == *before+1 && !h.after.Status.PromoteFull && h.before.Status.StableRS == h.after.Status.StableRS {
			c.Violate("I25", h.of.Name(), "it is paused, and went from step %d to %d", *before, *after)
		}
	}
}

// still is true once every process must know that the Rollout is paused.
func (c *pausedUnscaled) still(r *record) bool {
	known := c.known[r.UID] && len(c.World.Instances()) == 1
	return !r.Suspended.IsZero() && (known || r.Suspended.Before(c.OldestView())) && r.object.Spec.Paused
}

// note records whether the pause was seen.
func (c *pausedUnscaled) note(h rolloutWritten) {
	if c.known == nil {
		c.known = map[types.UID]bool{}
	}
	switch {
	case h.after == nil || !h.after.Spec.Paused:
		delete(c.known, h.New.UID())
	case h.BySerin && h.status() && h.after.Status.ObservedGeneration == fmt.Sprint(h.after.Generation):
		c.known[h.New.UID()] = true
	}
}
