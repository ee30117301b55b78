package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// gatedPromotions are the promotions and the switches of blue-green releases, for I3.
type gatedPromotions struct {
	*ledger

	// served are the revisions that the active Service of a Rollout has selected, or that were stable. Only those may return to users
	// without an analysis.
	served map[servedRevision]bool
}

type servedRevision struct {
	rollout types.UID
	hash    string
}

// advances returns the facts for I3.
func (c *gatedPromotions) advances(event any) []oracle.Advance {
	release, what, missing := "", "", ""
	switch h := event.(type) {
	case rolloutWritten:
		if h.Record != nil && h.After != nil {
			c.served[servedRevision{h.After.UID, h.After.Status.StableRS}] = true
		}
		if h.StatusReported() && h.Before.Status.StableRS != "" && h.Before.Status.StableRS != h.After.Status.StableRS && c.followsPlan(h.Record) {
			release, what, missing = h.Record.Name(), h.After.Status.StableRS+" was promoted", c.missingForPromotion(h)
		}
	case routeWritten:
		release, what, missing = h.record.Name(), "the active Service selects another revision", c.missingForSwitch(h)
		c.recordServed(h)
	}
	if missing == "" {
		return nil
	}
	return []oracle.Advance{{Release: release, What: what, Missing: []string{missing}}}
}

// missingForPromotion returns the precondition of a promotion that was not met, or "".
func (c *gatedPromotions) missingForPromotion(h rolloutWritten) string {
	r := h.Record
	unconditional := r.object.Spec.RollbackWindow != nil || c.replicaSetOf(r, h.Before.Status.StableRS) == nil
	if unconditional || h.After.Status.StableRS != r.run.hash || len(c.expectedSpecs(r)) > 1 {
		return ""
	}
	strategy := r.object.Spec.Strategy
	if b := strategy.BlueGreen; b != nil && b.PostPromotionAnalysis != nil && !r.run.passedAnalyses[argov1.TypePostPromotion] && !c.existedBefore(r) {
		return "no analysis after the switch was successful"
	}
	if strategy.Canary == nil {
		return ""
	}
	at := 0
	if index := h.Before.Status.CurrentStepIndex; index != nil {
		at = int(*index)
	}
	for i, step := range strategy.Canary.Steps {
		if step.Analysis != nil && !r.run.passedAnalyses[argov1.TypeStep+strconv.Itoa(i)] {
			return fmt.Sprintf("the analysis of step %d was not successful", i)
		}
		if i >= at && step.Pause != nil && !c.pauseIsOver(h, i == at, *step.Pause) {
			return fmt.Sprintf("the pause of step %d of %d was not over", i, len(strategy.Canary.Steps))
		}
	}
	return ""
}

// pauseIsOver reports whether a pause was over when a promotion left it. One write may leave several steps, but a pause has to
// be started by an earlier write.
func (c *gatedPromotions) pauseIsOver(h rolloutWritten, current bool, pause argov1.RolloutPause) bool {
	switch {
	case c.Clocks.Changed:
		return true // how long it lasted by the clock of the process is unknown
	case pause.Duration == nil || !current || len(h.Before.Status.PauseConditions) == 0:
		return false
	}
	began := h.Before.Status.PauseConditions[0].StartTime
	return c.Now().Sub(began.Time) >= time.Duration(pause.Duration.IntValue())*time.Second
}

// existedBefore reports whether a revision existed before and may still have had pods: no gate applies to its return.
func (c *gatedPromotions) existedBefore(r *record) bool {
	set := c.replicaSetOf(r, r.run.hash)
	return set == nil || set.CreationTimestamp.Time.Before(r.run.began.Add(-10*time.Second)) || set.Annotations[argov1.RevisionHistoryAnnotation] != ""
}

// missingForSwitch returns the precondition of switching traffic in a blue-green release that was not met, or "".
func (c *gatedPromotions) missingForSwitch(h routeWritten) string {
	r := h.record
	b := r.object.Spec.Strategy.BlueGreen
	if !h.BySerin || h.Kind != actors.ServiceKind || b == nil || h.Key.Name != b.ActiveService || !c.followsPlan(r) || r.object.Spec.RollbackWindow != nil || h.Type != store.Modified {
		return ""
	}
	from, to := c.selectedHash(h.Old), c.selectedHash(h.New)
	if from == "" || from == to || to != r.run.hash || to == r.object.Status.StableRS || len(c.expectedSpecs(r)) > 1 || b.PrePromotionAnalysis == nil || c.existedBefore(r) && c.served[servedRevision{r.object.UID, to}] {
		return ""
	}
	if !r.run.passedAnalyses[argov1.TypePrePromotion] {
		return "no analysis before the switch was successful"
	}
	return ""
}

// recordServed records the revision that an active Service selects.
func (c *gatedPromotions) recordServed(h routeWritten) {
	r := h.record
	if b := r.object.Spec.Strategy.BlueGreen; b != nil && h.Kind == actors.ServiceKind && h.Key.Name == b.ActiveService && h.New != nil {
		c.served[servedRevision{r.object.UID, c.selectedHash(h.New)}] = true
	}
}

// phases are the phases of a Rollout. Each may follow every other one.
var phases = []string{
	"", string(argov1.RolloutPhaseHealthy), string(argov1.RolloutPhaseDegraded), string(argov1.RolloutPhaseProgressing), string(argov1.RolloutPhasePaused),
}

// statusReports are the changes of statuses, for I13, I17, I23 and I24.
type statusReports struct {
	*ledger

	// delayEnds are the last scale-down deadlines of ReplicaSets, which lose them with their pods.
	delayEnds map[types.UID]delayEnd
}

// delayEnd is the end of the delay of retained pods, by the clock of the process that recorded it, and when that was.
type delayEnd struct{ until, recorded time.Time }

// statusChanges returns the facts for I13.
func (c *statusReports) statusChanges(event any) []oracle.StatusChange {
	h, ok := event.(rolloutWritten)
	if !ok || !h.StatusReported() {
		return nil
	}
	before, after := &h.Before.Status, &h.After.Status
	change := oracle.StatusChange{Release: h.Record.Name(), From: string(before.Phase), To: string(after.Phase), Next: phases, Generation: h.Before.Generation}
	if n, err := strconv.ParseInt(after.ObservedGeneration, 10, 64); err == nil && after.ObservedGeneration != before.ObservedGeneration {
		change.Observed = n
	}
	return []oracle.StatusChange{change}
}

// statusHistory is the part of I13 about revisions, ping-pong Services, and steps.
func (c *statusReports) statusHistory(event any) {
	if w, ok := event.(replicaSetWritten); ok && w.after != nil {
		c.recordDelay(w)
	}
	h, ok := event.(rolloutWritten)
	if !ok || !h.StatusReported() {
		return
	}
	if before, after := &h.Before.Status, &h.After.Status; before.StableRS != after.StableRS && after.StableRS != after.CurrentPodHash {
		c.Violate("I13", h.Record.Name(), "%s became stable, but the newest revision is %s", after.StableRS, after.CurrentPodHash)
	}
	c.checkStepIndex(h)
	c.checkPingPong(h)
	c.checkDeadline(h)
}

// recordDelay records the end of the delay of a ReplicaSet. It ends with the removal of the pods, or because the revision is released
// again, or stable again, with pods.
func (c *statusReports) recordDelay(w replicaSetWritten) {
	text := w.after.Annotations[argov1.ScaleDownDeadlineAnnotation]
	if until, err := time.Parse(time.RFC3339, text); err == nil {
		if last := c.delayEnds[w.after.UID]; !last.until.Equal(until) {
			c.delayEnds[w.after.UID] = delayEnd{until, c.Now()}
		}
		return
	}
	status := w.record.object.Status
	if used := hashOf(w.after) == status.CurrentPodHash || hashOf(w.after) == status.StableRS; text == "" && used && w.replicas() > 0 {
		delete(c.delayEnds, w.after.UID)
	}
}

// checkDeadline checks that the progress deadline does not pass while pods of an earlier revision are retained for their delay, nor
// within its own length after that.
func (c *statusReports) checkDeadline(h rolloutWritten) {
	r := h.Record
	if timedOut(h.Before.Status) || !timedOut(h.After.Status) || !c.followsPlan(r) {
		return
	}
	length := 600 * time.Second
	for _, spec := range c.expectedSpecs(r) {
		if seconds := spec.ProgressDeadlineSeconds; seconds != nil {
			length = min(length, time.Duration(*seconds)*time.Second)
		}
	}
	offset := c.Now().Sub(c.Clocks.Now(h.Actor))
	passed := lastProgress(h.Before.Status).Add(length + offset)
	for _, set := range c.replicaSetsOf(r) {
		delay, retained := c.delayEnds[set.UID]
		hash := hashOf(set)
		if !retained || hash == h.After.Status.CurrentPodHash || hash == h.After.Status.StableRS || set.Status.Replicas == 0 || !c.Clocks.Consistent(delay.recorded) {
			continue
		}
		if !delay.recorded.Before(passed) {
			continue // writes failed until after the deadline, and the delay starts with it
		}
		until := delay.until.Add(offset)
		if lost := desiredReplicas(set) == 0 && (c.LastFault.After(until.Add(-c.Lag)) || c.Started[h.Actor].After(until)); lost {
			continue // the end of the delay removed the deadline, and may not be in the status
		}
		if c.Now().Before(until.Add(length)) {
			c.Violate("I13", r.Name(), "the progress deadline of %s has passed, although the pods of %s are retained until %s", length, set.Name, until.Format(time.TimeOnly))
		}
	}
}

// lastProgress is the time from which a deadline counts; zero: there is none.
func lastProgress(s argov1.RolloutStatus) time.Time {
	i := slices.IndexFunc(s.Conditions, func(c argov1.RolloutCondition) bool { return c.Type == argov1.RolloutProgressing })
	if i < 0 {
		return time.Time{}
	}
	return s.Conditions[i].LastUpdateTime.Time
}

func timedOut(s argov1.RolloutStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c argov1.RolloutCondition) bool {
		return c.Type == argov1.RolloutProgressing && c.Reason == "ProgressDeadlineExceeded"
	})
}

// checkPingPong checks that ping-pong Services change their roles exactly when another revision becomes stable. If the stable
// revision has no ReplicaSet, it is unknown which Service has traffic.
func (c *statusReports) checkPingPong(h rolloutWritten) {
	canary := h.Before.Spec.Strategy.Canary
	if canary == nil || canary.PingPong == nil {
		return
	}
	was, is := h.Before.Status.Canary.StablePingPong, h.After.Status.Canary.StablePingPong
	if promoted := h.Before.Status.StableRS != h.After.Status.StableRS; promoted == (was == is) && (!promoted || c.replicaSetOf(h.Record, h.Before.Status.StableRS) != nil) {
		c.Violate("I13", h.Record.Name(), "the stable Service changed from %q to %q, and the stable revision from %s to %s", was, is, h.Before.Status.StableRS, h.After.Status.StableRS)
	}
}

// checkStepIndex checks that steps are completed in order, and restarted only with another release, another plan, or an abort.
// One write may complete several steps.
func (c *statusReports) checkStepIndex(h rolloutWritten) {
	r, before, after := h.Record, h.Before.Status.CurrentStepIndex, h.After.Status.CurrentStepIndex
	if before == nil || after == nil || h.beginsRun || h.Before.Status.CurrentStepHash != h.After.Status.CurrentStepHash || *after == *before {
		return
	}
	steps := 0
	if canary := h.Before.Spec.Strategy.Canary; canary != nil {
		steps = len(canary.Steps)
	}
	if *after > *before && int(*after) <= steps || *after == 0 && h.After.Status.Abort || *before < 0 || int(*before) > steps {
		return
	}
	c.Violate("I13", r.Name(), "it went from step %d to %d of %d", *before, *after, steps)
}

// starts returns the facts for I17.
func (c *statusReports) starts(event any) []oracle.NewRelease {
	h, ok := event.(rolloutWritten)
	if !ok || h.Record == nil || !h.BySerin || !h.beginsRun || h.Before.Status.CurrentPodHash == "" {
		return nil
	}
	s, start := h.After.Status, oracle.NewRelease{Release: h.Record.Name()}
	decided := s.Abort || s.PromoteFull || len(s.PauseConditions) > 0 || s.Canary.CurrentStepAnalysisRunStatus != nil || s.Canary.CurrentBackgroundAnalysisRunStatus != nil ||
		s.Canary.CurrentExperiment != "" || s.BlueGreen.PrePromotionAnalysisRunStatus != nil || s.BlueGreen.PostPromotionAnalysisRunStatus != nil
	if decided {
		start.CarriedOver = append(start.CarriedOver, fmt.Sprintf("the decisions %+v", s))
	}
	steps := 0
	if canary := h.Before.Spec.Strategy.Canary; canary != nil {
		steps = len(canary.Steps)
	}
	if s.CurrentStepIndex != nil && *s.CurrentStepIndex != 0 && int(*s.CurrentStepIndex) != steps {
		start.CarriedOver = append(start.CarriedOver, fmt.Sprintf("step %d", *s.CurrentStepIndex))
	}
	return []oracle.NewRelease{start}
}

// stableOutcomes returns the facts for I23 and I24: statuses that make another revision stable.
func (c *statusReports) stableOutcomes(event any) []oracle.Outcome {
	h, ok := event.(rolloutWritten)
	if !ok || !h.StatusReported() || h.Before.Status.StableRS == h.After.Status.StableRS || c.replicaSetOf(h.Record, h.Before.Status.StableRS) == nil {
		return nil // if the stable revision is gone, there is nothing to return to
	}
	before, after := h.Before.Status, h.After.Status
	return []oracle.Outcome{{
		Release: h.Record.Name(), What: after.StableRS + " became stable", Before: before.StableRS, Stable: after.StableRS,
		RolledBack: after.Abort, Aborted: before.Abort && !before.PromoteFull && !h.beginsRun, // a user who promotes fully overrides the abort
	}}
}

// finalStatuses are the statuses at the end of a run, for I23, I26 and I27.
type finalStatuses struct{ *ledger }

// abortedUsers is the part of I23 about the final state: after an abort, only the stable revision receives traffic.
func (c *finalStatuses) abortedUsers() {
	for _, r := range c.All {
		s := r.object.Status
		if r.Gone() || !s.Abort || s.StableRS == "" || c.replicaSetOf(r, s.StableRS) == nil || !c.podsOf(r, s.StableRS).AnsweredSince(c.OldestView()) || s.Phase != argov1.RolloutPhaseDegraded || invalid(s) {
			continue
		}
		for _, hash := range c.hashesWithTraffic(r) {
			if hash != "" && hash != s.StableRS && !r.object.Spec.Paused {
				c.Violate("I23", r.Name(), "it is aborted, and in the end %s receives traffic, although only %s is stable", hash, s.StableRS)
			}
		}
	}
}

func invalid(s argov1.RolloutStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c argov1.RolloutCondition) bool { return c.Type == argov1.RolloutInvalidSpec })
}

// abortRevoked is the part of I24 about aborts: Serin does not continue an aborted release that no user has retried.
func (c *statusReports) abortRevoked(event any) {
	h, ok := event.(rolloutWritten)
	if !ok || !h.StatusReported() || h.beginsRun {
		return
	}
	r, before, after := h.Record, h.Before.Status, h.After.Status
	if before.Abort && !after.Abort && before.CurrentPodHash != before.StableRS && h.Before.Spec.Strategy.Canary != nil && len(c.expectedSpecs(r)) == 1 && c.followsPlan(r) && c.replicaSetOf(r, before.StableRS) != nil {
		c.Violate("I24", r.Name(), "it was aborted, and continues although no user has retried it")
	}
}

// waiting returns the facts for I26.
func (c *finalStatuses) waiting() []oracle.Waiting {
	var out []oracle.Waiting
	for _, r := range c.All {
		if s := r.object.Status; !r.Gone() && s.Phase != argov1.RolloutPhaseHealthy {
			explained := waitsFor(s, release.ByUser, release.ByCluster) || prunesStatus(c.World)
			out = append(out, oracle.Waiting{Release: r.Name(), Phase: string(s.Phase), Explained: explained})
		}
	}
	return out
}

// observedGenerations is the part of I26 about specs: every generation is observed.
func (c *finalStatuses) observedGenerations() {
	for _, r := range c.All {
		if s := r.object.Status; !r.Gone() && s.Phase != argov1.RolloutPhaseHealthy && s.ObservedGeneration != fmt.Sprint(r.object.Generation) {
			c.Violate("I26", r.Name(), "the run is over, and generation %d was not observed", r.object.Generation)
		}
	}
}
