package canary

import (
	"slices"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// progressDeadline is I32.
type progressDeadline struct {
	*ledger
	oracle.EventsOnly
}

func (c *progressDeadline) Observe(event any) {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || !h.status() || h.begins != nil || h.of.run == nil || !h.of.mine() {
		return
	}
	r, before, after := h.of, &h.before.Status, &h.after.Status
	if before.Serin != nil && before.Serin.Intent == "rollback" {
		return // it was decided before
	}
	intended := after.Serin != nil && after.Serin.Intent == "rollback"
	switch failed := after.Phase == flaggerv1.CanaryPhaseFailed && moving(before.Phase); {
	case intended && !c.otherwise(h):
		c.hasty(h, &r.target, r.run.began, "rolled back")
	case failed && !intended && !c.otherwise(h) && !r.run.promoted.IsZero():
		c.hasty(h, &r.primary, r.run.promoted, "failed because the primary is not ready")
	}
}

// otherwise is true of a rollback that has another reason than the readiness of a copy.
func (c *progressDeadline) otherwise(h canaryWritten) bool {
	r := h.of
	asked := slices.ContainsFunc(c.answersOf(h.Actor, r), func(q *question) bool {
		return q.hook != nil && q.hook.Hook.Type == flaggerv1.RollbackHook && q.yes()
	})
	threshold := slices.ContainsFunc(c.expectations(r), func(d *expectation) bool { return h.before.Status.FailedChecks >= d.threshold })
	return asked || threshold || r.commanded("abort", r.run.began.Add(-c.Lag))
}

// hasty: asked is when the copy was asked to change.
func (c *progressDeadline) hasty(h canaryWritten, p *workloadState, asked time.Time, what string) {
	r, last := h.of, p.progress(c.OldestView())
	slack := 200 * time.Millisecond // it was asked a call before the status said so
	if c.SlowCalls {
		slack = 30 * time.Second
	}
	if asked = asked.Add(-slack); asked.After(last) {
		last = asked
	}
	deadline := time.Duration(0)
	for i, d := range c.expectations(r) {
		if i == 0 || d.deadline < deadline {
			deadline = d.deadline
		}
	}
	switch {
	case p.version == nil, p.ready.Always(c.OldestView()): // I4 is about those
	case p.givesUp, p.gaveUp.After(c.OldestView()), p.removed.After(c.OldestView()), p.created.After(c.OldestView()):
	case !c.Clocks.Consistent(last):
	case c.Now().Sub(last) < deadline-time.Millisecond:
		c.Violate("I32", r.Name(), "it is %s %s after its last progress at %s, and the deadline is %s", what, c.Now().Sub(last), c.since(last), deadline)
	}
}

// failedPromotionRecovery is I33.
type failedPromotionRecovery struct {
	*ledger
}

// see: a reconciliation that saw the primary ready has given the users back.
func (c *failedPromotionRecovery) Observe(event any) {
	h, ok := event.(sim.Reconciled)
	if !ok || h.Err != nil {
		return
	}
	r := c.ByName[h.Release]
	if r != nil && r.run != nil && c.undisturbed(r) && r.primary.ready.Always(c.OldestView()) && r.orphaned && analysing(r.phase()) && !r.run.unearned &&
		r.run.promoted.IsZero() && r.run.began.Before(c.OldestView()) && r.status.Serin != nil && r.status.Serin.Promoted == "none" {
		c.Violate("I33", r.Name(), "the status says that the primary runs nothing, although it has been ready since %s", c.since(r.primary.ready.Since))
	}
	if r == nil || r.run == nil || !c.undisturbed(r) || !r.primary.ready.Always(c.OldestView()) || !r.target.changed().Before(c.OldestView()) || r.route.canary == 0 || r.route.touched.After(c.OldestView()) {
		return
	}
	switch phase := r.phase(); {
	case analysing(phase) && r.run.unearned && r.run.began.Before(c.OldestView()):
		if most := c.firstStep(r); r.route.canary > most {
			c.Violate("I33", r.Name(), "the new revision has %d %% of the traffic and has earned none of it, although the primary has been ready since %s",
				r.route.canary, c.since(r.primary.ready.Since))
		}
	case (phase == flaggerv1.CanaryPhaseFailed || phase == flaggerv1.CanaryPhaseWaiting) && r.orphaned && !slices.Contains(r.run.contents, r.target.content):
		c.Violate("I33", r.Name(), "a revision that was not analysed has %d %% of the traffic, although the primary has been ready since %s",
			r.route.canary, c.since(r.primary.ready.Since))
	}
}

// undisturbed is true of a release that no one else blocks or has just written to.
func (c *failedPromotionRecovery) undisturbed(r *record) bool {
	return r.mine() && c.owns(r) && !leaving(r) && !r.blocked() && r.Suspended.IsZero() && r.moved.Before(c.OldestView()) && r.changed.Before(c.OldestView()) &&
		!r.route.foreign.After(r.run.began) && !r.providerless() && r.route.found
}

// firstStep is the most that a revision has before anything about it was checked.
func (c *failedPromotionRecovery) firstStep(r *record) int {
	most := 0
	for _, d := range c.expectations(r) {
		switch {
		case d.weighted:
			most = max(most, d.after(0))
		case d.ab:
			most = 100
		}
	}
	return most
}

func (c *failedPromotionRecovery) Finish() {
	for _, r := range c.All {
		if r.Gone() || leaving(r) || r.canary.Spec.Suspend || r.blocked() || !c.owns(r) || !r.mine() || r.run == nil || r.misled {
			continue
		}
		analysed := slices.Contains(r.run.contents, r.primary.content) && r.primary.content == r.target.content
		recorded := r.status.Serin != nil && r.status.Serin.Unfinished == nil && r.route.canary == 0 // after a later run that was rolled back
		if r.phase() == flaggerv1.CanaryPhaseFailed && r.orphaned && analysed && r.primary.ready.True && !recorded {
			c.Violate("I33", r.Name(), "its promotion failed, the primary is ready with what was analysed, and the promotion was not completed")
		}
	}
}
