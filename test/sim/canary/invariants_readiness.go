package canary

import (
	"slices"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
)

// patient is I32.
type patient struct {
	*ledger
	without
}

func (c *patient) see(happening any) {
	h, ok := happening.(moved)
	if !ok || h.of == nil || !h.ours || !h.status() || h.begins != nil || h.of.run == nil || !h.of.mine() {
		return
	}
	r, before, after := h.of, &h.before.Status, &h.after.Status
	if before.Serin != nil && before.Serin.Intent == "rollback" {
		return // it was decided before
	}
	intended := after.Serin != nil && after.Serin.Intent == "rollback"
	if c.pruning {
		// There the number of failed checks stands for the decision.
		intended = moving(after.Phase) && after.FailedChecks > before.FailedChecks && c.failing(h) == nil
	}
	switch failed := after.Phase == flaggerv1.CanaryPhaseFailed && moving(before.Phase); {
	case intended && !c.otherwise(h):
		c.hasty(h, &r.target, r.run.began, "rolled back")
	case failed && !intended && !c.otherwise(h) && !r.run.promoted.IsZero():
		c.hasty(h, &r.primary, r.run.promoted, "given up with the primary not ready")
	}
}

// otherwise is true of a rollback that has another reason than the readiness of a copy.
func (c *patient) otherwise(h moved) bool {
	r := h.of
	asked := slices.ContainsFunc(c.answersOf(h.Actor, r), func(q *question) bool {
		return q.hook != nil && q.hook.Hook.Type == flaggerv1.RollbackHook && q.yes()
	})
	threshold := slices.ContainsFunc(c.wishes(r), func(d *wish) bool { return h.before.Status.FailedChecks >= d.threshold })
	return asked || threshold || r.told("abort", r.run.began.Add(-c.delta))
}

// hasty: asked is when the copy was asked to change.
func (c *patient) hasty(h moved, p *pods, asked time.Time, what string) {
	r, last := h.of, p.progress(c.then())
	slack := 200 * time.Millisecond // it was asked a call before the status said so
	if c.slow {
		slack = 30 * time.Second
	}
	if asked = asked.Add(-slack); asked.After(last) {
		last = asked
	}
	deadline := time.Duration(0)
	for i, d := range c.wishes(r) {
		if i == 0 || d.deadline < deadline {
			deadline = d.deadline
		}
	}
	switch {
	case p.version == nil, p.isReady(c.then()): // I4 is about those
	case p.givesUp, p.gaveUp.After(c.then()), p.removed.After(c.then()), p.created.After(c.then()):
	case !c.steady(last):
	case c.now().Sub(last) < deadline-time.Millisecond:
		c.violate("I32", r, "it is %s %s after its last progress at %s, and the deadline is %s", what, c.now().Sub(last), c.since(last), deadline)
	}
}

// failing is a question whose answer counts against the release.
func (c *patient) failing(h moved) *question {
	return (&judgedOnce{ledger: c.ledger}).failing(h)
}

// reinstated is I33.
type reinstated struct {
	*ledger
}

// see: a pass that saw the primary ready has given the users back.
func (c *reinstated) see(happening any) {
	h, ok := happening.(sim.Passed)
	if !ok || h.Err != nil {
		return
	}
	r := c.named[h.Release]
	if r != nil && r.run != nil && c.undisturbed(r) && r.primary.isReady(c.then()) && r.orphaned && analysing(r.phase()) && !r.run.unearned &&
		r.run.promoted.IsZero() && r.run.began.Before(c.then()) && r.status.Serin != nil && r.status.Serin.Promoted == "none" {
		c.violate("I33", r, "the status says that the primary runs nothing, although it has been ready since %s", c.since(r.primary.readyAt))
	}
	if r == nil || r.run == nil || !c.undisturbed(r) || !r.primary.isReady(c.then()) || !r.target.changed().Before(c.then()) || r.route.canary == 0 || r.route.touched.After(c.then()) {
		return
	}
	switch phase := r.phase(); {
	case analysing(phase) && r.run.unearned && r.run.began.Before(c.then()):
		if most := c.firstStep(r); r.route.canary > most {
			c.violate("I33", r, "the new revision has %d %% of the traffic and has earned none of it, although the primary has been ready since %s",
				r.route.canary, c.since(r.primary.readyAt))
		}
	case (phase == flaggerv1.CanaryPhaseFailed || phase == flaggerv1.CanaryPhaseWaiting) && r.orphaned && !slices.Contains(r.run.contents, r.target.content):
		c.violate("I33", r, "a revision that nobody analysed has %d %% of the traffic, although the primary has been ready since %s",
			r.route.canary, c.since(r.primary.readyAt))
	}
}

// undisturbed is true of a release that nobody else holds or has just written to.
func (c *reinstated) undisturbed(r *record) bool {
	return r.mine() && c.owns(r) && !leaving(r) && !r.blocked() && r.suspended.IsZero() && r.moved.Before(c.then()) && r.changed.Before(c.then()) &&
		!r.route.foreign.After(r.run.began) && !r.providerless() && r.route.found
}

// firstStep is the most that a revision has before anything about it was checked.
func (c *reinstated) firstStep(r *record) int {
	most := 0
	for _, d := range c.wishes(r) {
		switch {
		case d.weighted:
			most = max(most, d.after(0))
		case d.ab:
			most = 100
		}
	}
	return most
}

func (c *reinstated) end() {
	for _, r := range c.all {
		if !r.deleted.IsZero() || leaving(r) || r.canary.Spec.Suspend || r.blocked() || !c.owns(r) || !r.mine() || r.run == nil || r.misled {
			continue
		}
		analysed := slices.Contains(r.run.contents, r.primary.content) && r.primary.content == r.target.content
		recorded := r.status.Serin != nil && r.status.Serin.Unfinished == nil && r.route.canary == 0 // after a later run that was rolled back
		if r.phase() == flaggerv1.CanaryPhaseFailed && r.orphaned && analysed && r.primary.ready && !recorded {
			c.violate("I33", r, "its promotion failed, the primary is ready with what was analysed, and the promotion was not completed")
		}
	}
}
