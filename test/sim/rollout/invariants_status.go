package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// gatedPromotion is I3.
type gatedPromotion struct {
	*ledger
	oracle.EventsOnly
}

func (c *gatedPromotion) Observe(event any) {
	switch h := event.(type) {
	case rolloutWritten:
		if h.of != nil && h.BySerin && h.status() && h.before.Status.StableRS != "" && h.before.Status.StableRS != h.after.Status.StableRS && c.plain(h.of) {
			c.promoted(h)
		}
	case routeWritten:
		c.switched(h)
	}
}

// promoted: all that the plan asks for came before.
func (c *gatedPromotion) promoted(h rolloutWritten) {
	r := h.of
	back := r.object.Spec.RollbackWindow != nil || c.setOf(r, h.before.Status.StableRS) == nil
	if back || h.after.Status.StableRS != r.run.hash || len(c.expectedSpecs(r)) > 1 {
		return
	}
	strategy := r.object.Spec.Strategy
	if b := strategy.BlueGreen; b != nil && b.PostPromotionAnalysis != nil && !r.run.passed[argov1.TypePostPromotion] && !c.cameBack(r) {
		c.Violate("I3", r.Name(), "%s was promoted, and no analysis after the switch was successful", r.run.hash)
	}
	if strategy.Canary == nil {
		return
	}
	at := 0
	if index := h.before.Status.CurrentStepIndex; index != nil {
		at = int(*index)
	}
	for i, step := range strategy.Canary.Steps {
		if step.Analysis != nil && !r.run.passed[argov1.TypeStep+strconv.Itoa(i)] {
			c.Violate("I3", r.Name(), "%s was promoted, and the analysis of step %d was not successful", r.run.hash, i)
		}
		if i >= at && step.Pause != nil && !c.waited(h, i == at, *step.Pause) {
			c.Violate("I3", r.Name(), "%s was promoted at step %d of %d, whose pause was not over", r.run.hash, i, len(strategy.Canary.Steps))
		}
	}
}

// waited is true of a pause that was over when the write of a promotion left it. One write may leave several steps where
// nothing lies between them; a pause has to be begun by a write before.
func (c *gatedPromotion) waited(h rolloutWritten, current bool, pause argov1.RolloutPause) bool {
	switch {
	case c.Clocks.Changed:
		return true // no one knows how long it seemed
	case pause.Duration == nil || !current || len(h.before.Status.PauseConditions) == 0:
		return false
	}
	began := h.before.Status.PauseConditions[0].StartTime
	return c.Now().Sub(began.Time) >= time.Duration(pause.Duration.IntValue())*time.Second
}

// cameBack is true of a revision that was there before, whose pods may still have been: nothing holds the way back.
func (c *gatedPromotion) cameBack(r *record) bool {
	set := c.setOf(r, r.run.hash)
	return set == nil || set.CreationTimestamp.Time.Before(r.run.began.Add(-10*time.Second)) || set.Annotations[argov1.RevisionHistoryAnnotation] != ""
}

// switched: users get a revision of a blue-green release after its analysis only.
func (c *gatedPromotion) switched(h routeWritten) {
	r := h.of
	b := r.object.Spec.Strategy.BlueGreen
	if !h.BySerin || h.Kind != actors.ServiceKind || b == nil || h.Key.Name != b.ActiveService || !c.plain(r) || r.object.Spec.RollbackWindow != nil || h.Type != store.Modified {
		return
	}
	from, to := c.selected(h.Old), c.selected(h.New)
	if from == "" || from == to || to != r.run.hash || to == r.object.Status.StableRS || len(c.expectedSpecs(r)) > 1 || b.PrePromotionAnalysis == nil || c.cameBack(r) {
		return
	}
	if !r.run.passed[argov1.TypePrePromotion] {
		c.Violate("I3", r.Name(), "users got %s, and no analysis before the switch was successful", to)
	}
}

// consistentStatus is I13.
type consistentStatus struct {
	*ledger
	oracle.EventsOnly
}

func (c *consistentStatus) Observe(event any) {
	h, ok := event.(rolloutWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() {
		return
	}
	r, before, after := h.of, &h.before.Status, &h.after.Status
	if n, err := strconv.ParseInt(after.ObservedGeneration, 10, 64); err == nil && after.ObservedGeneration != before.ObservedGeneration && n > h.before.Generation {
		c.Violate("I13", r.Name(), "generation %d is said to be observed, of %d", n, h.before.Generation)
	}
	phases := []argov1.RolloutPhase{"", argov1.RolloutPhaseHealthy, argov1.RolloutPhaseDegraded, argov1.RolloutPhaseProgressing, argov1.RolloutPhasePaused}
	if !slices.Contains(phases, after.Phase) {
		c.Violate("I13", r.Name(), "phase %q", after.Phase)
	}
	if before.StableRS != after.StableRS && after.StableRS != after.CurrentPodHash {
		c.Violate("I13", r.Name(), "%s became stable, and is not the newest revision %s", after.StableRS, after.CurrentPodHash)
	}
	c.index(h)
	c.turned(h)
}

// turned: Services that take turns change their roles when another revision becomes stable, and at no other time. Where what
// was stable has no ReplicaSet, no one knows which of them has users.
func (c *consistentStatus) turned(h rolloutWritten) {
	canary := h.before.Spec.Strategy.Canary
	if canary == nil || canary.PingPong == nil {
		return
	}
	was, is := h.before.Status.Canary.StablePingPong, h.after.Status.Canary.StablePingPong
	if promoted := h.before.Status.StableRS != h.after.Status.StableRS; promoted == (was == is) && (!promoted || c.setOf(h.of, h.before.Status.StableRS) != nil) {
		c.Violate("I13", h.of.Name(), "the stable Service was %q and is %q, and the stable revision was %s and is %s", was, is, h.before.Status.StableRS, h.after.Status.StableRS)
	}
}

// index: steps are left in order, several at once where nothing lies between, and begun again only with another release, another plan, or an abort.
func (c *consistentStatus) index(h rolloutWritten) {
	r, before, after := h.of, h.before.Status.CurrentStepIndex, h.after.Status.CurrentStepIndex
	if before == nil || after == nil || h.begins || h.before.Status.CurrentStepHash != h.after.Status.CurrentStepHash || *after == *before {
		return
	}
	steps := 0
	if canary := h.before.Spec.Strategy.Canary; canary != nil {
		steps = len(canary.Steps)
	}
	if *after > *before && int(*after) <= steps || *after == 0 && h.after.Status.Abort || *before < 0 || int(*before) > steps {
		return
	}
	c.Violate("I13", r.Name(), "it went from step %d to %d of %d", *before, *after, steps)
}

// freshRun is I17.
type freshRun struct {
	*ledger
	oracle.EventsOnly
}

func (c *freshRun) Observe(event any) {
	h, ok := event.(rolloutWritten)
	if !ok || h.of == nil || !h.BySerin || !h.begins || h.before.Status.CurrentPodHash == "" {
		return
	}
	s := h.after.Status
	left := s.Abort || s.PromoteFull || len(s.PauseConditions) > 0 || s.Canary.CurrentStepAnalysisRunStatus != nil || s.Canary.CurrentBackgroundAnalysisRunStatus != nil ||
		s.Canary.CurrentExperiment != "" || s.BlueGreen.PrePromotionAnalysisRunStatus != nil || s.BlueGreen.PostPromotionAnalysisRunStatus != nil
	if left {
		c.Violate("I17", h.of.Name(), "a new release began with what was decided about the one before: %+v", s)
	}
	steps := 0
	if canary := h.before.Spec.Strategy.Canary; canary != nil {
		steps = len(canary.Steps)
	}
	if s.CurrentStepIndex != nil && *s.CurrentStepIndex != 0 && int(*s.CurrentStepIndex) != steps {
		c.Violate("I17", h.of.Name(), "a new release began at step %d", *s.CurrentStepIndex)
	}
}

// rollbackToStable is I23.
type rollbackToStable struct{ *ledger }

func (c *rollbackToStable) Observe(event any) {
	h, ok := event.(rolloutWritten)
	if ok && h.of != nil && h.BySerin && h.status() && h.after.Status.Abort && h.before.Status.StableRS != h.after.Status.StableRS && c.setOf(h.of, h.before.Status.StableRS) != nil {
		c.Violate("I23", h.of.Name(), "it is aborted, and %s became stable", h.after.Status.StableRS)
	}
}

// end: where a release was aborted, users are with what was stable.
func (c *rollbackToStable) Finish() {
	for _, r := range c.All {
		s := r.object.Status
		if r.Gone() || !s.Abort || s.StableRS == "" || c.setOf(r, s.StableRS) == nil || !c.podsOf(r, s.StableRS).Answered(c.OldestView()) || s.Phase != argov1.RolloutPhaseDegraded || invalid(s) {
			continue
		}
		for _, hash := range c.served(r) {
			if hash != "" && hash != s.StableRS && !r.object.Spec.Paused {
				c.Violate("I23", r.Name(), "it is aborted, and users reach %s in the end, and not %s alone", hash, s.StableRS)
			}
		}
	}
}

func invalid(s argov1.RolloutStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c argov1.RolloutCondition) bool { return c.Type == argov1.RolloutInvalidSpec })
}

// abortedStays is I24.
type abortedStays struct {
	*ledger
	oracle.EventsOnly
}

func (c *abortedStays) Observe(event any) {
	h, ok := event.(rolloutWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || h.begins {
		return
	}
	r, before, after := h.of, h.before.Status, h.after.Status
	// Where what was stable is gone there is nothing to go back to; and who asks for a full promotion says what shall be.
	if before.Abort && !before.PromoteFull && before.StableRS != after.StableRS && c.setOf(r, before.StableRS) != nil {
		c.Violate("I24", r.Name(), "it was aborted, and %s was promoted", after.StableRS)
	}
	if before.Abort && !after.Abort && before.CurrentPodHash != before.StableRS && h.before.Spec.Strategy.Canary != nil && len(c.expectedSpecs(r)) == 1 && c.plain(r) && c.setOf(r, before.StableRS) != nil {
		c.Violate("I24", r.Name(), "it was aborted, and goes on unasked")
	}
}

// explainedWaits is I26.
type explainedWaits struct {
	*ledger
}

func (c *explainedWaits) Finish() {
	for _, r := range c.All {
		s := r.object.Status
		if r.Gone() || s.Phase == argov1.RolloutPhaseHealthy {
			continue
		}
		if !opens(s, release.ByUser, release.ByCluster) && !pruning(c.World) {
			c.Violate("I26", r.Name(), "everything is over, it is %s (%s), and its status says nothing that it waits for", s.Phase, s.Message)
		}
		if s.ObservedGeneration != fmt.Sprint(r.object.Generation) {
			c.Violate("I26", r.Name(), "everything is over, and generation %d was not looked at", r.object.Generation)
		}
	}
}

func (c *explainedWaits) Observe(any) {}
