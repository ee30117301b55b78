package canary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// graph says which phases may follow which. Each may follow itself, and Terminating every one.
var graph = map[flaggerv1.CanaryPhase][]flaggerv1.CanaryPhase{
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

// statusChanges are facts for I13.
func (l *ledger) statusChanges(event any) []oracle.StatusChange {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || !h.of.mine() {
		return nil
	}
	before, after := &h.before.Status, &h.after.Status
	change := oracle.StatusChange{Release: h.of.Name(), From: string(before.Phase), To: string(after.Phase), Generation: h.before.Generation}
	next, known := graph[before.Phase]
	for _, phase := range next {
		change.Next = append(change.Next, string(phase))
	}
	if !known {
		change.Next = append(change.Next, change.To)
	}
	change.Next = append(change.Next, string(flaggerv1.CanaryPhaseTerminating))
	for _, condition := range after.Conditions {
		change.Observed = max(change.Observed, condition.ObservedGeneration)
	}
	return []oracle.StatusChange{change}
}

// statusHistory is the part of I13 about counters and conditions.
func (l *ledger) statusHistory(event any) {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || !h.of.mine() {
		return
	}
	r, before, after := h.of, &h.before.Status, &h.after.Status
	ends := before.Phase != after.Phase && (resting(after.Phase) || after.Phase == flaggerv1.CanaryPhaseFinalising || after.Phase == flaggerv1.CanaryPhaseTerminating)
	// Nothing counts before the approval, but users may have written a number.
	starts := before.Phase == flaggerv1.CanaryPhaseWaiting && after.Phase == flaggerv1.CanaryPhaseProgressing
	if h.begins == nil && !ends && !starts && (after.FailedChecks < before.FailedChecks || after.Iterations < before.Iterations) {
		l.Violate("I13", r.Name(), "in phase %s, without a new run, the failed checks went from %d to %d and the iterations from %d to %d",
			after.Phase, before.FailedChecks, after.FailedChecks, before.Iterations, after.Iterations)
	}
	for i := range after.Conditions {
		l.conditionHistory(h, &after.Conditions[i])
	}
}

func (l *ledger) conditionHistory(h canaryWritten, now *flaggerv1.CanaryCondition) {
	for i := range h.before.Status.Conditions {
		was := &h.before.Status.Conditions[i]
		if was.Type != now.Type {
			continue
		}
		if now.ObservedGeneration < was.ObservedGeneration {
			l.Violate("I13", h.of.Name(), "condition %s went from generation %d back to %d", now.Type, was.ObservedGeneration, now.ObservedGeneration)
		}
		if was.Status == now.Status && !was.LastTransitionTime.Equal(&now.LastTransitionTime) {
			l.Violate("I13", h.of.Name(), "condition %s stayed %s, but its transition moved from %s to %s", now.Type, now.Status, was.LastTransitionTime, now.LastTransitionTime)
		}
	}
}

// stableOutcomes are facts for I23.
func (l *ledger) stableOutcomes(event any) []oracle.Outcome {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || !h.of.mine() {
		return nil
	}
	r, before, after := h.of, &h.before.Status, &h.after.Status
	if r.run == nil || !moving(before.Phase) || after.Phase != flaggerv1.CanaryPhaseFailed {
		return nil
	}
	failedPromotion := after.Serin != nil && after.Serin.Promoted == "none" || after.CanaryWeight == 100 || r.providerless() && before.Phase == flaggerv1.CanaryPhasePromoting
	touched := r.primary.foreign.After(r.run.began) || r.primary.removed.After(r.run.began) || r.primary.created.After(r.run.began)
	return []oracle.Outcome{{
		Release: r.Name(), What: "it was rolled back", Before: r.run.primary, Stable: r.primary.content,
		RolledBack: !failedPromotion && !touched && r.run.primary != "" && l.OldestView().After(r.run.promoted),
	}}
}

// failedRevisions is the part of I23 about revisions that failed: they are not recorded as promoted, nor released again.
func (l *ledger) failedRevisions(event any) {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || !h.of.mine() {
		return
	}
	if before, after := &h.before.Status, &h.after.Status; after.LastPromotedSpec != before.LastPromotedSpec && before.Phase == after.Phase {
		l.recorded(h)
	}
	if h.begins != nil && resting(h.before.Status.Phase) {
		l.tried(h)
	}
}

// recorded: after a promotion that failed, what the primary has is promoted as soon as it is ready.
func (l *ledger) recorded(h canaryWritten) {
	r, before := h.of, &h.before.Status
	// Someone may have written the phase since.
	unknown := r.orphaned || before.Serin != nil && before.Serin.Promoted == "none"
	switch {
	case !unknown:
		l.Violate("I23", r.Name(), "lastPromotedSpec changed in phase %s", before.Phase)
	case !r.primary.ready.Ever(l.OldestView()):
		l.Violate("I23", r.Name(), "lastPromotedSpec changed in phase %s, but the primary has not been ready for %s", before.Phase, l.Lag)
	}
}

// tried: a revision that was rolled back is not released again automatically.
func (l *ledger) tried(h canaryWritten) {
	r := h.of
	if before := h.before.Status.Phase; before != flaggerv1.CanaryPhaseFailed || r.failed == "" {
		return
	}
	if !slices.Contains(h.begins.contents, r.failed) || len(h.begins.contents) > 1 || !r.failedAt.After(r.target.changed()) {
		return
	}
	if !r.commanded("retry", time.Time{}) && r.target.foreign.Before(r.failedAt) {
		l.Violate("I23", r.Name(), "%s, which was rolled back, is released again, although no user requested it", r.failed)
	}
}

// changed is when it last began to run something else.
func (p *workloadState) changed() time.Time { return p.contents.Changed() }

// obeyedCommands are the commands that the statuses of a run record as carried out.
type obeyedCommands struct {
	*ledger

	obeyed  map[string]time.Time
	aborted map[string]bool
}

// observe is the part of I24 about commands: each is carried out once, and only if a user gave it.
func (c *obeyedCommands) observe(event any) {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || h.after.Status.Serin == nil {
		return
	}
	r, now, was := h.of, h.after.Status.Serin, ""
	if s := h.before.Status.Serin; s != nil {
		was = s.Command
	}
	if now.Command != "" && now.Command != was {
		key := string(r.UID) + " " + now.Command
		verb, run, _ := strings.Cut(now.Command, "@")
		switch {
		case h.begins != nil && run != now.Run: // of the previous run, and no longer carried out
		case !c.obeyed[key].IsZero() && r.mine() && !r.tampered.After(c.obeyed[key]):
			c.Violate("I24", r.Name(), "%s was carried out a second time", now.Command)
		case !slices.ContainsFunc(r.commands, func(c command) bool { return c.verb == verb && c.run == run }):
			c.Violate("I24", r.Name(), "%s was carried out, although no user gave it", now.Command)
		}
		c.obeyed[key] = c.Now()
		if verb == "abort" && h.after.Status.Serin.Run == run {
			c.aborted[string(r.UID)+" "+run] = true
		}
	}
}

// promotions are facts for I24.
func (c *obeyedCommands) promotions(event any) []oracle.Outcome {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || h.after.Status.Serin == nil || h.begins != nil || !h.of.mine() {
		return nil
	}
	before, after, run := h.before.Status.Phase, h.after.Status.Phase, h.after.Status.Serin.Run
	promoted := after == flaggerv1.CanaryPhasePromoting || after == flaggerv1.CanaryPhaseFinalising || after == flaggerv1.CanaryPhaseSucceeded
	if before == after || !promoted {
		return nil
	}
	return []oracle.Outcome{{
		Release: h.of.Name(), What: fmt.Sprintf("run %s went from %s to %s", run, before, after), Aborted: c.aborted[string(h.of.UID)+" "+run],
	}}
}

// effects are facts for I25.
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
	if len(of) != 1 || leaving(of[0]) {
		return nil
	}
	return []oracle.Effect{{Release: of[0].Name(), What: what, Suspended: of[0].Suspended}}
}

// explainedSleep is the part of I26 about reconciliations: one after which nothing reconciles the release again has recorded
// what it waits for.
func (l *ledger) explainedSleep(event any) {
	h, ok := event.(sim.Reconciled)
	if !ok || h.Err != nil || h.Result.RequeueAfter > 0 {
		return
	}
	r := l.ByName[h.Release]
	if r == nil || !moving(r.phase()) && r.phase() != flaggerv1.CanaryPhaseInitializing || r.canary.Spec.Suspend || leaving(r) {
		return
	}
	// A write, or an answer that is out, brings the release back; and a moment ago the process may have seen something else.
	if r.moved.After(l.OldestView()) || l.life(h.Instance).out[r.UID] != nil || r.lastTouched(l).After(l.OldestView()) {
		return
	}
	if !waits(r.status) {
		l.Violate("I26", r.Name(), "in phase %s nothing will reconcile it again, and its status names no gate that someone else opens", r.phase())
	}
}

// waits is true of a status that names a gate which someone opens, or a condition that a user has to resolve.
func waits(s *flaggerv1.CanaryStatus) bool {
	for _, condition := range s.Conditions {
		if condition.Type == flaggerv1.ConditionBlocked {
			return true
		}
	}
	return s.Serin != nil && slices.ContainsFunc(s.Serin.Gates, func(g flaggerv1.GateStatus) bool { return g.Verdict != "pass" && g.Opener != "" })
}

// lastTouched is when an object of the release was last changed.
func (r *record) lastTouched(l *ledger) time.Time {
	last := r.changed
	for _, at := range r.places() {
		if w := l.Objects[at]; w != nil && w.Last.After(last) {
			last = w.Last
		}
	}
	return last
}

// waiting are facts for I26.
func (l *ledger) waiting() []oracle.Waiting {
	var out []oracle.Waiting
	for _, r := range l.All {
		if !r.Gone() && !r.canary.Spec.Suspend && !leaving(r) && !resting(r.phase()) && len(l.rivals(r)) == 0 {
			out = append(out, oracle.Waiting{Release: r.Name(), Phase: string(r.phase()), Explained: waits(r.status)})
		}
	}
	return out
}
