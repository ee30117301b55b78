package canary

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// step is a move to the next weight or iteration, or the promotion, when it takes effect.
type step struct {
	of        *record
	by        string
	promotion bool
	first     bool // before it there was no traffic and no iteration
	what      string
}

// stepIn is the step that an event is, if it is one.
func (l *ledger) stepIn(event any) (step, bool) {
	switch h := event.(type) {
	case routeWritten:
		r := h.of
		rises := h.BySerin && h.after.found && h.after.canary > max(h.before.canary, r.status.CanaryWeight)
		if rises && analysing(r.phase()) && !r.failedPromotion() {
			return step{of: r, by: h.Actor, first: r.run.window == nil, what: fmt.Sprintf("the weight rose to %d", h.after.canary)}, true
		}
	case workloadWritten:
		if r := h.of; h.BySerin && r.promotes(h) {
			return step{of: r, by: h.Actor, promotion: true, what: "the primary got a new revision"}, true
		}
	case canaryWritten:
		if h.of == nil || !h.BySerin || !h.status() || h.begins != nil || h.of.run == nil {
			return step{}, false
		}
		before, after := h.before.Status.Iterations, h.after.Status.Iterations
		if after > before && before > 0 && analysing(h.before.Status.Phase) && analysing(h.after.Status.Phase) && h.before.Status.CanaryWeight == h.after.Status.CanaryWeight {
			return step{of: h.of, by: h.Actor, what: fmt.Sprintf("iteration %d began", after)}, true
		}
	}
	return step{}, false
}

func analysing(phase flaggerv1.CanaryPhase) bool {
	return phase == flaggerv1.CanaryPhaseProgressing || phase == flaggerv1.CanaryPhaseWaitingPromotion
}

// promotes is true of a write that gives the primary what the run is about.
func (r *record) promotes(h workloadWritten) bool {
	return h.primary && h.Type == store.Modified && h.content != "" && r.run != nil && analysing(r.phase()) &&
		h.content != r.run.primary && slices.Contains(r.run.contents, h.content)
}

// failedPromotion is true when the primary has what the run is about, and traffic is on its way away from it.
func (r *record) failedPromotion() bool { return r.run == nil || !r.run.promoted.IsZero() }

// skips is true when the analysis may be left out: by the spec, or by a user.
func (l *ledger) skips(r *record) bool {
	if slices.ContainsFunc(l.expectations(r), func(d *expectation) bool { return d.skip }) {
		return true
	}
	return r.commanded("promote", r.run.began.Add(-l.Lag))
}

// commanded is true when a user gave a command since then.
func (r *record) commanded(verb string, then time.Time) bool {
	return slices.ContainsFunc(r.commands, func(c command) bool { return c.verb == verb && c.at.After(then) })
}

// from is the earliest moment at which the open window may truly have begun: when its route was acknowledged, a call
// before the status said so.
func (l *ledger) from(w *window) time.Time {
	if !l.Clocks.Changed {
		return w.start
	}
	slack := 200 * time.Millisecond
	if l.SlowCalls {
		slack = 30 * time.Second
	}
	return w.opened.Add(-slack)
}

// judgedStep is the step that an event is, if its process decided it by the analysis.
func (l *ledger) judgedStep(event any) (step, bool) {
	s, ok := l.stepIn(event)
	return s, ok && s.of.mine() && !l.skips(s.of) && !l.outpaced(s.by, s.of)
}

// advances are facts for I3.
func (l *ledger) advances(event any) []oracle.Advance {
	s, ok := l.judgedStep(event)
	if !ok {
		return nil
	}
	advance := oracle.Advance{Release: s.of.Name(), What: s.what}
	for _, d := range l.expectations(s.of) {
		advance.Missing = append(advance.Missing, l.missing(s, d))
	}
	return []oracle.Advance{advance}
}

// missing is which requirement of the plan was not met; empty: all were.
func (l *ledger) missing(s step, d *expectation) string {
	r := s.of
	if s.promotion {
		switch {
		case d.weighted && r.route.canary < d.most && r.route.touched.Before(l.OldestView()):
			return fmt.Sprintf("the canary has %d %% of the traffic, of %d", r.route.canary, d.most)
		case !d.weighted && r.status.Iterations < d.iterations:
			return fmt.Sprintf("%d iterations of %d are over", r.status.Iterations, d.iterations)
		}
	}
	if s.first {
		for _, hook := range d.of(flaggerv1.PreRolloutHook) {
			if l.held(s, r.run.began, isHook(hook), (*question).yes) == nil {
				return "hook " + hook.Name + " did not pass before the first traffic"
			}
		}
		return l.gates(s, d, r.run.began)
	}
	from := r.run.began
	switch {
	case r.run.window != nil && !l.disagreed.Before(r.run.window.opened):
		// What is a new window for one process is that of before for another one, and no process can know.
	case r.run.window != nil:
		from = l.from(r.run.window)
	default:
		return "no window was open"
	}
	for i, metric := range d.metrics {
		for _, source := range sourcesOf(metric) {
			check := func(q *question) bool { return q.check != nil && q.check.Index == i && q.check.Source == source }
			if l.held(s, from, check, (*question).passed) == nil {
				return fmt.Sprintf("check %s (%s) did not pass in the window that began at %s", metric.Name, source, l.since(from))
			}
		}
	}
	for _, hook := range d.of(flaggerv1.RolloutHook) {
		if l.held(s, from, isHook(hook), (*question).yes) == nil {
			return "hook " + hook.Name + " did not pass in the window"
		}
	}
	for _, hook := range d.of(flaggerv1.RollbackHook) {
		if l.held(s, from, isHook(hook), func(q *question) bool { return !q.answered.IsZero() && !q.yes() }) == nil {
			return "hook " + hook.Name + " was not queried whether to roll back"
		}
	}
	return l.gates(s, d, from)
}

// gates are the hooks that users open.
func (l *ledger) gates(s step, d *expectation, from time.Time) string {
	var hooks []flaggerv1.CanaryWebhook
	if d.weighted && (!s.of.route.mirrored || s.of.route.canary != 0 || s.first) {
		hooks = d.of(flaggerv1.ConfirmTrafficIncreaseHook)
	}
	if s.promotion {
		hooks = slices.Concat(hooks, d.of(flaggerv1.ConfirmPromotionHook))
	}
	for _, hook := range hooks {
		if l.held(s, from, isHook(hook), (*question).yes) == nil {
			return "gate " + hook.Name + " (" + string(hook.Type) + ") was not open"
		}
	}
	return ""
}

// held is an answer that the process has, to a question that was asked since then, in this run and of this revision.
func (l *ledger) held(s step, then time.Time, is, ok func(*question) bool) *question {
	r := s.of
	for _, q := range l.life(s.by).answers[r.UID] {
		ofRun := q.run == r.run && (q.fresh || slices.Contains(r.run.contents, q.content))
		if ofRun && !q.asked.Before(then) && is(q) && ok(q) {
			return q
		}
	}
	return nil
}

func isHook(hook flaggerv1.CanaryWebhook) func(*question) bool {
	return func(q *question) bool {
		if q.hook == nil {
			return false
		}
		kind := q.hook.Hook.Type
		if kind == "" {
			kind = flaggerv1.RolloutHook
		}
		return kind == hook.Type && q.hook.Hook.Name == hook.Name && q.hook.Hook.URL == hook.URL
	}
}

// sourcesOf are where one entry of the metrics is measured.
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

// since is a moment as runs show it.
func (l *ledger) since(at time.Time) string {
	return fmt.Sprintf("t=%+.3fs", at.Sub(l.Began).Seconds())
}

// windowsJudgedOnce is I4.
type windowsJudgedOnce struct {
	*ledger
	oracle.EventsOnly
}

func (c *windowsJudgedOnce) Observe(event any) {
	if s, ok := c.judgedStep(event); ok {
		r := s.of
		if most := c.patience(r); r.status.FailedChecks >= most && (r.tampered.IsZero() || r.tampered.Before(r.run.began)) {
			c.Violate("I4", r.Name(), "%s with %d failed checks of %d", s.what, r.status.FailedChecks, most)
		}
		if !s.first {
			c.early(r, s.what)
		}
	}
	if h, ok := event.(canaryWritten); ok && h.of != nil && h.BySerin && h.status() && h.begins == nil && h.of.run != nil && h.of.mine() {
		c.counted(h)
		c.takenBack(h)
	}
}

// patience is the highest threshold that may hold.
func (l *ledger) patience(r *record) int {
	most := 0
	for _, d := range l.expectations(r) {
		most = max(most, d.threshold)
	}
	return most
}

// early violates I4 (or I14 where a clock was set before) when the open window is younger than an interval.
func (c *windowsJudgedOnce) early(r *record, what string) {
	if c.Clocks.Changed {
		return // see clockProof
	}
	if short := c.short(r); short > 0 {
		c.Violate("I4", r.Name(), "%s after %s, but the window lasts %s", what, c.Now().Sub(c.from(r.run.window)), short)
	}
}

// short is the length that the open window has to have and does not have yet; zero: it is old enough.
func (l *ledger) short(r *record) time.Duration {
	w := r.run.window
	unobserved := slices.ContainsFunc(l.expectations(r), func(d *expectation) bool { return !d.routed && r.status.Iterations > d.iterations })
	length := l.least(r)
	if w == nil || unobserved || !l.Clocks.Consistent(w.opened.Add(-l.Lag)) || l.Now().Sub(l.from(w)) >= length {
		return 0
	}
	return length
}

// counted checks the number of failed checks.
func (c *windowsJudgedOnce) counted(h canaryWritten) {
	r, before, after := h.of, h.before.Status.FailedChecks, h.after.Status.FailedChecks
	switch {
	case after <= before:
		return
	case after > before+1:
		c.Violate("I4", r.Name(), "the failed checks went from %d to %d", before, after)
	case c.failing(h) == nil:
		c.Violate("I4", r.Name(), "a failed check was counted (%d), but no query of this window failed", after)
	case r.run.window != nil && !h.opens:
		c.Violate("I4", r.Name(), "a failed check was counted (%d), and the failed window remains open", after)
	case r.run.window != nil:
		c.early(r, "a failed check was counted")
	}
}

// failing is a question of the open window whose answer counts against the release.
func (c *windowsJudgedOnce) failing(h canaryWritten) *question {
	r := h.of
	then := r.run.began
	if w := r.run.window; w != nil {
		then = c.from(w)
	}
	for _, q := range c.life(h.Actor).answers[r.UID] {
		counts := q.check != nil || q.hook != nil && (q.hook.Hook.Type == flaggerv1.RolloutHook || q.hook.Hook.Type == "" || q.hook.Hook.Type == flaggerv1.PreRolloutHook)
		if q.run == r.run && counts && q.failed() && !q.asked.Before(then) {
			return q
		}
	}
	return nil
}

// takenBack looks for a cause of a rollback.
func (c *windowsJudgedOnce) takenBack(h canaryWritten) {
	r, before, after := h.of, &h.before.Status, &h.after.Status
	failed := after.Phase == flaggerv1.CanaryPhaseFailed && moving(before.Phase)
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
		return p.ready.Always(c.OldestView()) && !p.disturbed.After(c.OldestView()) && !givenUp(p.version)
	}
	unready := c.JustStarted(h.Actor) || !steady(&r.target) || !steady(&r.primary)
	asked := slices.ContainsFunc(c.answersOf(h.Actor, r), func(q *question) bool {
		return q.hook != nil && q.hook.Hook.Type == flaggerv1.RollbackHook && q.yes()
	})
	if max(before.FailedChecks, after.FailedChecks) >= least || unready || asked || r.commanded("abort", r.run.began.Add(-c.Lag)) {
		return
	}
	c.Violate("I4", r.Name(), "it is rolled back with %d failed checks of %d, although both workloads are ready and no user requested it", before.FailedChecks, least)
}

// answersOf are those that a process has for a release.
func (l *ledger) answersOf(by string, r *record) []*question {
	var out []*question
	for _, q := range l.life(by).answers[r.UID] {
		out = append(out, q)
	}
	return out
}

// windows are facts for I14: the windows that steps end.
func (l *ledger) windows(event any) []oracle.Period {
	s, ok := l.judgedStep(event)
	if !ok || !l.Clocks.Changed || s.first {
		return nil
	}
	if short := l.short(s.of); short > 0 {
		return []oracle.Period{{Release: s.of.Name(), What: s.what, Began: s.of.run.window.opened, Length: short}}
	}
	return nil
}

// queries are facts for I11.
func (l *ledger) queries(event any) []oracle.Query {
	q, ok := event.(*question)
	if !ok || q.of.Gone() {
		return nil
	}
	query := oracle.Query{Release: q.of.Name(), What: q.probe.ID, By: q.by, Key: q.key(), Timed: true}
	if q.hook == nil {
		return []oracle.Query{query}
	}
	polled := l.life(q.by).polled
	if polled[q.of.UID] == nil {
		polled[q.of.UID] = map[string]time.Time{}
	}
	before := polled[q.of.UID][q.probe.ID]
	polled[q.of.UID][q.probe.ID] = l.Now()
	informed := q.of.mover != q.by && q.of.moved.After(before) // another process has recorded when it sent the query
	if !informed && !l.longer(q, before) {
		query.Since, query.Interval = before, l.least(q.of)-time.Millisecond
	}
	return []oracle.Query{query}
}

// stableKeys is the part of I11 about webhooks: a call that is repeated after a crash has the same key.
func (l *ledger) stableKeys() oracle.Checker {
	first := map[askKey]firstAsked{}
	return oracle.OnEvent(func(event any) {
		q, ok := event.(*question)
		if !ok || q.of.Gone() || q.hook == nil {
			return
		}
		// A call in another phase is another call: someone wrote another phase into the status, or wants a retry.
		call := q.key()
		call.id += " " + string(q.hook.Phase)
		known, seen := first[call]
		if !seen {
			first[call] = firstAsked{q.hook.Key, l.Now()}
		} else if known.key != q.hook.Key && !q.of.tampered.After(known.at) && !q.of.commanded("retry", known.at) {
			l.Violate("I11", q.of.Name(), "%s was sent with another key than before the crash", q.probe.ID)
		}
	})
}

// longer is true of a query about a window whose interval users have edited since then: the window ends at another time.
func (l *ledger) longer(q *question, then time.Time) bool {
	windowed := q.hook.Hook.Type != flaggerv1.ConfirmRolloutHook && q.hook.Phase == flaggerv1.CanaryPhaseProgressing
	specs := q.of.Specs.Since(then.Add(-l.Lag))
	return windowed && slices.ContainsFunc(specs, func(d *expectation) bool { return d.interval != specs[0].interval })
}

// key identifies the call of a query.
func (q *question) key() askKey { return askKey{q.of.UID, q.probe.ID, q.probe.Since} }

// askKey is one call: a polled gate keeps its ID, and only moves on.
type askKey struct {
	of    types.UID
	id    string
	since time.Time
}

// firstAsked is the key with which a call was made first, and when.
type firstAsked struct {
	key string
	at  time.Time
}

// starts are facts for I17.
func (l *ledger) starts(event any) []oracle.Start {
	h, ok := event.(canaryWritten)
	if !ok || h.of == nil || !h.BySerin || h.begins == nil || !analysing(h.before.Status.Phase) || !h.of.mine() {
		return nil
	}
	r, s := h.of, &h.after.Status
	start := oracle.Start{Release: r.Name()}
	if s.FailedChecks != 0 || s.Iterations != 0 || s.CanaryWeight != 0 {
		start.Carried = append(start.Carried, fmt.Sprintf("%d failed checks, %d iterations and weight %d", s.FailedChecks, s.Iterations, s.CanaryWeight))
	}
	if a := s.Serin; a != nil && (a.Window != nil || a.Started || a.Asked != nil || a.Held != "" || a.Intent != "") {
		start.Carried = append(start.Carried, fmt.Sprintf("the state %+v", *a))
	}
	if r.route.canary > 0 && r.primary.ready.Always(l.OldestView()) && r.route.touched.Before(l.OldestView()) && r.stable != "" {
		start.Carried = append(start.Carried, fmt.Sprintf("%d %% of the traffic", r.route.canary))
	}
	return []oracle.Start{start}
}

// freshSamples is the part of I17 about metrics: responses of an earlier revision are not in the samples of this one.
func (l *ledger) freshSamples(event any) {
	q, ok := event.(*question)
	if !ok {
		return
	}
	r := q.of
	if q.check == nil || r.run == nil || r.run.left.IsZero() || !l.Clocks.Consistent(r.run.left) || r.tampered.After(r.run.left) {
		return // a user who clears the status clears the moment
	}
	back, err := time.ParseDuration(q.check.Metric.Interval)
	if err != nil {
		back = time.Minute
	}
	if gap := q.asked.Sub(r.run.left); gap < back-time.Millisecond {
		l.Violate("I17", r.Name(), "%s was measured over %s, but an earlier revision had traffic until %s before", q.check.Metric.Name, back, gap)
	}
}

// boundedQueries is I20.
type boundedQueries struct {
	*ledger
	oracle.EventsOnly
}

func (c *boundedQueries) Observe(event any) {
	q, ok := event.(*question)
	if !ok || q.of.Gone() {
		return // what is asked for a Canary that is gone was given up before
	}
	life := c.life(q.by)
	if out := life.out[q.of.UID]; out != nil && out.answered.IsZero() {
		c.Violate("I20", q.of.Name(), "%s was sent while %s is in flight", q.probe.ID, out.probe.ID)
	}
	n := 1
	pool := controller.Pool(q.probe.Request)
	for _, r := range c.All {
		if out := life.out[r.UID]; !r.Gone() && out != nil && r != q.of && controller.Pool(out.probe.Request) == pool {
			n++
		}
	}
	if n > inFlight {
		c.Violate("I20", q.of.Name(), "%d queries of one pool and process are in flight, of %d", n, inFlight)
	}
}
