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

// advances are facts for I3.
func (l *ledger) advances(event any) []oracle.Advance {
	release, what, missing := "", "", ""
	switch h := event.(type) {
	case rolloutWritten:
		if h.of != nil && h.BySerin && h.status() && h.before.Status.StableRS != "" && h.before.Status.StableRS != h.after.Status.StableRS && l.plain(h.of) {
			release, what, missing = h.of.Name(), h.after.Status.StableRS+" was promoted", l.promotedWithout(h)
		}
	case routeWritten:
		release, what, missing = h.of.Name(), "users of the active Service reach another revision", l.switchedWithout(h)
	}
	if missing == "" {
		return nil
	}
	return []oracle.Advance{{Release: release, What: what, Missing: []string{missing}}}
}

// promotedWithout is what the plan requires before a promotion, and was missing; empty: nothing.
func (l *ledger) promotedWithout(h rolloutWritten) string {
	r := h.of
	back := r.object.Spec.RollbackWindow != nil || l.setOf(r, h.before.Status.StableRS) == nil
	if back || h.after.Status.StableRS != r.run.hash || len(l.expectedSpecs(r)) > 1 {
		return ""
	}
	strategy := r.object.Spec.Strategy
	if b := strategy.BlueGreen; b != nil && b.PostPromotionAnalysis != nil && !r.run.passed[argov1.TypePostPromotion] && !l.cameBack(r) {
		return "no analysis after the switch was successful"
	}
	if strategy.Canary == nil {
		return ""
	}
	at := 0
	if index := h.before.Status.CurrentStepIndex; index != nil {
		at = int(*index)
	}
	for i, step := range strategy.Canary.Steps {
		if step.Analysis != nil && !r.run.passed[argov1.TypeStep+strconv.Itoa(i)] {
			return fmt.Sprintf("the analysis of step %d was not successful", i)
		}
		if i >= at && step.Pause != nil && !l.waited(h, i == at, *step.Pause) {
			return fmt.Sprintf("the pause of step %d of %d was not over", i, len(strategy.Canary.Steps))
		}
	}
	return ""
}

// waited is true of a pause that was over when the write of a promotion left it. One write may leave several steps where
// nothing lies between them; a pause has to be begun by a write before.
func (l *ledger) waited(h rolloutWritten, current bool, pause argov1.RolloutPause) bool {
	switch {
	case l.Clocks.Changed:
		return true // how long it lasted for the process is unknown
	case pause.Duration == nil || !current || len(h.before.Status.PauseConditions) == 0:
		return false
	}
	began := h.before.Status.PauseConditions[0].StartTime
	return l.Now().Sub(began.Time) >= time.Duration(pause.Duration.IntValue())*time.Second
}

// cameBack is true of a revision that was there before, whose pods may still have been: nothing holds the way back.
func (l *ledger) cameBack(r *record) bool {
	set := l.setOf(r, r.run.hash)
	return set == nil || set.CreationTimestamp.Time.Before(r.run.began.Add(-10*time.Second)) || set.Annotations[argov1.RevisionHistoryAnnotation] != ""
}

// switchedWithout is what the plan of a blue-green release requires before users get its revision, and was missing; empty:
// nothing.
func (l *ledger) switchedWithout(h routeWritten) string {
	r := h.of
	b := r.object.Spec.Strategy.BlueGreen
	if !h.BySerin || h.Kind != actors.ServiceKind || b == nil || h.Key.Name != b.ActiveService || !l.plain(r) || r.object.Spec.RollbackWindow != nil || h.Type != store.Modified {
		return ""
	}
	from, to := l.selected(h.Old), l.selected(h.New)
	if from == "" || from == to || to != r.run.hash || to == r.object.Status.StableRS || len(l.expectedSpecs(r)) > 1 || b.PrePromotionAnalysis == nil || l.cameBack(r) {
		return ""
	}
	if !r.run.passed[argov1.TypePrePromotion] {
		return "no analysis before the switch was successful"
	}
	return ""
}

// phases are those of a Rollout; each may follow each.
var phases = []string{
	"", string(argov1.RolloutPhaseHealthy), string(argov1.RolloutPhaseDegraded), string(argov1.RolloutPhaseProgressing), string(argov1.RolloutPhasePaused),
}

// statusChanges are facts for I13.
func (l *ledger) statusChanges(event any) []oracle.StatusChange {
	h, ok := event.(rolloutWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() {
		return nil
	}
	before, after := &h.before.Status, &h.after.Status
	change := oracle.StatusChange{Release: h.of.Name(), From: string(before.Phase), To: string(after.Phase), Next: phases, Generation: h.before.Generation}
	if n, err := strconv.ParseInt(after.ObservedGeneration, 10, 64); err == nil && after.ObservedGeneration != before.ObservedGeneration {
		change.Observed = n
	}
	return []oracle.StatusChange{change}
}

// statusHistory is the part of I13 about revisions, Services that take turns, and steps.
func (l *ledger) statusHistory(event any) {
	h, ok := event.(rolloutWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() {
		return
	}
	if before, after := &h.before.Status, &h.after.Status; before.StableRS != after.StableRS && after.StableRS != after.CurrentPodHash {
		l.Violate("I13", h.of.Name(), "%s became stable, and is not the newest revision %s", after.StableRS, after.CurrentPodHash)
	}
	l.index(h)
	l.turned(h)
}

// turned: Services that take turns change their roles when another revision becomes stable, and at no other time. Where what
// was stable has no ReplicaSet, which of them has users is unknown.
func (l *ledger) turned(h rolloutWritten) {
	canary := h.before.Spec.Strategy.Canary
	if canary == nil || canary.PingPong == nil {
		return
	}
	was, is := h.before.Status.Canary.StablePingPong, h.after.Status.Canary.StablePingPong
	if promoted := h.before.Status.StableRS != h.after.Status.StableRS; promoted == (was == is) && (!promoted || l.setOf(h.of, h.before.Status.StableRS) != nil) {
		l.Violate("I13", h.of.Name(), "the stable Service was %q and is %q, and the stable revision was %s and is %s", was, is, h.before.Status.StableRS, h.after.Status.StableRS)
	}
}

// index: steps are left in order, several at once where nothing lies between, and begun again only with another release, another plan, or an abort.
func (l *ledger) index(h rolloutWritten) {
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
	l.Violate("I13", r.Name(), "it went from step %d to %d of %d", *before, *after, steps)
}

// starts are facts for I17.
func (l *ledger) starts(event any) []oracle.Start {
	h, ok := event.(rolloutWritten)
	if !ok || h.of == nil || !h.BySerin || !h.begins || h.before.Status.CurrentPodHash == "" {
		return nil
	}
	s, start := h.after.Status, oracle.Start{Release: h.of.Name()}
	decided := s.Abort || s.PromoteFull || len(s.PauseConditions) > 0 || s.Canary.CurrentStepAnalysisRunStatus != nil || s.Canary.CurrentBackgroundAnalysisRunStatus != nil ||
		s.Canary.CurrentExperiment != "" || s.BlueGreen.PrePromotionAnalysisRunStatus != nil || s.BlueGreen.PostPromotionAnalysisRunStatus != nil
	if decided {
		start.Carried = append(start.Carried, fmt.Sprintf("the decisions %+v", s))
	}
	steps := 0
	if canary := h.before.Spec.Strategy.Canary; canary != nil {
		steps = len(canary.Steps)
	}
	if s.CurrentStepIndex != nil && *s.CurrentStepIndex != 0 && int(*s.CurrentStepIndex) != steps {
		start.Carried = append(start.Carried, fmt.Sprintf("step %d", *s.CurrentStepIndex))
	}
	return []oracle.Start{start}
}

// stableOutcomes are facts for I23 and I24: statuses that make another revision stable.
func (l *ledger) stableOutcomes(event any) []oracle.Outcome {
	h, ok := event.(rolloutWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || h.before.Status.StableRS == h.after.Status.StableRS || l.setOf(h.of, h.before.Status.StableRS) == nil {
		return nil // where the stable revision is gone, there is nothing to return to
	}
	before, after := h.before.Status, h.after.Status
	return []oracle.Outcome{{
		Release: h.of.Name(), What: after.StableRS + " became stable", Before: before.StableRS, Stable: after.StableRS,
		RolledBack: after.Abort, Aborted: before.Abort && !before.PromoteFull && !h.begins, // a user who promotes fully overrides the abort
	}}
}

// abortedUsers is the part of I23 about the final state: where a release was aborted, users reach only what was stable.
func (l *ledger) abortedUsers() {
	for _, r := range l.All {
		s := r.object.Status
		if r.Gone() || !s.Abort || s.StableRS == "" || l.setOf(r, s.StableRS) == nil || !l.podsOf(r, s.StableRS).Answered(l.OldestView()) || s.Phase != argov1.RolloutPhaseDegraded || invalid(s) {
			continue
		}
		for _, hash := range l.served(r) {
			if hash != "" && hash != s.StableRS && !r.object.Spec.Paused {
				l.Violate("I23", r.Name(), "it is aborted, and users reach %s in the end, and not %s alone", hash, s.StableRS)
			}
		}
	}
}

func invalid(s argov1.RolloutStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c argov1.RolloutCondition) bool { return c.Type == argov1.RolloutInvalidSpec })
}

// abortRevoked is the part of I24 about aborts: Serin does not continue an aborted release that no user has retried.
func (l *ledger) abortRevoked(event any) {
	h, ok := event.(rolloutWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || h.begins {
		return
	}
	r, before, after := h.of, h.before.Status, h.after.Status
	if before.Abort && !after.Abort && before.CurrentPodHash != before.StableRS && h.before.Spec.Strategy.Canary != nil && len(l.expectedSpecs(r)) == 1 && l.plain(r) && l.setOf(r, before.StableRS) != nil {
		l.Violate("I24", r.Name(), "it was aborted, and continues although no user has retried it")
	}
}

// waiting are facts for I26.
func (l *ledger) waiting() []oracle.Waiting {
	var out []oracle.Waiting
	for _, r := range l.All {
		if s := r.object.Status; !r.Gone() && s.Phase != argov1.RolloutPhaseHealthy {
			explained := opens(s, release.ByUser, release.ByCluster) || pruning(l.World)
			out = append(out, oracle.Waiting{Release: r.Name(), Phase: string(s.Phase), Explained: explained})
		}
	}
	return out
}

// observedGenerations is the part of I26 about specs: none is left unobserved.
func (l *ledger) observedGenerations() {
	for _, r := range l.All {
		if s := r.object.Status; !r.Gone() && s.Phase != argov1.RolloutPhaseHealthy && s.ObservedGeneration != fmt.Sprint(r.object.Generation) {
			l.Violate("I26", r.Name(), "the run is over, and generation %d was not observed", r.object.Generation)
		}
	}
}
