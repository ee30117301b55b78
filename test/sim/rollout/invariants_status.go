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

// advances returns the facts for I3.
func (l *ledger) advances(event any) []oracle.Advance {
	release, what, missing := "", "", ""
	switch h := event.(type) {
	case rolloutWritten:
		if h.record != nil && h.BySerin && h.statusChanged() && h.before.Status.StableRS != "" && h.before.Status.StableRS != h.after.Status.StableRS && l.followsPlan(h.record) {
			release, what, missing = h.record.Name(), h.after.Status.StableRS+" was promoted", l.missingForPromotion(h)
		}
	case routeWritten:
		release, what, missing = h.record.Name(), "the active Service selects another revision", l.missingForSwitch(h)
	}
	if missing == "" {
		return nil
	}
	return []oracle.Advance{{Release: release, What: what, Missing: []string{missing}}}
}

// missingForPromotion returns the precondition of a promotion that was not met, or "".
func (l *ledger) missingForPromotion(h rolloutWritten) string {
	r := h.record
	unconditional := r.object.Spec.RollbackWindow != nil || l.replicaSetOf(r, h.before.Status.StableRS) == nil
	if unconditional || h.after.Status.StableRS != r.run.hash || len(l.expectedSpecs(r)) > 1 {
		return ""
	}
	strategy := r.object.Spec.Strategy
	if b := strategy.BlueGreen; b != nil && b.PostPromotionAnalysis != nil && !r.run.passedAnalyses[argov1.TypePostPromotion] && !l.existedBefore(r) {
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
		if step.Analysis != nil && !r.run.passedAnalyses[argov1.TypeStep+strconv.Itoa(i)] {
			return fmt.Sprintf("the analysis of step %d was not successful", i)
		}
		if i >= at && step.Pause != nil && !l.pauseIsOver(h, i == at, *step.Pause) {
			return fmt.Sprintf("the pause of step %d of %d was not over", i, len(strategy.Canary.Steps))
		}
	}
	return ""
}

// pauseIsOver reports whether a pause was over when a promotion left it. One write may leave several steps, but a pause has to
// be started by an earlier write.
func (l *ledger) pauseIsOver(h rolloutWritten, current bool, pause argov1.RolloutPause) bool {
	switch {
	case l.Clocks.Changed:
		return true // how long it lasted by the clock of the process is unknown
	case pause.Duration == nil || !current || len(h.before.Status.PauseConditions) == 0:
		return false
	}
	began := h.before.Status.PauseConditions[0].StartTime
	return l.Now().Sub(began.Time) >= time.Duration(pause.Duration.IntValue())*time.Second
}

// existedBefore reports whether a revision existed before and may still have had pods: no gate applies to its return.
func (l *ledger) existedBefore(r *record) bool {
	set := l.replicaSetOf(r, r.run.hash)
	return set == nil || set.CreationTimestamp.Time.Before(r.run.began.Add(-10*time.Second)) || set.Annotations[argov1.RevisionHistoryAnnotation] != ""
}

// missingForSwitch returns the precondition of switching traffic in a blue-green release that was not met, or "".
func (l *ledger) missingForSwitch(h routeWritten) string {
	r := h.record
	b := r.object.Spec.Strategy.BlueGreen
	if !h.BySerin || h.Kind != actors.ServiceKind || b == nil || h.Key.Name != b.ActiveService || !l.followsPlan(r) || r.object.Spec.RollbackWindow != nil || h.Type != store.Modified {
		return ""
	}
	from, to := l.selectedHash(h.Old), l.selectedHash(h.New)
	if from == "" || from == to || to != r.run.hash || to == r.object.Status.StableRS || len(l.expectedSpecs(r)) > 1 || b.PrePromotionAnalysis == nil || l.existedBefore(r) {
		return ""
	}
	if !r.run.passedAnalyses[argov1.TypePrePromotion] {
		return "no analysis before the switch was successful"
	}
	return ""
}

// phases are the phases of a Rollout. Each may follow every other one.
var phases = []string{
	"", string(argov1.RolloutPhaseHealthy), string(argov1.RolloutPhaseDegraded), string(argov1.RolloutPhaseProgressing), string(argov1.RolloutPhasePaused),
}

// statusChanges returns the facts for I13.
func (l *ledger) statusChanges(event any) []oracle.StatusChange {
	h, ok := event.(rolloutWritten)
	if !ok || h.record == nil || !h.BySerin || !h.statusChanged() {
		return nil
	}
	before, after := &h.before.Status, &h.after.Status
	change := oracle.StatusChange{Release: h.record.Name(), From: string(before.Phase), To: string(after.Phase), Next: phases, Generation: h.before.Generation}
	if n, err := strconv.ParseInt(after.ObservedGeneration, 10, 64); err == nil && after.ObservedGeneration != before.ObservedGeneration {
		change.Observed = n
	}
	return []oracle.StatusChange{change}
}

// statusHistory is the part of I13 about revisions, ping-pong Services, and steps.
func (l *ledger) statusHistory(event any) {
	h, ok := event.(rolloutWritten)
	if !ok || h.record == nil || !h.BySerin || !h.statusChanged() {
		return
	}
	if before, after := &h.before.Status, &h.after.Status; before.StableRS != after.StableRS && after.StableRS != after.CurrentPodHash {
		l.Violate("I13", h.record.Name(), "%s became stable, but the newest revision is %s", after.StableRS, after.CurrentPodHash)
	}
	l.checkStepIndex(h)
	l.checkPingPong(h)
}

// checkPingPong checks that ping-pong Services change their roles exactly when another revision becomes stable. If the stable
// revision has no ReplicaSet, it is unknown which Service has traffic.
func (l *ledger) checkPingPong(h rolloutWritten) {
	canary := h.before.Spec.Strategy.Canary
	if canary == nil || canary.PingPong == nil {
		return
	}
	was, is := h.before.Status.Canary.StablePingPong, h.after.Status.Canary.StablePingPong
	if promoted := h.before.Status.StableRS != h.after.Status.StableRS; promoted == (was == is) && (!promoted || l.replicaSetOf(h.record, h.before.Status.StableRS) != nil) {
		l.Violate("I13", h.record.Name(), "the stable Service changed from %q to %q, and the stable revision from %s to %s", was, is, h.before.Status.StableRS, h.after.Status.StableRS)
	}
}

// checkStepIndex checks that steps are completed in order, and restarted only with another release, another plan, or an abort.
// One write may complete several steps.
func (l *ledger) checkStepIndex(h rolloutWritten) {
	r, before, after := h.record, h.before.Status.CurrentStepIndex, h.after.Status.CurrentStepIndex
	if before == nil || after == nil || h.beginsRun || h.before.Status.CurrentStepHash != h.after.Status.CurrentStepHash || *after == *before {
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

// starts returns the facts for I17.
func (l *ledger) starts(event any) []oracle.NewRelease {
	h, ok := event.(rolloutWritten)
	if !ok || h.record == nil || !h.BySerin || !h.beginsRun || h.before.Status.CurrentPodHash == "" {
		return nil
	}
	s, start := h.after.Status, oracle.NewRelease{Release: h.record.Name()}
	decided := s.Abort || s.PromoteFull || len(s.PauseConditions) > 0 || s.Canary.CurrentStepAnalysisRunStatus != nil || s.Canary.CurrentBackgroundAnalysisRunStatus != nil ||
		s.Canary.CurrentExperiment != "" || s.BlueGreen.PrePromotionAnalysisRunStatus != nil || s.BlueGreen.PostPromotionAnalysisRunStatus != nil
	if decided {
		start.CarriedOver = append(start.CarriedOver, fmt.Sprintf("the decisions %+v", s))
	}
	steps := 0
	if canary := h.before.Spec.Strategy.Canary; canary != nil {
		steps = len(canary.Steps)
	}
	if s.CurrentStepIndex != nil && *s.CurrentStepIndex != 0 && int(*s.CurrentStepIndex) != steps {
		start.CarriedOver = append(start.CarriedOver, fmt.Sprintf("step %d", *s.CurrentStepIndex))
	}
	return []oracle.NewRelease{start}
}

// stableOutcomes returns the facts for I23 and I24: statuses that make another revision stable.
func (l *ledger) stableOutcomes(event any) []oracle.Outcome {
	h, ok := event.(rolloutWritten)
	if !ok || h.record == nil || !h.BySerin || !h.statusChanged() || h.before.Status.StableRS == h.after.Status.StableRS || l.replicaSetOf(h.record, h.before.Status.StableRS) == nil {
		return nil // if the stable revision is gone, there is nothing to return to
	}
	before, after := h.before.Status, h.after.Status
	return []oracle.Outcome{{
		Release: h.record.Name(), What: after.StableRS + " became stable", Before: before.StableRS, Stable: after.StableRS,
		RolledBack: after.Abort, Aborted: before.Abort && !before.PromoteFull && !h.beginsRun, // a user who promotes fully overrides the abort
	}}
}

// abortedUsers is the part of I23 about the final state: after an abort, only the stable revision receives traffic.
func (l *ledger) abortedUsers() {
	for _, r := range l.All {
		s := r.object.Status
		if r.Gone() || !s.Abort || s.StableRS == "" || l.replicaSetOf(r, s.StableRS) == nil || !l.podsOf(r, s.StableRS).AnsweredSince(l.OldestView()) || s.Phase != argov1.RolloutPhaseDegraded || invalid(s) {
			continue
		}
		for _, hash := range l.hashesWithTraffic(r) {
			if hash != "" && hash != s.StableRS && !r.object.Spec.Paused {
				l.Violate("I23", r.Name(), "it is aborted, and in the end %s receives traffic, although only %s is stable", hash, s.StableRS)
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
	if !ok || h.record == nil || !h.BySerin || !h.statusChanged() || h.beginsRun {
		return
	}
	r, before, after := h.record, h.before.Status, h.after.Status
	if before.Abort && !after.Abort && before.CurrentPodHash != before.StableRS && h.before.Spec.Strategy.Canary != nil && len(l.expectedSpecs(r)) == 1 && l.followsPlan(r) && l.replicaSetOf(r, before.StableRS) != nil {
		l.Violate("I24", r.Name(), "it was aborted, and continues although no user has retried it")
	}
}

// waiting returns the facts for I26.
func (l *ledger) waiting() []oracle.Waiting {
	var out []oracle.Waiting
	for _, r := range l.All {
		if s := r.object.Status; !r.Gone() && s.Phase != argov1.RolloutPhaseHealthy {
			explained := waitsFor(s, release.ByUser, release.ByCluster) || prunesStatus(l.World)
			out = append(out, oracle.Waiting{Release: r.Name(), Phase: string(s.Phase), Explained: explained})
		}
	}
	return out
}

// observedGenerations is the part of I26 about specs: every generation is observed.
func (l *ledger) observedGenerations() {
	for _, r := range l.All {
		if s := r.object.Status; !r.Gone() && s.Phase != argov1.RolloutPhaseHealthy && s.ObservedGeneration != fmt.Sprint(r.object.Generation) {
			l.Violate("I26", r.Name(), "the run is over, and generation %d was not observed", r.object.Generation)
		}
	}
}
