package canary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// nextPhases contains the phases that may follow a phase. In addition, each phase may follow itself, and Terminating every
// other phase.
var nextPhases = map[flaggerv1.CanaryPhase][]flaggerv1.CanaryPhase{
	"":                                {flaggerv1.CanaryPhaseInitializing},
	flaggerv1.CanaryPhaseInitializing: {flaggerv1.CanaryPhaseInitialized},
	flaggerv1.CanaryPhaseInitialized:  {flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing},
	flaggerv1.CanaryPhaseSucceeded:    {flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing},
	flaggerv1.CanaryPhaseFailed: {
		flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhasePromoting, // a promotion that continues
	},
	flaggerv1.CanaryPhaseWaiting: {flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed},
	flaggerv1.CanaryPhaseProgressing: {
		flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed,
	},
	flaggerv1.CanaryPhaseWaitingPromotion: {
		flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed,
	},
	flaggerv1.CanaryPhasePromoting:   {flaggerv1.CanaryPhaseFinalising, flaggerv1.CanaryPhaseFailed},
	flaggerv1.CanaryPhaseFinalising:  {flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed},
	flaggerv1.CanaryPhaseTerminating: {flaggerv1.CanaryPhaseTerminated},
}

// statusGraph are the changes of statuses, for I13.
type statusGraph struct{ *ledger }

// statusChanges returns the facts for I13.
func (c *statusGraph) statusChanges(event any) []oracle.StatusChange {
	h, ok := event.(canaryWritten)
	if !ok || !h.StatusReported() || !h.Record.statusBySerin() {
		return nil
	}
	before, after := &h.Before.Status, &h.After.Status
	change := oracle.StatusChange{Release: h.Record.Name(), From: string(before.Phase), To: string(after.Phase), Generation: h.Before.Generation}
	next, known := nextPhases[before.Phase]
	for _, phase := range next {
		change.Next = append(change.Next, string(phase))
	}
	if !known {
		change.Next = append(change.Next, change.To)
	}
	change.Next = append(change.Next, string(flaggerv1.CanaryPhaseTerminating))
	change.Next = append(change.Next, c.phasesOfReplacement(h)...)
	for _, condition := range after.Conditions {
		change.Observed = max(change.Observed, condition.ObservedGeneration)
	}
	return []oracle.StatusChange{change}
}

// phasesOfReplacement returns the phases that may follow because the target was replaced, or is the former one again.
func (c *statusGraph) phasesOfReplacement(h canaryWritten) []string {
	before, recorded := &h.Before.Status, recordedTarget(&h.Before.Status)
	switch {
	case h.Record.lastReplaced.IsZero() || recorded == "":
		return nil
	case (isEnded(before.Phase) || before.Phase == flaggerv1.CanaryPhaseWaiting) && replacesTarget(h):
		// A former target whose primary still serves needs no initialization.
		return []string{string(flaggerv1.CanaryPhaseInitializing), string(flaggerv1.CanaryPhaseInitialized)}
	case before.Phase == flaggerv1.CanaryPhaseInitializing && recorded == h.After.Spec.TargetRef.Name:
		return []string{string(flaggerv1.CanaryPhaseFailed)} // as before the change
	default:
		return nil
	}
}

// replacesTarget reports whether the spec names another target than that with which the last release or initialization started.
func replacesTarget(h canaryWritten) bool {
	serin, named := h.Before.Status.Serin, h.After.Spec.TargetRef
	return recordedTarget(&h.Before.Status) != "" && !strings.HasSuffix(serin.Shape, "/"+named.Kind+"/"+named.Name)
}

// recordedTarget returns the name of the target with which the last release or initialization started; empty: unknown.
func recordedTarget(status *flaggerv1.CanaryStatus) string {
	if status.Serin == nil {
		return ""
	}
	if parts := strings.Split(status.Serin.Shape, "/"); len(parts) == 4 {
		return parts[3]
	}
	return ""
}

// statusHistory is the part of I13 about counters and conditions.
func (c *statusGraph) statusHistory(event any) {
	h, ok := event.(canaryWritten)
	if !ok || !h.StatusReported() || !h.Record.statusBySerin() {
		return
	}
	r, before, after := h.Record, &h.Before.Status, &h.After.Status
	ends := before.Phase != after.Phase && (isEnded(after.Phase) || after.Phase == flaggerv1.CanaryPhaseFinalising || after.Phase == flaggerv1.CanaryPhaseTerminating)
	// Nothing is counted before the approval, but users may have written a number.
	starts := before.Phase == flaggerv1.CanaryPhaseWaiting && after.Phase == flaggerv1.CanaryPhaseProgressing ||
		before.Phase != after.Phase && after.Phase == flaggerv1.CanaryPhaseInitializing
	if h.newRun == nil && !ends && !starts && (after.FailedChecks < before.FailedChecks || after.Iterations < before.Iterations) {
		c.Violate("I13", r.Name(), "in phase %s, without a new run, the failed checks went from %d to %d and the iterations from %d to %d",
			after.Phase, before.FailedChecks, after.FailedChecks, before.Iterations, after.Iterations)
	}
	for i := range after.Conditions {
		c.conditionHistory(h, &after.Conditions[i])
	}
}

func (c *statusGraph) conditionHistory(h canaryWritten, now *flaggerv1.CanaryCondition) {
	for i := range h.Before.Status.Conditions {
		was := &h.Before.Status.Conditions[i]
		if was.Type != now.Type {
			continue
		}
		if now.ObservedGeneration < was.ObservedGeneration {
			c.Violate("I13", h.Record.Name(), "condition %s went from generation %d back to %d", now.Type, was.ObservedGeneration, now.ObservedGeneration)
		}
		if was.Status == now.Status && !was.LastTransitionTime.Equal(&now.LastTransitionTime) {
			c.Violate("I13", h.Record.Name(), "condition %s is still %s, but its transition time changed from %s to %s", now.Type, now.Status, was.LastTransitionTime, now.LastTransitionTime)
		}
	}
}

// endedRuns are the runs that have ended, for I23 and I27.
type endedRuns struct{ *ledger }

// stableOutcomes returns the facts for I23.
func (c *endedRuns) stableOutcomes(event any) []oracle.Outcome {
	h, ok := event.(canaryWritten)
	if !ok || !h.StatusReported() || !h.Record.statusBySerin() {
		return nil
	}
	r, before, after := h.Record, &h.Before.Status, &h.After.Status
	if r.run == nil || !isActive(before.Phase) || after.Phase != flaggerv1.CanaryPhaseFailed {
		return nil
	}
	failedPromotion := after.Serin != nil && after.Serin.Promoted == "none" || after.CanaryWeight == 100 || r.hasNoRouter() && before.Phase == flaggerv1.CanaryPhasePromoting
	touched := r.primary.writtenByOthers.After(r.run.began) || r.primary.removed.After(r.run.began) || r.primary.created.After(r.run.began) ||
		r.lastReplaced.After(r.run.began) // the primary is that of another target
	return []oracle.Outcome{{
		Release: r.Name(), What: "it was rolled back", Before: r.run.primaryContent, Stable: r.primary.content,
		RolledBack: !failedPromotion && !touched && r.run.primaryContent != "" && c.OldestView().After(r.run.promotedAt),
	}}
}

// failedRevisions is the part of I23 about failed revisions: they are neither recorded as promoted nor released again.
func (c *endedRuns) failedRevisions(event any) {
	h, ok := event.(canaryWritten)
	if !ok || !h.StatusReported() || !h.Record.statusBySerin() {
		return
	}
	if before, after := &h.Before.Status, &h.After.Status; after.LastPromotedSpec != before.LastPromotedSpec && before.Phase == after.Phase && !replacesTarget(h) {
		c.checkRecordedPromotion(h)
	}
	if h.newRun != nil && isEnded(h.Before.Status.Phase) {
		c.checkRetriedRevision(h)
	}
}

// checkRecordedPromotion checks that after a failed promotion, the revision of the primary is recorded as promoted only once
// the primary is ready.
func (c *endedRuns) checkRecordedPromotion(h canaryWritten) {
	r, before := h.Record, &h.Before.Status
	// Another actor may have written the phase since then.
	unknown := r.promotionFailed || before.Serin != nil && before.Serin.Promoted == "none"
	switch {
	case !unknown:
		c.Violate("I23", r.Name(), "lastPromotedSpec changed in phase %s", before.Phase)
	case !r.primary.ready.EverSince(c.OldestView()):
		c.Violate("I23", r.Name(), "lastPromotedSpec changed in phase %s, but the primary has not been ready for %s", before.Phase, c.Lag)
	}
}

// checkRetriedRevision checks that a revision that was rolled back is not released again automatically.
func (c *endedRuns) checkRetriedRevision(h canaryWritten) {
	r := h.Record
	if before := h.Before.Status.Phase; before != flaggerv1.CanaryPhaseFailed || r.failedContent == "" {
		return
	}
	if !slices.Contains(h.newRun.targetContents, r.failedContent) || len(h.newRun.targetContents) > 1 || !r.failedAt.After(r.target.contentChanged()) {
		return
	}
	if !r.hasCommand("retry", time.Time{}) && r.target.writtenByOthers.Before(r.failedAt) {
		c.Violate("I23", r.Name(), "%s, which was rolled back, is released again, although no user requested it", r.failedContent)
	}
}

// contentChanged returns when the workload last began to run another content.
func (p *workloadState) contentChanged() time.Time { return p.contentHistory.Changed() }

// executedCommands are the commands that the statuses of a run record as executed.
type executedCommands struct {
	*ledger

	executed map[string]time.Time
	aborted  map[string]bool
}

// observe is the part of I24 about commands: each is executed once, and only if a user gave it.
func (c *executedCommands) observe(event any) {
	h, ok := event.(canaryWritten)
	if !ok || !h.StatusReported() || h.After.Status.Serin == nil {
		return
	}
	r, now, was := h.Record, h.After.Status.Serin, ""
	if s := h.Before.Status.Serin; s != nil {
		was = s.Command
	}
	if now.Command != "" && now.Command != was {
		key := string(r.UID) + " " + now.Command
		verb, run, _ := strings.Cut(now.Command, "@")
		switch {
		case h.newRun != nil && run != now.Run: // a command for the previous run, which is no longer executed
		case !c.executed[key].IsZero() && r.statusBySerin() && !r.statusOverwritten.After(c.executed[key]):
			c.Violate("I24", r.Name(), "%s was executed twice", now.Command)
		case !slices.ContainsFunc(r.commands, func(c command) bool { return c.verb == verb && c.run == run }):
			c.Violate("I24", r.Name(), "%s was executed, although no user gave it", now.Command)
		}
		c.executed[key] = c.Now()
		switch {
		case verb == "abort" && now.Run == run:
			c.aborted[string(r.UID)+" "+run] = true
		case verb == "retry": // with the analysed template in the primary, it continues the promotion of the same run
			delete(c.aborted, string(r.UID)+" "+run)
		}
	}
}

// promotions returns the facts for I24.
func (c *executedCommands) promotions(event any) []oracle.Outcome {
	h, ok := event.(canaryWritten)
	if !ok || !h.StatusReported() || h.After.Status.Serin == nil || h.newRun != nil || !h.Record.statusBySerin() {
		return nil
	}
	before, after, run := h.Before.Status.Phase, h.After.Status.Phase, h.After.Status.Serin.Run
	promoted := after == flaggerv1.CanaryPhasePromoting || after == flaggerv1.CanaryPhaseFinalising || after == flaggerv1.CanaryPhaseSucceeded
	if before == after || !promoted {
		return nil
	}
	return []oracle.Outcome{{
		Release: h.Record.Name(), What: fmt.Sprintf("run %s went from %s to %s", run, before, after), Aborted: c.aborted[string(h.Record.UID)+" "+run],
	}}
}

// effects returns the facts for I25.
func (l *ledger) effects(event any) []oracle.Effect {
	h, ok := event.(oracle.Write)
	if !ok || !h.BySerin {
		return nil
	}
	of, what := l.releasesOf(h), fmt.Sprintf("%s %s was written (%s)", h.Kind.Kind, h.Key.Name, h.Verb)
	if h.Kind == canaryKind {
		of = nil
		if r := l.ByUID[h.New.UID()]; r != nil && h.Subresource == "" {
			of = append(of, r)
		}
	}
	if len(of) != 1 || isDeleting(of[0]) || h.Kind != canaryKind && l.targetJustReleased(of[0]) {
		return nil
	}
	if owner := actors.ControllerOf(h.New.Meta()); owner.Kind == canaryKind.Kind && owner.UID != of[0].UID {
		return nil // written for a deleted Canary with the same objects, whose deletion the process may not have observed
	}
	return []oracle.Effect{{Release: of[0].Name(), What: what, SuspendedSince: of[0].SuspendedSince}}
}

// waits are the Canaries that wait, for I26.
type waits struct{ *ledger }

// explainedNoRequeue is the part of I26 about reconciliations: if nothing requeues the release, its status reports what it
// waits for.
func (c *waits) explainedNoRequeue(event any) {
	h, ok := event.(sim.Reconciled)
	if !ok || h.Err != nil || h.Skipped || h.Result.RequeueAfter > 0 {
		return
	}
	r := c.ByName[h.Release]
	if r == nil || !isActive(r.phase()) && r.phase() != flaggerv1.CanaryPhaseInitializing || r.canary.Spec.Suspend || isDeleting(r) {
		return
	}
	// A write or a pending answer requeues the release; and the process may have observed an older state.
	if r.statusChanged.After(c.OldestView()) || c.processState(h.Instance).inFlight[r.UID] != nil || r.lastTouched(c.ledger).After(c.OldestView()) {
		return
	}
	if !isExplainedWait(r.status) {
		c.Violate("I26", r.Name(), "in phase %s nothing requeues it, and its status names no gate that a user or another event opens", r.phase())
	}
}

// isExplainedWait reports whether a status names a gate with its opener, or a condition that a user has to resolve.
func isExplainedWait(s *flaggerv1.CanaryStatus) bool {
	for _, condition := range s.Conditions {
		if condition.Type == flaggerv1.ConditionBlocked {
			return true
		}
	}
	return s.Serin != nil && slices.ContainsFunc(s.Serin.Gates, func(g flaggerv1.GateStatus) bool { return g.Verdict != "pass" && g.Opener != "" })
}

// lastTouched returns when an object of the release was last written.
func (r *record) lastTouched(l *ledger) time.Time {
	last := r.changed
	for _, at := range r.objectKeys() {
		if w := l.Objects[at]; w != nil && w.Last.After(last) {
			last = w.Last
		}
	}
	return last
}

// waiting returns the facts for I26.
func (c *waits) waiting() []oracle.Waiting {
	var out []oracle.Waiting
	for _, r := range c.All {
		if !r.Gone() && !r.canary.Spec.Suspend && !isDeleting(r) && !isEnded(r.phase()) && len(c.precedingCanaries(r)) == 0 {
			out = append(out, oracle.Waiting{Release: r.Name(), Phase: string(r.phase()), Explained: isExplainedWait(r.status)})
		}
	}
	return out
}
