package canary

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// analyses are the analyses of the runs, for I3, I4 and I14.
type analyses struct{ *ledger }

// advance is a change to the next weight or iteration, or the promotion, at the time at which it takes effect.
type advance struct {
	record    *record
	process   string
	promotion bool
	first     bool // the canary had no traffic and no iteration before
	what      string
}

// advanceIn returns the advance that an event reports, if any.
func (c *analyses) advanceIn(event any) (advance, bool) {
	switch h := event.(type) {
	case routeWritten:
		r := h.record
		rises := h.BySerin && h.after.found && h.after.canary > max(h.before.canary, r.status.CanaryWeight)
		if rises && isAnalysing(r.phase()) && !r.afterPromotion() {
			return advance{record: r, process: h.Actor, first: r.run.window == nil, what: fmt.Sprintf("the weight rose to %d", h.after.canary)}, true
		}
	case workloadWritten:
		if r := h.record; h.BySerin && r.promotesRun(h) {
			return advance{record: r, process: h.Actor, promotion: true, what: "the primary got a new revision"}, true
		}
	case canaryWritten:
		if !h.StatusReported() || h.newRun != nil || h.Record.run == nil {
			return advance{}, false
		}
		before, after := h.Before.Status.Iterations, h.After.Status.Iterations
		if after > before && before > 0 && isAnalysing(h.Before.Status.Phase) && isAnalysing(h.After.Status.Phase) && h.Before.Status.CanaryWeight == h.After.Status.CanaryWeight {
			return advance{record: h.Record, process: h.Actor, what: fmt.Sprintf("iteration %d began", after)}, true
		}
	}
	return advance{}, false
}

func isAnalysing(phase flaggerv1.CanaryPhase) bool {
	return phase == flaggerv1.CanaryPhaseProgressing || phase == flaggerv1.CanaryPhaseWaitingPromotion
}

// promotesRun reports whether a write gives the primary the revision of the run.
func (r *record) promotesRun(h workloadWritten) bool {
	return h.primary && h.Type == store.Modified && h.content != "" && r.run != nil && isAnalysing(r.phase()) &&
		h.content != r.run.primaryContent && slices.Contains(r.run.targetContents, h.content)
}

// afterPromotion reports whether the primary has the revision of the run, so that traffic returns to it.
func (r *record) afterPromotion() bool { return r.run == nil || !r.run.promotedAt.IsZero() }

// maySkipAnalysis reports whether the spec or a user skips the analysis.
func (c *analyses) maySkipAnalysis(r *record) bool {
	if slices.ContainsFunc(c.expectations(r), func(d *expectation) bool { return d.skipAnalysis }) {
		return true
	}
	// A promotion without analysis that has begun is completed, even if the user changed the spec and the primary was lost since.
	continued := (r.run.intent == "skip" || r.run.intent == "finish") && !r.run.promotedAt.IsZero()
	return continued || r.hasCommand(canary.CommandPromoteFull, r.run.began.Add(-c.Lag)) || r.run.shippedFromWaiting
}

// approvedByCommand reports whether a user approved the end of the current step by command.
func (r *record) approvedByCommand(d *expectation) bool {
	approves := func(status flaggerv1.CanaryStatus) bool {
		return r.gave(canary.NewCommand(canary.CommandPromote, string(r.UID), status))
	}
	before := *r.status
	before.Iterations = min(before.Iterations, d.iterations) // an approval before the last window of blue/green includes that window
	return approves(*r.status) || !d.weighted && approves(before)
}

// gave reports whether a user gave that command.
func (r *record) gave(text string) bool {
	verb, run, _ := strings.Cut(text, "@")
	return slices.ContainsFunc(r.commands, func(c command) bool { return c.verb == verb && c.run == run })
}

// hasCommand reports whether a user gave a command since then.
func (r *record) hasCommand(verb string, then time.Time) bool {
	return slices.ContainsFunc(r.commands, func(c command) bool { return c.verb == verb && c.at.After(then) })
}

// windowStart returns the earliest time at which the open window may have begun: its route was acknowledged one call before the
// status recorded it.
func (c *analyses) windowStart(w *window) time.Time {
	if !c.Clocks.Changed {
		return w.statusStart
	}
	slack := 200 * time.Millisecond
	if c.SlowCalls {
		slack = 30 * time.Second
	}
	return w.openedAt.Add(-slack)
}

// checkedAdvance returns the advance that an event reports, if its process decided it by the analysis.
func (c *analyses) checkedAdvance(event any) (advance, bool) {
	s, ok := c.advanceIn(event)
	return s, ok && s.record.statusBySerin() && !c.maySkipAnalysis(s.record) && !c.mayBeOutdated(s.process, s.record)
}

// advances returns the facts for I3.
func (c *analyses) advances(event any) []oracle.Advance {
	s, ok := c.checkedAdvance(event)
	if !ok {
		return nil
	}
	advance := oracle.Advance{Release: s.record.Name(), What: s.what}
	for _, d := range c.expectations(s.record) {
		advance.Missing = append(advance.Missing, c.missingPrecondition(s, d))
	}
	return []oracle.Advance{advance}
}

// missingPrecondition returns the requirement of the plan that was not met, or "" if all were met.
func (c *analyses) missingPrecondition(s advance, d *expectation) string {
	r := s.record
	if s.promotion {
		switch {
		case d.weighted && r.route.canary < d.maxWeight && r.route.changed.Before(c.OldestView()):
			return fmt.Sprintf("the canary has %d %% of the traffic, of %d", r.route.canary, d.maxWeight)
		case !d.weighted && r.status.Iterations < d.iterations:
			return fmt.Sprintf("%d iterations of %d are over", r.status.Iterations, d.iterations)
		}
	}
	if s.first {
		for _, hook := range d.hooksOfType(flaggerv1.PreRolloutHook) {
			if c.findAnswer(s, r.run.began, isHook(hook), (*query).approved) == nil {
				return "hook " + hook.Name + " did not pass before the first traffic"
			}
		}
		return c.closedGate(s, d, r.run.began)
	}
	from := r.run.began
	switch {
	case r.run.window != nil && !c.clocksDiffered.Before(r.run.window.openedAt):
		// Clocks differed: the new window of one process may be the previous window of another one.
	case r.run.window != nil:
		from = c.windowStart(r.run.window)
	default:
		return "no window was open"
	}
	for i, metric := range d.metrics {
		for _, source := range sourcesOf(metric) {
			check := func(q *query) bool { return q.check != nil && q.check.Index == i && q.check.Source == source }
			if c.findAnswer(s, from, check, (*query).passed) == nil {
				return fmt.Sprintf("check %s (%s) did not pass in the window that began at %s", metric.Name, source, c.formatTime(from))
			}
		}
	}
	for _, hook := range d.hooksOfType(flaggerv1.RolloutHook) {
		if c.findAnswer(s, from, isHook(hook), (*query).approved) == nil {
			return "hook " + hook.Name + " did not pass in the window"
		}
	}
	for _, hook := range d.hooksOfType(flaggerv1.RollbackHook) {
		if c.findAnswer(s, from, isHook(hook), func(q *query) bool { return !q.answeredAt.IsZero() && !q.approved() }) == nil {
			return "hook " + hook.Name + " was not queried whether to roll back"
		}
	}
	return c.closedGate(s, d, from)
}

// closedGate returns a description of a hook that users had not approved, or "".
func (c *analyses) closedGate(s advance, d *expectation, from time.Time) string {
	if s.record.approvedByCommand(d) {
		return ""
	}
	var hooks []flaggerv1.CanaryWebhook
	if d.weighted && (!s.record.route.mirrored || s.record.route.canary != 0 || s.first) {
		hooks = d.hooksOfType(flaggerv1.ConfirmTrafficIncreaseHook)
	}
	if s.promotion {
		hooks = slices.Concat(hooks, d.hooksOfType(flaggerv1.ConfirmPromotionHook))
	}
	for _, hook := range hooks {
		if c.findAnswer(s, from, isHook(hook), (*query).approved) == nil {
			return "gate " + hook.Name + " (" + string(hook.Type) + ") was not open"
		}
	}
	return ""
}

// findAnswer returns an answer that the process received to a query that was sent since then, in this run and about its
// revision.
func (c *analyses) findAnswer(s advance, then time.Time, isQuery, accept func(*query) bool) *query {
	r := s.record
	for _, q := range c.processState(s.process).answers[r.UID] {
		ofRun := q.run == r.run && (q.contentUncertain || slices.Contains(r.run.targetContents, q.content))
		if ofRun && !q.sent.Before(then) && isQuery(q) && accept(q) {
			return q
		}
	}
	return nil
}

func isHook(hook flaggerv1.CanaryWebhook) func(*query) bool {
	return func(q *query) bool {
		if q.hook == nil {
			return false
		}
		kind := q.hook.Hook.Type
		if kind == "" {
			kind = flaggerv1.RolloutHook
		}
		return kind == hook.Type && q.hook.Hook.Name == hook.Name && q.hook.Hook.URL == hook.URL && maps.Equal(q.hook.Hook.Metadata, hook.Metadata)
	}
}

// sourcesOf returns the sources that measure an entry of the metrics.
func sourcesOf(metric flaggerv1.CanaryMetric) []canary.Source {
	var out []canary.Source
	if metric.Name == canary.SuccessRate || metric.Name == canary.Duration {
		out = append(out, canary.Builtin)
	}
	if metric.Query != "" {
		out = append(out, canary.Inline)
	}
	if metric.TemplateRef != nil {
		out = append(out, canary.Template)
	}
	return out
}

// formatTime returns a time in the format of the trace.
func (l *ledger) formatTime(at time.Time) string {
	return fmt.Sprintf("t=%+.3fs", at.Sub(l.Began).Seconds())
}

// windowsCountedOnce is I4.
type windowsCountedOnce struct {
	*analyses
	oracle.EventsOnly
}

func (c *windowsCountedOnce) Observe(event any) {
	if s, ok := c.checkedAdvance(event); ok {
		r := s.record
		if most := c.maxThreshold(r); r.status.FailedChecks >= most && (r.statusOverwritten.IsZero() || r.statusOverwritten.Before(r.run.began)) {
			c.Violate("I4", r.Name(), "%s with %d failed checks of %d", s.what, r.status.FailedChecks, most)
		}
		if !s.first {
			c.checkWindowLength(r, s.what)
		}
	}
	if h, ok := event.(canaryWritten); ok && h.StatusReported() && h.newRun == nil && h.Record.run != nil && h.Record.statusBySerin() {
		c.checkFailedChecks(h)
		c.checkRollbackCause(h)
	}
}

// maxThreshold returns the highest threshold that may apply.
func (c *windowsCountedOnce) maxThreshold(r *record) int {
	most := 0
	for _, d := range c.expectations(r) {
		most = max(most, d.threshold)
	}
	return most
}

// checkWindowLength reports a violation if the open window is shorter than an interval.
func (c *windowsCountedOnce) checkWindowLength(r *record, what string) {
	if c.Clocks.Changed {
		return // I14 checks the window
	}
	if short := c.missingWindowLength(r); short > 0 {
		c.Violate("I4", r.Name(), "%s after %s, but the window lasts %s", what, c.Now().Sub(c.windowStart(r.run.window)), short)
	}
}

// missingWindowLength returns the required length of the open window if it is not reached yet, and zero otherwise.
func (c *analyses) missingWindowLength(r *record) time.Duration {
	w := r.run.window
	unobserved := slices.ContainsFunc(c.expectations(r), func(d *expectation) bool { return !d.hasRouter && r.status.Iterations > d.iterations })
	length := c.minInterval(r)
	if w == nil || unobserved || !c.Clocks.Consistent(w.openedAt.Add(-c.Lag)) || c.Now().Sub(c.windowStart(w)) >= length {
		return 0
	}
	return length
}

// checkFailedChecks checks the number of failed checks.
func (c *windowsCountedOnce) checkFailedChecks(h canaryWritten) {
	r, before, after := h.Record, h.Before.Status.FailedChecks, h.After.Status.FailedChecks
	switch {
	case after <= before:
		return
	case after > before+1:
		c.Violate("I4", r.Name(), "the failed checks went from %d to %d", before, after)
	case c.failedQuery(h) == nil:
		c.Violate("I4", r.Name(), "a failed check was counted (%d), but no query of this window failed", after)
	case r.run.window != nil && !h.opensWindow:
		c.Violate("I4", r.Name(), "a failed check was counted (%d), and the failed window remains open", after)
	case r.run.window != nil:
		c.checkWindowLength(r, "a failed check was counted")
	}
}

// failedQuery returns a query of the open window whose answer counts against the release.
func (c *windowsCountedOnce) failedQuery(h canaryWritten) *query {
	r := h.Record
	then := r.run.began
	if w := r.run.window; w != nil {
		then = c.windowStart(w)
	}
	for _, q := range c.processState(h.Actor).answers[r.UID] {
		counts := q.check != nil || q.hook != nil && (q.hook.Hook.Type == flaggerv1.RolloutHook || q.hook.Hook.Type == "" || q.hook.Hook.Type == flaggerv1.PreRolloutHook)
		// If the status was overwritten meanwhile, the next run sends the same query again, and this answer is to both.
		repeated := !r.statusOverwritten.Before(q.sent)
		if counts && q.failed() && (repeated || q.run == r.run && !q.sent.Before(then)) {
			return q
		}
	}
	return nil
}

// checkRollbackCause checks that a rollback has a cause.
func (c *windowsCountedOnce) checkRollbackCause(h canaryWritten) {
	r, before, after := h.Record, &h.Before.Status, &h.After.Status
	failed := after.Phase == flaggerv1.CanaryPhaseFailed && isActive(before.Phase)
	intended := after.Serin != nil && after.Serin.Intent == "rollback" && (before.Serin == nil || before.Serin.Intent != "rollback")
	if !failed && !intended || before.Serin != nil && before.Serin.Intent == "rollback" {
		return
	}
	least := 0
	for i, d := range c.expectations(r) {
		if i == 0 || d.threshold < least {
			least = d.threshold
		}
	}
	steady := func(p *workloadState) bool {
		return p.ready.AlwaysSince(c.OldestView()) && !p.disturbedAt.After(c.OldestView()) && !deadlineExceeded(p.version)
	}
	unready := c.JustStarted(h.Actor) || !steady(&r.target) || !steady(&r.primary)
	requested := slices.ContainsFunc(c.answersOf(h.Actor, r), func(q *query) bool {
		return q.hook != nil && q.hook.Hook.Type == flaggerv1.RollbackHook && q.approved()
	})
	if max(before.FailedChecks, after.FailedChecks) >= least || unready || requested || c.isReplaced(r) || r.hasCommand("abort", r.run.began.Add(-c.Lag)) {
		return
	}
	c.Violate("I4", r.Name(), "it is rolled back with %d failed checks of %d, although both workloads are ready and no user requested it", before.FailedChecks, least)
}

// answersOf returns the answers that a process has for a release.
func (l *ledger) answersOf(by string, r *record) []*query {
	var out []*query
	for _, q := range l.processState(by).answers[r.UID] {
		out = append(out, q)
	}
	return out
}

// windows returns the facts for I14: the windows that an advance ends.
func (c *analyses) windows(event any) []oracle.Period {
	s, ok := c.checkedAdvance(event)
	if !ok || !c.Clocks.Changed || s.first {
		return nil
	}
	if short := c.missingWindowLength(s.record); short > 0 {
		return []oracle.Period{{Release: s.record.Name(), What: s.what, Began: s.record.run.window.openedAt, Length: short}}
	}
	return nil
}

// sentQueries are the queries that processes sent, for I11.
type sentQueries struct {
	*ledger

	// called contains since when the status of each Canary records no release whose post-rollout webhooks have to be called.
	called map[types.UID]time.Time
}

// queries returns the facts for I11.
func (c *sentQueries) queries(event any) []oracle.Query {
	if write, ok := event.(canaryWritten); ok && write.After != nil {
		c.recordPostRollout(write)
	}
	q, ok := event.(*query)
	if !ok || q.record.Gone() {
		return nil
	}
	query := oracle.Query{Release: q.record.Name(), What: q.request.ID, By: q.process, Key: q.key(), Timed: true}
	if q.hook == nil {
		return []oracle.Query{query}
	}
	if q.hook.Hook.Type == flaggerv1.PostRolloutHook {
		query.Done = c.called[q.record.UID]
	}
	polled := c.processState(q.process).lastPoll
	if polled[q.record.UID] == nil {
		polled[q.record.UID] = map[string]time.Time{}
	}
	before := polled[q.record.UID][q.request.ID]
	polled[q.record.UID][q.request.ID] = c.Now()
	informed := q.record.statusActor != q.process && q.record.statusChanged.After(before) // another process has recorded when it sent the query
	if !informed && !c.intervalChanged(q, before) {
		query.Since, query.Interval = before, c.minInterval(q.record)-time.Millisecond
	}
	return []oracle.Query{query}
}

func (c *sentQueries) recordPostRollout(write canaryWritten) {
	uid, serin := write.After.UID, write.After.Status.Serin
	switch pending := serin != nil && serin.Intent != ""; {
	case pending:
		delete(c.called, uid)
	case c.called[uid].IsZero():
		c.called[uid] = c.Now()
	}
}

// stableKeys is the part of I11 about webhooks: a call that is repeated after a crash has the same key.
func (c *sentQueries) stableKeys() oracle.Checker {
	first := map[callKey]firstCall{}
	return oracle.OnEvent(func(event any) {
		q, ok := event.(*query)
		if !ok || q.record.Gone() || q.hook == nil {
			return
		}
		// A call in another phase is a different call: a user wrote another phase into the status, or requested a retry.
		call := q.key()
		call.id += " " + string(q.hook.Phase)
		known, seen := first[call]
		if !seen {
			first[call] = firstCall{q.hook.Key, c.Now()}
		} else if known.key != q.hook.Key && !q.record.statusOverwritten.After(known.at) && !q.record.hasCommand("retry", known.at) {
			c.Violate("I11", q.record.Name(), "%s was sent with another key than before the crash", q.request.ID)
		}
	})
}

// intervalChanged reports whether users have changed the interval of a query's window since then, so that the window ends at
// another time.
func (c *sentQueries) intervalChanged(q *query, then time.Time) bool {
	windowed := q.hook.Hook.Type != flaggerv1.ConfirmRolloutHook && q.hook.Phase == flaggerv1.CanaryPhaseProgressing
	specs := q.record.Specs.Since(then.Add(-c.Lag))
	return windowed && slices.ContainsFunc(specs, func(d *expectation) bool { return d.interval != specs[0].interval })
}

// key returns the identity of the call of a query.
func (q *query) key() callKey { return callKey{q.record.UID, q.request.ID, q.request.Since} }

// callKey identifies one call. A polled gate keeps its ID; only the time changes.
type callKey struct {
	uid   types.UID
	id    string
	since time.Time
}

// firstCall is the key of the first attempt of a call, and its time.
type firstCall struct {
	key string
	at  time.Time
}

// newRuns are runs that follow another one, for I17.
type newRuns struct{ *ledger }

// starts returns the facts for I17.
func (c *newRuns) starts(event any) []oracle.NewRelease {
	h, ok := event.(canaryWritten)
	if !ok || h.Record == nil || !h.BySerin || h.newRun == nil || !isAnalysing(h.Before.Status.Phase) || !h.Record.statusBySerin() {
		return nil
	}
	r, s := h.Record, &h.After.Status
	start := oracle.NewRelease{Release: r.Name()}
	if s.FailedChecks != 0 || s.Iterations != 0 || s.CanaryWeight != 0 {
		start.CarriedOver = append(start.CarriedOver, fmt.Sprintf("%d failed checks, %d iterations and weight %d", s.FailedChecks, s.Iterations, s.CanaryWeight))
	}
	if a := s.Serin; a != nil && (a.Window != nil || a.Started && !retainsRoute(h.After) && !r.hasOtherMatchesOfUser() || a.Asked != nil || a.Held != "" || a.Intent != "") {
		start.CarriedOver = append(start.CarriedOver, fmt.Sprintf("the state %+v", *a))
	}
	if r.route.canary > 0 && r.primary.ready.AlwaysSince(c.OldestView()) && r.route.changed.Before(c.OldestView()) && r.stableContent != "" {
		start.CarriedOver = append(start.CarriedOver, fmt.Sprintf("%d %% of the traffic", r.route.canary))
	}
	return []oracle.NewRelease{start}
}

// retainsRoute reports whether a release still has a route that its spec no longer describes, of another provider or for other requests:
// until the primary can serve, a new revision receives the traffic of the previous one.
func retainsRoute(c *flaggerv1.Canary) bool {
	shape := strings.Split(c.Status.Serin.Shape, "/")
	otherMatches := (shape[0] == string(canary.ABTesting)) != (strategyOf(c.Spec) == canary.ABTesting)
	return len(shape) > 1 && (shape[1] != c.Spec.Provider || otherMatches)
}

// hasOtherMatchesOfUser reports whether a user set a weight for other requests than those of the strategy, for all in an A/B test, which
// a release retains like the route of another strategy.
func (r *record) hasOtherMatchesOfUser() bool {
	return r.route.canary > 0 && !r.route.changedByOthers.IsZero() && r.route.matched != (strategyOf(r.canary.Spec) == canary.ABTesting)
}

// freshSamples is the part of I17 about metrics: the samples of a revision contain no responses of an earlier one.
func (c *newRuns) freshSamples(event any) {
	q, ok := event.(*query)
	if !ok {
		return
	}
	r := q.record
	if q.check == nil || r.run == nil || r.run.previousTrafficRemoved.IsZero() || !c.Clocks.Consistent(r.run.previousTrafficRemoved) || r.statusOverwritten.After(r.run.previousTrafficRemoved) {
		return // if a user clears the status, the time is lost
	}
	back, err := time.ParseDuration(q.check.Metric.Interval)
	if err != nil {
		back = time.Minute
	}
	if gap := q.sent.Sub(r.run.previousTrafficRemoved); gap < back-time.Millisecond {
		c.Violate("I17", r.Name(), "%s was measured over %s, but an earlier revision had traffic until %s before", q.check.Metric.Name, back, gap)
	}
}

// boundedQueries is I20.
type boundedQueries struct {
	*ledger
	oracle.EventsOnly
}

func (c *boundedQueries) Observe(event any) {
	q, ok := event.(*query)
	if !ok || q.record.Gone() {
		return // queries of a Canary that is gone have been abandoned
	}
	state := c.processState(q.process)
	if pending := state.inFlight[q.record.UID]; pending != nil && pending.answeredAt.IsZero() {
		c.Violate("I20", q.record.Name(), "%s was sent while %s is in flight", q.request.ID, pending.request.ID)
	}
	n := 1
	pool := controller.Pool(q.request.Request)
	for _, r := range c.All {
		if out := state.inFlight[r.UID]; !r.Gone() && out != nil && r != q.record && controller.Pool(out.request.Request) == pool {
			n++
		}
	}
	if n > maxInFlightPerPool {
		c.Violate("I20", q.record.Name(), "%d queries of one pool and process are in flight, of %d", n, maxInFlightPerPool)
	}
}
