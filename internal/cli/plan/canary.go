package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// The revisions of a Canary that is played: the one that serves users, and the one that is released.
const (
	previousRevision = "previous"
	newRevision      = "new"
)

// newCanaryPlan plays the initialization, which is not shown, and then the release of a new revision.
func newCanaryPlan(in Input) (Plan, error) {
	c, plan := in.Canary, canary.NewPlan(in.Canary, in.Settings)
	problems := plan.ValidationErrors
	if len(problems) == 0 && in.Routers != nil {
		if err := in.Routers.CheckRoute(c, plan.Provider); err != nil {
			problems = []string{err.Error()}
		}
	}
	if len(problems) > 0 {
		return Plan{}, &InvalidError{Release: flaggerv1.CanaryKind + " " + objectName(c.Namespace, c.Name), Problems: problems}
	}
	out := Plan{
		Kind: flaggerv1.CanaryKind, Namespace: c.Namespace, Name: c.Name, Target: plan.Kind + "/" + plan.Target, Provider: plan.Provider,
		Strategy: string(plan.Strategy), WindowSeconds: plan.Interval.Seconds(), FailedChecksLimit: plan.Threshold,
	}
	out.Replicas, out.ReplicasSource = in.replicas(nil)
	start := initializedCanary(plan, out.Replicas)
	shortest := playCanary(start, canary.PassingAnswer)
	longest := playCanary(start, canary.SlowestAnswer)
	if !shortest.promoted() {
		return Plan{}, fmt.Errorf("the release of Canary %s does not end within the decisions that are played: it is in phase %s after %s. Reduce the number of iterations or weights",
			objectName(c.Namespace, c.Name), shortest.last.Status.Phase, shortest.last.Now.Sub(playedFrom))
	}
	out.Steps, out.WaitsBefore = shortest.steps, shortest.before
	out.Duration = Duration{
		ShortestSeconds: seconds(shortest.end.Sub(playedFrom)), PodStarts: shortest.podStarts, PodDeadlineSeconds: plan.Deadline.Seconds(),
	}
	if !longest.promoted() {
		longest.end = longest.last.Now
	}
	out.Duration.LongestSeconds = seconds(longest.end.Sub(playedFrom)) + float64(shortest.podStarts)*plan.Deadline.Seconds()
	out.Queries = canaryQueries(in, plan, shortest)
	out.Webhooks = canaryWebhooks(plan, shortest)
	out.Duration.Unbounded = canaryUnbounded(plan)
	if !longest.promoted() { // it takes more decisions than are played
		out.Duration.Unbounded = append(out.Duration.Unbounded, fmt.Sprintf("%d failed checks are tolerated, more than are played", plan.Threshold-1))
	}
	out.Notes = slices.Concat(plan.Warnings, in.Problems, canaryNotes(in, plan))
	return out, nil
}

// initializedCanary returns a snapshot in which the previous revision serves users, and a new one is to be released.
func initializedCanary(plan canary.Plan, replicas int32) canary.Snapshot {
	plan.Suspended = false
	s := canary.Snapshot{Now: playedFrom, UID: "plan", Generation: 1, Plan: plan}
	s.Workload.Target = canary.WorkloadState{Found: true, Revision: previousRevision, FlaggerHash: previousRevision, Replicas: replicas}
	s.Workload.Primary = canary.WorkloadState{Revision: previousRevision, FlaggerHash: previousRevision, Replicas: replicas}
	s.Workload.SameTemplate = true
	s, _ = canary.Play(s, canary.PassingAnswer, func(canary.Transition) bool { return true })
	s.Now = playedFrom
	s.Workload.Target.Revision, s.Workload.Target.FlaggerHash, s.Workload.SameTemplate = newRevision, newRevision, false
	return s
}

// canaryRun is a played release of a Canary.
type canaryRun struct {
	recorder

	last canary.Snapshot
	// end is when the release ended, podStarts how often new pods were started.
	end       time.Time
	podStarts int
	checks    tally[int]
	hooks     tally[string]
	events    int
	limits    map[string]string
}

func (r *canaryRun) promoted() bool { return r.last.Status.Phase == flaggerv1.CanaryPhaseSucceeded }

// playCanary plays one release with these answers.
func playCanary(start canary.Snapshot, answer func(canary.Snapshot, release.Query) release.Answer) *canaryRun {
	run := &canaryRun{recorder: recorder{start: start.Now}, limits: map[string]string{}, end: start.Now}
	run.last, _ = canary.Play(start, answer, func(t canary.Transition) bool {
		run.record(t)
		return true
	})
	return run
}

// record adds one decision to the run.
func (r *canaryRun) record(t canary.Transition) {
	for _, gate := range t.Decision.Gates {
		if gate.Limit != "" && r.limits[gate.Name] == "" {
			r.limits[gate.Name] = gate.Limit
		}
		if !gate.IsNotice() {
			r.waitFor(gate.Name)
		}
	}
	for _, query := range t.Answered {
		switch q := query.Request.(type) {
		case canary.MetricQuery:
			r.checks.add(q.Check.Index, 1)
		case canary.HookQuery:
			r.hooks.add(hookKey(q.Hook), 1)
		}
	}
	for _, event := range t.Decision.Events {
		if !event.AlertOnly && !event.ObjectOnly {
			r.events++
		}
	}
	before, after := t.Before.Workload, t.After.Workload
	if before.Target.Replicas < after.Target.Replicas || before.Primary.ID != after.Primary.ID {
		r.podStarts++
	}
	if t.Text != "" {
		r.add(canaryStep(t), t.After.Now)
		r.end = t.After.Now
		return
	}
	if step := r.recorder.last(); step != nil { // effects of the step that follow in separate decisions
		text := step.Action
		number, at, waits := step.Number, step.AfterSeconds, step.WaitsFor
		*step = canaryStep(t)
		step.Action, step.Number, step.AfterSeconds, step.WaitsFor = text, number, at, waits
	}
}

func canaryStep(t canary.Transition) Step {
	s := t.After
	return Step{
		Action: t.Text, CanaryWeight: s.Route.Canary, StableWeight: release.Total - s.Route.Canary, Mirrored: s.Route.Mirrored,
		CanaryPods: s.Workload.Target.Replicas, StablePods: s.Workload.Primary.Replicas,
	}
}

// hookKey distinguishes the webhooks of a Canary.
func hookKey(hook canary.Hook) string {
	return strings.Join([]string{string(hook.Type), hook.Name, hook.URL, strconv.Itoa(hook.Ordinal)}, "\x00")
}

// canaryQueries returns the queries of all checks, in the order of the spec.
func canaryQueries(in Input, plan canary.Plan, run *canaryRun) []Query {
	out := make([]Query, 0, len(plan.Checks))
	for _, check := range plan.Checks {
		provider, text := resolveCheck(in, check)
		out = append(out, Query{
			Metric: check.Metric.Name, Provider: provider, Query: text, Limit: run.limits[check.Metric.Name], Interval: check.Interval,
			Requests: requestsNeeded(text, checkBounds(run.limits[check.Metric.Name])), Times: run.checks.times[check.Index],
		})
	}
	return out
}

// resolveCheck returns the provider and the query of a check. A query that cannot be rendered is replaced by the reason.
func resolveCheck(in Input, check canary.Check) (provider, text string) {
	c := in.Canary
	provider = "the Prometheus of the controller"
	if c.Spec.MetricsServer != "" {
		provider = "Prometheus at " + outbound.Redact(c.Spec.MetricsServer)
	}
	vars := controller.QueryVars(c, check)
	var err error
	switch check.Source {
	case canary.Builtin:
		text, err = metric.Builtin(metric.Dialect(c.Spec.Provider, in.Settings.Provider), check.Canonical, vars)
	case canary.Inline:
		text, err = metric.Render(check.Metric.Query, vars)
	default:
		ref := check.Metric.TemplateRef
		namespace := cmp.Or(ref.Namespace, c.Namespace)
		template, known := flaggerv1.MetricTemplateSpec{}, false
		if in.MetricTemplate != nil {
			template, known = in.MetricTemplate(namespace, ref.Name)
		}
		if !known {
			return "MetricTemplate " + objectName(namespace, ref.Name), ""
		}
		provider = template.Provider.Type
		if template.Provider.Address != "" {
			provider += " at " + outbound.Redact(template.Provider.Address)
		}
		text, err = metric.Render(template.Query, vars)
	}
	if err != nil {
		return provider, "cannot be rendered: " + err.Error()
	}
	return provider, strings.TrimSpace(text)
}

// canaryWebhooks returns the webhooks in the order of the spec.
func canaryWebhooks(plan canary.Plan, run *canaryRun) []Webhook {
	out := make([]Webhook, 0, len(plan.Hooks))
	for _, hook := range plan.Hooks {
		times := run.hooks.times[hookKey(hook)]
		if hook.Type == flaggerv1.EventHook {
			times = run.events
		}
		out = append(out, Webhook{
			Name: hook.Name, Type: string(hook.Type), URL: outbound.Redact(hook.URL), Timeout: cmp.Or(hook.Timeout, "10s"), Retries: hook.Retries, Times: times,
		})
	}
	return out
}

// canaryUnbounded returns why a release may take indefinitely.
func canaryUnbounded(plan canary.Plan) []string {
	var out []string
	if plan.Suspended {
		out = append(out, "spec.suspend: waits for a user")
	}
	kinds := canary.GateKinds()
	for _, hook := range plan.Hooks {
		gate := string(hook.Type) + "/" + hook.Name
		if kind := kinds.Of(gate); kind.Command != "" { // the user approves in place of the webhook
			out = append(out, gate+": waits for approval")
		}
	}
	return out
}

// canaryNotes returns what the plan assumes.
func canaryNotes(in Input, plan canary.Plan) []string {
	var out []string
	switch {
	case plan.Kind == "Service":
		out = append(out, "Serin scales no pods behind a Service: the numbers of pods are not known.")
	case plan.Kind == "DaemonSet":
		out = append(out, "A DaemonSet has one pod on each of its nodes: the numbers of pods are not known.")
	case in.Workload == nil:
		out = append(out, fmt.Sprintf("%s %s is not known: 1 pod is assumed.", plan.Kind, plan.Target))
	}
	if ref := in.Canary.Spec.AutoscalerRef; ref != nil {
		out = append(out, fmt.Sprintf("%s %s may change the number of pods, and new pods start with its minimum.", ref.Kind, ref.Name))
	}
	for _, check := range plan.Checks {
		if check.Source != canary.Template {
			continue
		}
		if _, text := resolveCheck(in, check); text == "" {
			out = append(out, fmt.Sprintf("MetricTemplate %s is not known: the query of %s is not shown.",
				objectName(cmp.Or(check.Metric.TemplateRef.Namespace, in.Canary.Namespace), check.Metric.TemplateRef.Name), check.Metric.Name))
		}
	}
	if plan.Strategy == canary.ABTesting {
		out = append(out, "The weights apply to the requests that match spec.analysis.match; all others are routed to the primary.")
	}
	if plan.SkipAnalysis {
		out = append(out, "The analysis is skipped: no check and no observation window delays the promotion.")
	}
	return out
}
