package canary

import (
	"slices"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// consistentStatus is I13.
type consistentStatus struct {
	*ledger
	oracle.EventsOnly
}

// graph says which phases may follow which. Each may follow itself, and Terminating every one.
var graph = map[flaggerv1.CanaryPhase][]flaggerv1.CanaryPhase{
	"":                                {flaggerv1.CanaryPhaseInitializing},
	flaggerv1.CanaryPhaseInitializing: {flaggerv1.CanaryPhaseInitialized},
	flaggerv1.CanaryPhaseInitialized:  {flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing},
	flaggerv1.CanaryPhaseSucceeded:    {flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing},
	flaggerv1.CanaryPhaseFailed: {
		flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhasePromoting, // a promotion that goes on
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

func (c *consistentStatus) Observe(event any) {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || !h.of.mine() {
		return
	}
	r, before, after := h.of, &h.before.Status, &h.after.Status
	if next, known := graph[before.Phase]; known && before.Phase != after.Phase && after.Phase != flaggerv1.CanaryPhaseTerminating && !slices.Contains(next, after.Phase) {
		c.Violate("I13", r.Name(), "the phase went from %q to %q", before.Phase, after.Phase)
	}
	ends := before.Phase != after.Phase && (resting(after.Phase) || after.Phase == flaggerv1.CanaryPhaseFinalising || after.Phase == flaggerv1.CanaryPhaseTerminating)
	// Nothing counts before the approval, but users may have written a number.
	starts := before.Phase == flaggerv1.CanaryPhaseWaiting && after.Phase == flaggerv1.CanaryPhaseProgressing
	if h.begins == nil && !ends && !starts && (after.FailedChecks < before.FailedChecks || after.Iterations < before.Iterations) {
		c.Violate("I13", r.Name(), "in phase %s, without a new run, the failed checks went from %d to %d and the iterations from %d to %d",
			after.Phase, before.FailedChecks, after.FailedChecks, before.Iterations, after.Iterations)
	}
	for i := range after.Conditions {
		c.condition(h, &after.Conditions[i])
	}
}

func (c *consistentStatus) condition(h canaryWritten, now *flaggerv1.CanaryCondition) {
	if now.ObservedGeneration > h.before.Generation {
		c.Violate("I13", h.of.Name(), "condition %s is about generation %d, but what was decided on had %d", now.Type, now.ObservedGeneration, h.before.Generation)
	}
	for i := range h.before.Status.Conditions {
		was := &h.before.Status.Conditions[i]
		if was.Type != now.Type {
			continue
		}
		if now.ObservedGeneration < was.ObservedGeneration {
			c.Violate("I13", h.of.Name(), "condition %s went from generation %d back to %d", now.Type, was.ObservedGeneration, now.ObservedGeneration)
		}
		if was.Status == now.Status && !was.LastTransitionTime.Equal(&now.LastTransitionTime) {
			c.Violate("I13", h.of.Name(), "condition %s stayed %s, but its transition moved from %s to %s", now.Type, now.Status, was.LastTransitionTime, now.LastTransitionTime)
		}
	}
}

// rollbackToStable is I23.
type rollbackToStable struct {
	*ledger
	oracle.EventsOnly
}

func (c *rollbackToStable) Observe(event any) {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() {
		return
	}
	r, before, after := h.of, &h.before.Status, &h.after.Status
	if !r.mine() {
		return
	}
	if after.LastPromotedSpec != before.LastPromotedSpec && before.Phase == after.Phase {
		c.recorded(h)
	}
	if h.begins != nil && resting(before.Phase) {
		c.tried(h)
	}
	if r.run == nil || !moving(before.Phase) || after.Phase != flaggerv1.CanaryPhaseFailed {
		return
	}
	failedPromotion := after.Serin != nil && after.Serin.Promoted == "none" || after.CanaryWeight == 100 || r.providerless() && before.Phase == flaggerv1.CanaryPhasePromoting
	touched := r.primary.foreign.After(r.run.began) || r.primary.removed.After(r.run.began) || r.primary.created.After(r.run.began)
	if !failedPromotion && !touched && r.run.primary != "" && r.primary.content != r.run.primary && c.OldestView().After(r.run.promoted) {
		c.Violate("I23", r.Name(), "it was taken back, but the primary runs %s, and before the run it ran %s", r.primary.content, r.run.primary)
	}
}

// recorded: after a promotion that failed, what the primary has is promoted as soon as it is ready.
func (c *rollbackToStable) recorded(h canaryWritten) {
	r, before := h.of, &h.before.Status
	// Someone may have written the phase since.
	unknown := r.orphaned || before.Serin != nil && before.Serin.Promoted == "none"
	switch {
	case !unknown:
		c.Violate("I23", r.Name(), "lastPromotedSpec changed in phase %s", before.Phase)
	case !r.primary.ready.Ever(c.OldestView()):
		c.Violate("I23", r.Name(), "lastPromotedSpec changed in phase %s, but the primary has not been ready for %s", before.Phase, c.Lag)
	}
}

// tried: what was rolled back is not tried again by itself.
func (c *rollbackToStable) tried(h canaryWritten) {
	r := h.of
	if before := h.before.Status.Phase; before != flaggerv1.CanaryPhaseFailed || r.failed == "" {
		return
	}
	if !slices.Contains(h.begins.contents, r.failed) || len(h.begins.contents) > 1 || !r.failedAt.After(r.target.changed()) {
		return
	}
	if !r.told("retry", time.Time{}) && r.target.foreign.Before(r.failedAt) {
		c.Violate("I23", r.Name(), "%s, which was taken back, is tried again, and nobody asked for it", r.failed)
	}
}

// changed is when it last began to run something else.
func (p *workloadState) changed() time.Time { return p.contents.Changed() }

// commandsOnce is I24.
type commandsOnce struct {
	*ledger
	oracle.EventsOnly
	obeyed  map[string]time.Time
	aborted map[string]bool
}

func (c *commandsOnce) Observe(event any) {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || h.after.Status.Serin == nil {
		return
	}
	if c.obeyed == nil {
		c.obeyed, c.aborted = map[string]time.Time{}, map[string]bool{}
	}
	r, now, was := h.of, h.after.Status.Serin, ""
	if s := h.before.Status.Serin; s != nil {
		was = s.Command
	}
	if now.Command != "" && now.Command != was {
		key := string(r.UID) + " " + now.Command
		verb, run, _ := strings.Cut(now.Command, "@")
		switch {
		case h.begins != nil && run != now.Run: // of the run before, which no one carries out any more
		case !c.obeyed[key].IsZero() && r.mine() && !r.tampered.After(c.obeyed[key]):
			c.Violate("I24", r.Name(), "%s was carried out a second time", now.Command)
		case !slices.ContainsFunc(r.commands, func(c command) bool { return c.verb == verb && c.run == run }):
			c.Violate("I24", r.Name(), "%s was carried out, and nobody had said it", now.Command)
		}
		c.obeyed[key] = c.Now()
		if verb == "abort" && h.after.Status.Serin.Run == run {
			c.aborted[string(r.UID)+" "+run] = true
		}
	}
	before, after := h.before.Status.Phase, h.after.Status.Phase
	aborted := c.aborted[string(r.UID)+" "+now.Run] && h.begins == nil
	if aborted && r.mine() && before != after && (after == flaggerv1.CanaryPhasePromoting || after == flaggerv1.CanaryPhaseFinalising || after == flaggerv1.CanaryPhaseSucceeded) {
		c.Violate("I24", r.Name(), "run %s was aborted, and went from %s to %s", now.Run, before, after)
	}
}

// suspension is I25.
type suspension struct {
	*ledger
	oracle.EventsOnly
}

func (c *suspension) Observe(event any) {
	h, ok := event.(oracle.Write)
	if !ok || !h.BySerin {
		return
	}
	if h.Kind == canaryKind {
		if r := c.ByUID[h.New.UID()]; r != nil && h.Subresource == "" && c.still(r) {
			c.Violate("I25", r.Name(), "it is suspended since %s, and its metadata was written", c.since(r.Suspended))
		}
		return
	}
	of := c.releasesOf(h)
	for _, r := range of {
		if len(of) == 1 && c.still(r) {
			c.Violate("I25", r.Name(), "it is suspended since %s, and %s %s was written (%s)", c.since(r.Suspended), h.Kind.Kind, h.Key.Name, h.Verb)
		}
	}
}

// still is true once every process must know that the release is suspended.
func (c *suspension) still(r *record) bool {
	return !r.Suspended.IsZero() && r.Suspended.Before(c.OldestView()) && !leaving(r)
}

// explainedWaits is I26.
type explainedWaits struct {
	*ledger
}

// see: a reconciliation that leaves the release waiting without a moment to wake at has said what it waits for.
func (c *explainedWaits) Observe(event any) {
	h, ok := event.(sim.Reconciled)
	if !ok || h.Err != nil || h.Result.RequeueAfter > 0 {
		return
	}
	r := c.ByName[h.Release]
	if r == nil || !moving(r.phase()) && r.phase() != flaggerv1.CanaryPhaseInitializing || r.canary.Spec.Suspend || leaving(r) {
		return
	}
	// A write, or an answer that is out, brings the release back; and a moment ago the process may have seen something else.
	if r.moved.After(c.OldestView()) || c.life(h.Instance).out[r.UID] != nil || r.lastTouched(c.ledger).After(c.OldestView()) {
		return
	}
	if !waits(r.status) {
		c.Violate("I26", r.Name(), "in phase %s nothing will bring it back, and its status says no gate that somebody else opens", r.phase())
	}
}

// waits is true of a status that names a gate which someone opens, or a condition that a user has to mend.
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

func (c *explainedWaits) Finish() {
	for _, r := range c.All {
		if r.Gone() || r.canary.Spec.Suspend || leaving(r) || resting(r.phase()) || len(c.rivals(r)) > 0 {
			continue
		}
		if !waits(r.status) {
			c.Violate("I26", r.Name(), "everything is over, it is in phase %q, and its status says nothing that it waits for", r.phase())
		}
	}
}
