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

// scalings are facts for I18.
func (l *ledger) scalings(event any) []oracle.Scaling {
	h, ok := event.(replicaSetWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.is() <= h.was() || !l.plain(h.of) || len(l.expectedSpecs(h.of)) != 1 {
		return nil
	}
	r := h.of
	// Of blue-green what waits for its scale-down delay has the size that the spec asks for.
	waits := r.object.Spec.Strategy.BlueGreen != nil && h.after.Annotations[argov1.ScaleDownDeadlineAnnotation] != ""
	if hashOf(h.after) == r.object.Status.StableRS || waits {
		return nil
	}
	return []oracle.Scaling{{Release: r.Name(), What: fmt.Sprintf("%s went from %d to %d pods", h.Key.Name, h.was(), h.is()), Rested: r.Rested}}
}

// surge is the part of I18 about releases without a router: no more pods are asked for than the plan allows.
func (l *ledger) surge(event any) {
	h, ok := event.(replicaSetWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.is() <= h.was() || !l.plain(h.of) {
		return
	}
	r, total := h.of, h.is()
	for _, set := range l.setsOf(r) {
		if set.Name != h.Key.Name {
			total += wanted(set)
		}
	}
	allowed := int32(-1)
	for _, s := range l.expectedSpecs(r) {
		if s.Strategy.Canary == nil || s.Strategy.Canary.TrafficRouting != nil {
			return
		}
		allowed = max(allowed, most(s))
	}
	if total > allowed && l.restedScale(r) && !l.JustStarted(h.Actor) {
		l.Violate("I18", r.Name(), "%d pods are requested, of at most %d", total, allowed)
	}
}

// restedScale is true where no user has changed the number of pods since the release began: a user who removes pods while
// others are being made finds too many.
func (l *ledger) restedScale(r *record) bool {
	if r.Specs.Replaced(r.run.began.Add(-time.Minute)) {
		return false
	}
	for _, set := range l.setsOf(r) {
		if w := l.Objects[oracle.At(actors.ReplicaSetKind, keyOf(set))]; w != nil && w.ByOthers.After(r.run.began.Add(-time.Minute)) {
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

// knownPauses are the Rollouts of which a status says that the pause was seen, by the process that lives, for I25.
type knownPauses struct {
	*ledger

	known map[types.UID]bool
}

// effects are facts for I25.
func (c *knownPauses) effects(event any) []oracle.Effect {
	switch h := event.(type) {
	case sim.ProcessStarted: // what it sees first may be outdated
		clear(c.known)
	case replicaSetWritten:
		if h.BySerin && h.Type == store.Modified && h.was() != h.is() {
			return c.effect(h.of, "%s went from %d to %d pods", h.Key.Name, h.was(), h.is())
		}
	case rolloutWritten:
		defer c.note(h)
		if h.of == nil || !h.BySerin || !h.status() || h.begins || !h.of.meddled.Before(h.of.Suspended.Add(time.Second)) {
			return nil
		}
		before, after := h.before.Status.CurrentStepIndex, h.after.Status.CurrentStepIndex
		if h.of.object.Spec.RollbackWindow != nil {
			return nil // a revision within it skips all steps, and no pod moves
		}
		if before != nil && after != nil && *after == *before+1 && !h.after.Status.PromoteFull && h.before.Status.StableRS == h.after.Status.StableRS {
			return c.effect(h.of, "it went from step %d to %d", *before, *after)
		}
	}
	return nil
}

func (c *knownPauses) effect(r *record, format string, args ...any) []oracle.Effect {
	return []oracle.Effect{{
		Release: r.Name(), What: fmt.Sprintf(format, args...), Suspended: r.Suspended, Known: c.known[r.UID] && len(c.World.Instances()) == 1,
	}}
}

// note records whether the pause was seen.
func (c *knownPauses) note(h rolloutWritten) {
	switch {
	case h.after == nil || !h.after.Spec.Paused:
		delete(c.known, h.New.UID())
	case h.BySerin && h.status() && h.after.Status.ObservedGeneration == fmt.Sprint(h.after.Generation):
		c.known[h.New.UID()] = true
	}
}
