package canary

import (
	"slices"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// progressDeadline is I32.
type progressDeadline struct {
	*ledger
	oracle.EventsOnly
}

func (c *progressDeadline) Observe(event any) {
	h, ok := event.(canaryWritten)
	if !ok || !h.StatusReported() || h.newRun != nil || h.Record.run == nil || !h.Record.statusBySerin() {
		return
	}
	r, before, after := h.Record, &h.Before.Status, &h.After.Status
	if before.Serin != nil && before.Serin.Intent == "rollback" {
		return // the rollback was decided earlier
	}
	intended := after.Serin != nil && after.Serin.Intent == "rollback"
	switch failed := after.Phase == flaggerv1.CanaryPhaseFailed && isActive(before.Phase); {
	case intended && !c.hasOtherCause(h):
		c.checkDeadline(h, &r.target, r.run.began, "rolled back")
	case failed && !intended && !c.hasOtherCause(h) && !r.run.promotedAt.IsZero():
		c.checkDeadline(h, &r.primary, r.run.promotedAt, "failed because the primary is not ready")
	}
}

// hasOtherCause reports whether a rollback has another reason than the readiness of a workload.
func (c *progressDeadline) hasOtherCause(h canaryWritten) bool {
	r := h.Record
	requested := slices.ContainsFunc(c.answersOf(h.Actor, r), func(q *query) bool {
		return q.hook != nil && q.hook.Hook.Type == flaggerv1.RollbackHook && q.approved()
	})
	threshold := slices.ContainsFunc(c.expectations(r), func(d *expectation) bool { return h.Before.Status.FailedChecks >= d.threshold })
	return requested || threshold || c.isReplaced(r) || r.hasCommand("abort", r.run.began.Add(-c.Lag))
}

// checkDeadline reports a violation if a workload was given less time than its deadline. changed is when it was last changed.
func (c *progressDeadline) checkDeadline(h canaryWritten, p *workloadState, changed time.Time, what string) {
	r, last := h.Record, p.lastProgress(c.OldestView())
	slack := 200 * time.Millisecond // it was changed one call before the status recorded it
	if c.SlowCalls {
		slack = 30 * time.Second
	}
	if changed = changed.Add(-slack); changed.After(last) {
		last = changed
	}
	deadline := c.shortestDeadline(r)
	switch {
	case p.version == nil, p.ready.AlwaysSince(c.OldestView()): // checked by I4
	case p.exceedsDeadline, p.lastExceededDeadline.After(c.OldestView()), p.removed.After(c.OldestView()), p.created.After(c.OldestView()):
	case !c.Clocks.Consistent(last):
	case last.Equal(p.readinessLost) && c.Now().Sub(last) >= deadline-cluster.EndpointsDelay: // its endpoints were gone before its readiness
	case c.Now().Sub(last) < deadline-time.Millisecond:
		c.Violate("I32", r.Name(), "it is %s %s after its last progress at %s, and the deadline is %s", what, c.Now().Sub(last), c.formatTime(last), deadline)
	}
}

// failedPromotionRecovery is I33.
type failedPromotionRecovery struct {
	*ledger
}

// Observe implements oracle.Checker: after a reconciliation that observed a ready primary, traffic has returned to it.
func (c *failedPromotionRecovery) Observe(event any) {
	h, ok := event.(sim.Reconciled)
	if !ok || h.Err != nil {
		return
	}
	r := c.ByName[h.Release]
	if r != nil && r.run != nil && c.isUndisturbed(r) && r.primary.ready.AlwaysSince(c.OldestView()) && r.promotionFailed && isAnalysing(r.phase()) && !r.run.beganWithTraffic &&
		r.run.promotedAt.IsZero() && r.run.began.Before(c.OldestView()) && r.status.Serin != nil && r.status.Serin.Promoted == "none" {
		c.Violate("I33", r.Name(), "the status reports that the primary runs no promoted revision, although it has been ready since %s", c.formatTime(r.primary.ready.Since))
	}
	if r == nil || r.run == nil || !c.isUndisturbed(r) || !r.primary.ready.AlwaysSince(c.OldestView()) || !r.target.contentChanged().Before(c.OldestView()) || r.route.canary == 0 || r.route.changed.After(c.OldestView()) {
		return
	}
	switch phase := r.phase(); {
	case isAnalysing(phase) && r.run.beganWithTraffic && r.run.began.Before(c.OldestView()):
		if most := c.maxFirstStep(r); r.route.canary > most {
			c.Violate("I33", r.Name(), "the new revision has %d %% of the traffic, which no analysis permits, although the primary has been ready since %s",
				r.route.canary, c.formatTime(r.primary.ready.Since))
		}
	case (phase == flaggerv1.CanaryPhaseFailed || phase == flaggerv1.CanaryPhaseWaiting) && r.promotionFailed && !slices.Contains(r.run.targetContents, r.target.content):
		c.Violate("I33", r.Name(), "a revision that was not analysed has %d %% of the traffic, although the primary has been ready since %s",
			r.route.canary, c.formatTime(r.primary.ready.Since))
	}
}

// isUndisturbed reports whether a release is neither blocked nor recently written by another actor.
func (c *failedPromotionRecovery) isUndisturbed(r *record) bool {
	return r.statusBySerin() && c.ownsTarget(r) && !isDeleting(r) && !r.isBlocked() && r.SuspendedSince.IsZero() && r.statusChanged.Before(c.OldestView()) && r.changed.Before(c.OldestView()) &&
		!r.route.changedByOthers.After(r.run.began) && !r.hasNoRouter() && r.route.found
}

// maxFirstStep returns the maximum weight of a revision before it was analysed.
func (c *failedPromotionRecovery) maxFirstStep(r *record) int {
	most := 0
	for _, d := range c.expectations(r) {
		switch {
		case d.weighted:
			most = max(most, d.nextWeight(0))
		case d.abTesting:
			most = 100
		}
	}
	return most
}

func (c *failedPromotionRecovery) Finish() {
	for _, r := range c.All {
		if r.Gone() || isDeleting(r) || r.canary.Spec.Suspend || r.isBlocked() || !c.ownsTarget(r) || !r.statusBySerin() || r.run == nil || r.statusUnreliable {
			continue
		}
		analysed := slices.Contains(r.run.targetContents, r.primary.content) && r.primary.content == r.target.content
		recorded := r.status.Serin != nil && r.status.Serin.Unfinished == nil && r.route.canary == 0 // a later run was rolled back
		if r.phase() == flaggerv1.CanaryPhaseFailed && r.promotionFailed && analysed && r.primary.ready.True && !recorded {
			c.Violate("I33", r.Name(), "its promotion failed and was not completed, although the primary is ready with the analysed revision")
		}
	}
}
