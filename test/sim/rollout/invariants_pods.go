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

// requestedPods are the changes of the numbers of pods, for I18.
type requestedPods struct{ *ledger }

// scalings returns the facts for I18.
func (c *requestedPods) scalings(event any) []oracle.Scaling {
	h, ok := event.(replicaSetWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.replicas() <= h.previousReplicas() || !c.followsPlan(h.record) || len(c.expectedSpecs(h.record)) != 1 {
		return nil
	}
	r := h.record
	// A blue-green ReplicaSet that waits for its scale-down delay has the size of the spec.
	waitsForDelay := r.object.Spec.Strategy.BlueGreen != nil && h.after.Annotations[argov1.ScaleDownDeadlineAnnotation] != ""
	if hashOf(h.after) == r.object.Status.StableRS || waitsForDelay {
		return nil
	}
	return []oracle.Scaling{{Release: r.Name(), What: fmt.Sprintf("%s went from %d to %d pods", h.Key.Name, h.previousReplicas(), h.replicas()), IdleSince: r.IdleSince}}
}

// limitedSurge is the part of I18 about releases without a router: no more pods are requested than the plan allows.
func (c *requestedPods) limitedSurge(event any) {
	h, ok := event.(replicaSetWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.replicas() <= h.previousReplicas() || !c.followsPlan(h.record) {
		return
	}
	r, total := h.record, h.replicas()
	for _, set := range c.replicaSetsOf(r) {
		if set.Name != h.Key.Name {
			total += desiredReplicas(set)
		}
	}
	allowed := int32(-1)
	for _, s := range c.expectedSpecs(r) {
		if s.Strategy.Canary == nil || s.Strategy.Canary.TrafficRouting != nil {
			return
		}
		allowed = max(allowed, maxPods(s))
	}
	if total > allowed && c.scaleUnchanged(r) && !c.JustStarted(h.Actor) {
		c.Violate("I18", r.Name(), "%d pods are requested, of at most %d", total, allowed)
	}
}

// scaleUnchanged reports whether no user has changed the number of pods since the release began. If a user removes pods while
// others are created, there may be too many.
func (c *requestedPods) scaleUnchanged(r *record) bool {
	if r.Specs.Replaced(r.run.began.Add(-time.Minute)) {
		return false
	}
	for _, set := range c.replicaSetsOf(r) {
		if w := c.Objects[oracle.KeyOf(actors.ReplicaSetKind, keyOf(set))]; w != nil && w.ByOthers.After(r.run.began.Add(-time.Minute)) {
			return false
		}
	}
	return true
}

// maxPods returns the maximum number of pods of all revisions.
func maxPods(s *argov1.RolloutSpec) int32 {
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

// knownPauses are the Rollouts whose status records that the running process has observed the pause, for I25.
type knownPauses struct {
	*ledger

	known map[types.UID]bool
}

// effects returns the facts for I25.
func (c *knownPauses) effects(event any) []oracle.Effect {
	switch h := event.(type) {
	case sim.ProcessStarted: // its first observation may be outdated
		clear(c.known)
	case replicaSetWritten:
		if h.BySerin && h.Type == store.Modified && h.previousReplicas() != h.replicas() {
			return c.effect(h.record, "%s went from %d to %d pods", h.Key.Name, h.previousReplicas(), h.replicas())
		}
	case rolloutWritten:
		defer c.recordPause(h)
		if !h.StatusReported() || h.beginsRun || !h.Record.changedByOthers.Before(h.Record.SuspendedSince.Add(time.Second)) {
			return nil
		}
		before, after := h.Before.Status.CurrentStepIndex, h.After.Status.CurrentStepIndex
		switch {
		case h.Record.object.Spec.RollbackWindow != nil: // a revision within the rollback window skips all steps without scaling
			return nil
		case h.Before.Status.CurrentStepHash != h.After.Status.CurrentStepHash: // a user replaced the steps
			return nil
		}
		if before != nil && after != nil && *before >= 0 && *after == *before+1 && !h.After.Status.PromoteFull && h.Before.Status.StableRS == h.After.Status.StableRS {
			return c.effect(h.Record, "it went from step %d to %d", *before, *after)
		}
	}
	return nil
}

func (c *knownPauses) effect(r *record, format string, args ...any) []oracle.Effect {
	return []oracle.Effect{{
		Release: r.Name(), What: fmt.Sprintf(format, args...), SuspendedSince: r.SuspendedSince, Known: c.known[r.UID] && len(c.World.Instances()) == 1,
	}}
}

// recordPause records whether the pause was observed.
func (c *knownPauses) recordPause(h rolloutWritten) {
	switch {
	case h.After == nil || !h.After.Spec.Paused:
		delete(c.known, h.New.UID())
	case h.BySerin && h.StatusChanged() && h.After.Status.ObservedGeneration == fmt.Sprint(h.After.Generation):
		c.known[h.New.UID()] = true
	}
}
