package canary_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// TestScenarios runs the scenarios of testdata/scenarios. A file is one scenario with a heading; -rewrite updates the expected
// output, whose difference must be reviewed as a change of behaviour.
//
//	canary key=value…   a Canary whose target runs v1, and, without from=nothing, its initialisation
//	edit key=value…     changes its spec
//	given key=value…    changes the world: target=v2, config=c2, canary-ready=1/2, primary-ready=0/2, endpoints=late, after=60s, …
//	answers name=value  answers queries of that name from now on; silent: no longer; all: every name
//	answer name=value   answers the pending query of that name
//	restart             drops the memory of the process
//	write               patches the status with JSON, as a user could
//	status              shows the status in full
//
// After each command the Canary is reconciled until nothing changes. The output shows decisions: passing gates on one line,
// effects only when they are new, then events.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &scenario{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

// scenario is the model of one scenario and its output so far.
type scenario struct {
	world     *world
	out       strings.Builder
	lastState string
	reported  map[string]bool
	wake      time.Time
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	switch d.Cmd {
	case "canary":
		s.world, s.lastState, s.reported, s.wake = newWorld(), "", map[string]bool{}, time.Time{}
		for _, arg := range d.CmdArgs {
			s.applySetting(t, d, arg)
		}
		if !slices.ContainsFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == "from" }) {
			s.initialise(t, d)
		}
	case "edit":
		s.world.generation++
		for _, arg := range d.CmdArgs {
			s.applySetting(t, d, arg)
		}
	case "given":
		for _, arg := range d.CmdArgs {
			if arg.Key != "after" {
				s.setFact(t, d, arg)
				continue
			}
			s.advance(t, d, duration(t, d, arg))
			return s.output()
		}
	case "answers":
		for _, arg := range d.CmdArgs {
			s.world.standingAnswers[arg.Key] = value(arg)
			if value(arg) == "silent" {
				delete(s.world.standingAnswers, arg.Key)
			}
		}
		s.world.answerAtOnce()
	case "answer":
		for _, arg := range d.CmdArgs {
			if len(s.world.pending) == 0 || queryName(s.world.pending[0]) != arg.Key {
				d.Fatalf(t, "no query of %s is pending: %v", arg.Key, s.world.pending)
			}
			s.world.answer(value(arg))
		}
	case "restart":
		s.world.restart()
		s.reported = map[string]bool{}
		s.lastState = ""
	case "write":
		if err := json.Unmarshal([]byte(d.Input), &s.world.status); err != nil {
			d.Fatalf(t, "%v", err)
		}
	case "status":
		return s.status()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	s.settle(t, d)
	return s.output()
}

func (s *scenario) output() string {
	if s.out.Len() == 0 {
		return "nothing moves\n"
	}
	return s.out.String()
}

// initialise runs the initialisation without output.
func (s *scenario) initialise(t *testing.T, d *datadriven.TestData) {
	instant := s.world.instantPods
	s.world.instantPods = true
	for range 10 {
		s.settle(t, d)
		s.world.now = s.world.now.Add(10 * time.Second)
	}
	s.world.now, s.world.instantPods, s.world.answers, s.world.track = midnight, instant, release.Answers{}, [2]canary.ReadinessTrack{}
	if s.world.status.Phase != flaggerv1.CanaryPhaseInitialized {
		d.Fatalf(t, "not initialised:\n%s", s.out.String())
	}
	s.world.status.LastTransitionTime.Time = midnight
	for i := range s.world.status.Conditions {
		s.world.status.Conditions[i].LastUpdateTime.Time, s.world.status.Conditions[i].LastTransitionTime.Time = midnight, midnight
	}
	s.reported, s.lastState, s.wake = map[string]bool{}, "", time.Time{}
	s.out.Reset()
}

// advance advances the clock: the Canary is reconciled only at the wake-ups of its decisions.
func (s *scenario) advance(t *testing.T, d *datadriven.TestData, by time.Duration) {
	until := s.world.now.Add(by)
	for range 500 {
		if s.wake.IsZero() || s.wake.After(until) {
			s.world.now = until
			return
		}
		s.world.now = release.LaterOf(s.world.now, s.wake)
		s.settle(t, d)
	}
	d.Fatalf(t, "woken 500 times in %s:\n%s", by, s.out.String())
}

func (s *scenario) settle(t *testing.T, d *datadriven.TestData) {
	if !s.world.settle(60, s.print) {
		d.Fatalf(t, "does not become idle:\n%s", s.out.String())
	}
}

// print prints the result of a reconciliation.
func (s *scenario) print(p reconciliation) {
	var b strings.Builder
	s.printGates(&b, p.Gates)
	if !p.statusWritten && len(p.Queries) == 0 && !p.Wake.IsZero() {
		fmt.Fprintf(&b, "  wake in %s\n", p.Wake.Sub(s.world.now))
	}
	s.wake = p.Wake
	if p.statusWritten {
		s.wake = time.Time{} // the write itself requeues the Canary
	}
	head := s.head()
	state := head + b.String()
	var changes strings.Builder
	for _, effect := range p.changes {
		fmt.Fprintf(&changes, "  %s\n", effect)
	}
	switch {
	case p.crashed:
		changes.WriteString("  CRASH before the status was written\n")
	default:
		s.printEvents(&changes, p.Events)
		if p.Ending != "" {
			fmt.Fprintf(&changes, "  counted as %s\n", p.Ending)
		}
	}
	if s.world.deleted {
		changes.WriteString("  the Canary is gone\n")
	}
	if state == s.lastState && changes.Len() == 0 {
		return
	}
	s.lastState = state
	s.out.WriteString(state + changes.String())
}

func (s *scenario) head() string {
	status := s.world.status
	phase := string(status.Phase)
	if phase == "" {
		phase = "new"
	}
	out := fmt.Sprintf("%s weight=%d iterations=%d failed=%d", phase, status.CanaryWeight, status.Iterations, status.FailedChecks)
	for _, c := range status.Conditions {
		switch c.Type {
		case flaggerv1.ConditionPromoted, flaggerv1.ConditionReady, flaggerv1.ConditionReconciling, flaggerv1.ConditionStalled: // see status
		default:
			out += fmt.Sprintf("\n  %s %s: %s", strings.ToLower(c.Type), c.Reason, c.Message)
		}
	}
	return out + "\n"
}

func (s *scenario) printGates(b *strings.Builder, gates release.Gates) {
	var passed, deferred []string
	for _, g := range gates {
		switch {
		case g.IsNotice():
		case g.Verdict == release.Pass && g.Message == "": // nothing was evaluated
		case g.Verdict == release.Pass && strings.HasPrefix(g.Message, "lifted"):
			passed = append(passed, g.Name+" ("+g.Message+")")
		case g.Verdict == release.Pass:
			passed = append(passed, g.Name)
		case isDeferred(g):
			deferred = append(deferred, g.Name)
		}
	}
	if len(passed) > 0 {
		fmt.Fprintf(b, "  pass %s\n", strings.Join(passed, ", "))
	}
	for _, g := range gates {
		switch {
		case g.IsNotice():
			fmt.Fprintf(b, "  notice %s: %s\n", g.Name, g.Message)
			continue
		case g.Verdict == release.Pass, isDeferred(g):
			continue
		}
		fmt.Fprintf(b, "  %s %s (%s): %s\n", g.Verdict, g.Name, g.Opener, g.Message)
	}
	if len(deferred) > 0 {
		fmt.Fprintf(b, "  later %s\n", strings.Join(deferred, ", "))
	}
}

// isDeferred reports whether a gate waits only for those before it.
func isDeferred(g release.Gate) bool {
	return g.Message == "queried when the gates before it pass" || g.Message == "evaluated when the pods are ready"
}

// printEvents prints events; a persistent event is printed when it starts.
func (s *scenario) printEvents(b *strings.Builder, events []release.Event) {
	ongoing := map[string]bool{}
	for _, event := range events {
		if event.Persistent {
			ongoing[event.Message] = true
			if s.reported[event.Message] {
				continue
			}
		}
		kind := "event"
		if event.Type == release.Warning {
			kind = "warning"
		}
		fmt.Fprintf(b, "  %s %s\n", kind, event.Message)
		if event.Alert != nil {
			fmt.Fprintf(b, "    alert %s: %s\n", event.Alert.Severity, event.Alert.Message)
		}
	}
	s.reported = ongoing
}

func (s *scenario) status() string {
	w := s.world
	var b strings.Builder
	b.WriteString(s.head())
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %s %s\n", name, value)
		}
	}
	line("applied", w.status.LastAppliedSpec)
	line("promoted", w.status.LastPromotedSpec)
	line("cookie", w.status.SessionAffinityCookie)
	line("primary-cookie", w.status.PrimarySessionAffinityCookie)
	line("previous-cookie", w.status.PreviousSessionAffinityCookie)
	for _, c := range w.status.Conditions {
		line("condition", fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	if w.status.Serin != nil {
		line("serin", fmt.Sprintf("revision=%s promoted=%s", w.status.Serin.Revision, w.status.Serin.Promoted))
		if queue := w.status.Serin.Queue; queue != nil {
			line("queue", fmt.Sprintf("since=%s aside=%v", queue.Since.UTC().Format(time.TimeOnly), queue.Aside))
		}
		if record := w.status.Serin.Release; record != nil {
			line("release", recordText(*record))
		}
		for _, record := range w.status.Serin.History {
			line("history", recordText(record))
		}
	}
	line("target", workloadText(w.target))
	line("primary", workloadText(w.primary))
	if route := w.route(); route != nil {
		line("route", release.Route{Canary: route.Canary, Mirror: release.Mirror{Enabled: route.Mirrored}}.String())
	}
	return b.String()
}

func recordText(r flaggerv1.ReleaseRecord) string {
	text := fmt.Sprintf("%s %v max=%d since %s", r.Revision, r.Images, r.MaxWeight, r.Start.UTC().Format(time.TimeOnly))
	if r.End != nil {
		text += fmt.Sprintf(" until %s: %s", r.End.UTC().Format(time.TimeOnly), r.Result)
	}
	if r.Command != "" {
		text += strings.TrimSuffix(", command "+r.Command+" by "+r.CommandBy, " by ")
	}
	if r.Cause != nil {
		text += fmt.Sprintf(", cause %s %q", r.Cause.Gate, r.Cause.Message)
		if r.Cause.Limit != "" {
			text += fmt.Sprintf(" (%s, limit %s, query %q)", r.Cause.Value, r.Cause.Limit, r.Cause.Query)
		}
	}
	return text
}

func workloadText(p workload) string {
	if !p.found {
		return "gone"
	}
	return fmt.Sprintf("%s %d/%d", p.revision(), p.available, p.replicas)
}

// applySetting changes the spec or the world.
func (s *scenario) applySetting(t *testing.T, d *datadriven.TestData, arg datadriven.CmdArg) {
	w := s.world
	if w.spec.Analysis == nil && !w.noAnalysis {
		w.spec.Analysis = &flaggerv1.CanaryAnalysis{Interval: "1m", Threshold: 1}
		w.spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	}
	a := w.spec.Analysis
	switch arg.Key {
	case "from": // nothing: the initialisation is part of the scenario
	case "step":
		a.StepWeight = integer(t, d, arg)
	case "steps":
		a.StepWeights = nil
		for _, v := range arg.Vals {
			n, err := strconv.Atoi(v)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			a.StepWeights = append(a.StepWeights, n)
		}
	case "max":
		a.MaxWeight = integer(t, d, arg)
	case "promotion-step":
		a.StepWeightPromotion = integer(t, d, arg)
	case "mirror":
		a.Mirror = value(arg) != "no"
	case "iterations":
		a.Iterations = integer(t, d, arg)
	case "match":
		a.Match = nil
		if value(arg) == "no" {
			break
		}
		a.Match = []flaggerv1.AnalysisMatch{{Headers: map[string]flaggerv1.HeaderMatch{"x-canary": {Exact: "always"}}}}
	case "threshold":
		a.Threshold = integer(t, d, arg)
	case "interval":
		a.Interval = value(arg)
	case "floor":
		w.settings.MinInterval = duration(t, d, arg)
	case "deadline":
		seconds := int32(duration(t, d, arg) / time.Second)
		w.spec.ProgressDeadlineSeconds = &seconds
	case "provider":
		w.spec.Provider = value(arg)
	case "kind":
		w.spec.TargetRef.Kind = value(arg)
	case "target":
		w.spec.TargetRef.Name = value(arg)
	case "service":
		w.spec.Service.Name = value(arg)
	case "drain":
		w.settings.Drain = duration(t, d, arg)
	case "no-analysis":
		w.spec.Analysis = nil
		w.noAnalysis = true
		return
	case "skip":
		w.spec.SkipAnalysis = value(arg) != "no"
	case "suspend":
		w.spec.Suspend = value(arg) != "no"
	case "revert":
		w.spec.RevertOnDeletion = value(arg) != "no"
	case "cookie":
		a.SessionAffinity = &flaggerv1.SessionAffinity{CookieName: value(arg)}
	case "primary-cookie":
		a.SessionAffinity.PrimaryCookieName = value(arg)
	case "hooks":
		a.Webhooks = hooks(arg.Vals)
	case "checks":
		a.Metrics = checks(t, d, arg.Vals)
	case "sources": // the answer to the first query of the metrics providers
		w.standingAnswers["sources"] = value(arg)
	case "missing":
		s.setFact(t, d, arg)
	case "pods":
		w.instantPods = value(arg) == "instant"
	case "replicas":
		w.target.scale(int32(integer(t, d, arg)), true)
	default:
		d.Fatalf(t, "unknown setting %s", arg.Key)
	}
}

// hooks reads type:name, type:name:muted or type:name:path.
func hooks(vals []string) []flaggerv1.CanaryWebhook {
	var out []flaggerv1.CanaryWebhook
	for _, v := range vals {
		parts := strings.Split(v, ":")
		if len(parts) < 2 {
			continue
		}
		hook := flaggerv1.CanaryWebhook{Type: flaggerv1.HookType(parts[0]), Name: parts[1], URL: "http://hooks/" + parts[1]}
		if len(parts) > 2 {
			hook.MuteAlert = parts[2] == "muted"
			hook.URL += "/" + parts[2]
		}
		out = append(out, hook)
	}
	return out
}

// checks reads success-rate:99, duration:500, NAME:5 (a template) and NAME:5:inline; a second number is the range in
// minutes.
func checks(t *testing.T, d *datadriven.TestData, vals []string) []flaggerv1.CanaryMetric {
	var out []flaggerv1.CanaryMetric
	for _, v := range vals {
		parts := strings.Split(v, ":")
		if len(parts) < 2 {
			continue
		}
		bound, err := strconv.ParseFloat(parts[1], 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		m := flaggerv1.CanaryMetric{Name: parts[0]}
		switch m.Name {
		case canary.SuccessRate:
			m.ThresholdRange = &flaggerv1.CanaryThresholdRange{Min: &bound}
		case canary.Duration:
			m.ThresholdRange = &flaggerv1.CanaryThresholdRange{Max: &bound}
		default:
			m.ThresholdRange = &flaggerv1.CanaryThresholdRange{Max: &bound}
			if len(parts) > 2 && parts[2] == "inline" {
				m.Query = "sum(errors)"
			} else {
				m.TemplateRef = &flaggerv1.CrossNamespaceObjectReference{Name: parts[0]}
			}
		}
		if n := len(parts) - 1; n > 1 && strings.HasSuffix(parts[n], "m") {
			m.Interval = parts[n]
		}
		out = append(out, m)
	}
	return out
}

// setFact changes the world.
func (s *scenario) setFact(t *testing.T, d *datadriven.TestData, arg datadriven.CmdArg) {
	w := s.world
	switch arg.Key {
	case "target":
		if value(arg) == "gone" {
			w.target, w.targetProblem = workload{endpoints: w.target.endpoints}, fmt.Sprintf("deployment %s.shop get query error: not found", w.plan().Target)
			return
		}
		w.targetProblem = ""
		w.target.found = true
		w.target.roll(content{value(arg), w.target.config}, "", w.instantPods)
	case "other": // another target, as kind/name:template
		key, template, _ := strings.Cut(value(arg), ":")
		other := w.others[key]
		other.target = newTarget(template)
		w.others[key] = other
	case "target-problem": // a ConfigMap that does not exist, or nothing
		w.targetProblem = ""
		if value(arg) != "nothing" {
			w.targetProblem = "configmap " + value(arg) + ".shop get query error: not found"
		}
	case "autoscaler-problem": // a HorizontalPodAutoscaler that does not exist, or nothing
		w.scalerProblem = ""
		if value(arg) != "nothing" {
			w.scalerProblem = "HorizontalPodAutoscaler " + value(arg) + ".shop get query error: not found"
		}
	case "target-limit": // the maximum of the target's autoscaler, which removes pods beyond it at once
		w.targetLimit = int32(integer(t, d, arg))
	case "config":
		w.target.roll(content{w.target.template, value(arg)}, "", w.instantPods)
	case "canary-ready":
		ready(t, d, arg, &w.target)
	case "primary-ready":
		ready(t, d, arg, &w.primary)
	case "canary-exceeded":
		w.target.deadlineExceeded = true
	case "endpoints": // endpointsDelayed, prompt, unread
		w.endpointsDelayed, w.endpointsUnreadable = value(arg) == "late", value(arg) == "unread"
	case "canary-service": // gone, made, or that of another target
		w.target.noService, w.target.otherService = value(arg) == "gone", value(arg) == "other"
		w.target.serviceCreated, w.target.endpoints = w.now, 0
	case "apex": // edited: it selects the target
		w.apex = value(arg) != "edited"
	case "apex-former-endpoints": // endpoints of pods that the apex no longer selects
		w.apexFormerEndpoints = int32(integer(t, d, arg))
	case "canary-endpoints":
		w.target.endpoints = int32(integer(t, d, arg))
	case "primary-endpoints":
		w.primary.endpoints = int32(integer(t, d, arg))
	case "primary-exceeded":
		w.primary.deadlineExceeded = true
	case "canary-problem":
		w.target.podProblem = value(arg)
	case "primary":
		w.history = append(w.history, w.primary.content)
		w.primary = workload{endpoints: w.primary.endpoints}
	case "history":
		w.history = nil
	case "primary-content":
		w.history = append(w.history, w.primary.content)
		w.primary.roll(content{template: value(arg)}, "another", false)
	case "route":
		s.setRoute(t, d, value(arg))
	case "refused":
		w.refusedEffects = value(arg)
	case "router":
		w.route().Confirmation, w.route().Reason = canary.Confirmation(value(arg)), ""
		if value(arg) == "no" {
			w.route().Reason = "VirtualService cart.shop is not accepted yet"
		}
	case "clock":
		w.now = w.now.Add(duration(t, d, arg))
	case "pods":
		w.instantPods = value(arg) == "instant"
	case "delete":
		w.deleting = true
	case "obstacle":
		w.targetConflict = strings.Join(arg.Vals, ",")
	case "turn": // 2/3 waiting, open, or nothing for no limit
		switch to := value(arg); to {
		case "nothing":
			w.queue = nil
		case "open":
			w.queue = &release.QueueState{Open: true, InProgress: 4, Limit: 5}
		default:
			w.queue = &release.QueueState{InProgress: 5, Limit: 5}
			if _, err := fmt.Sscanf(to, "%d/%d", &w.queue.Position, &w.queue.Waiting); err != nil {
				d.Fatalf(t, "%v", err)
			}
		}
	case "flagger": // runs, gone, or held for that long
		switch held, err := time.ParseDuration(value(arg)); {
		case value(arg) == "gone":
			w.flagger = canary.OtherController{}
		case err == nil:
			w.flagger = canary.OtherController{Sign: "its Lease is held", Until: w.now.Add(held)}
		default:
			w.flagger = canary.OtherController{Sign: "its Deployment has ready pods"}
		}
	case "port-warning":
		w.portWarning = "spec.service.port is 9898, which is not a containerPort of Deployment cart (8080)"
	case "missing-alert-provider":
		w.missingAlertProviders = nil
		if value(arg) != "nothing" {
			w.missingAlertProviders = []string{"alert provider " + value(arg) + ".shop does not exist"}
		}
	case "unreported": // a parent of the route, or nothing
		w.unreported = canary.Unreported{}
		if value(arg) != "nothing" {
			w.unreported = canary.Unreported{Message: "Gateway " + value(arg) + " does not exist", Since: w.now}
		}
	case "missing":
		w.missingReferences = nil
		if value(arg) != "nothing" {
			w.missingReferences = []string{"Metric template " + value(arg) + ".shop error: not found"}
		}
	case "answer": // the command that answers a gate: approve or deny, and the gate
		verb := map[string]string{"approve": canary.CommandPromote, "deny": canary.CommandAbort}[arg.Vals[0]]
		w.command = canary.NewAnswer(canary.NewCommand(verb, "uid", w.status), arg.Vals[1])
	case "command":
		verb, withoutStep := strings.CutSuffix(value(arg), "@")
		if w.command = canary.NewCommand(verb, "uid", w.status); withoutStep {
			w.command, _, _ = strings.Cut(w.command, "/")
		}
	case "by": // the user and the reason of the command
		w.commandBy = strings.Join(arg.Vals, ": ")
	case "crash":
		w.crash = integer(t, d, arg)
	case "newest":
		w.newestTemplate = w.now.Add(duration(t, d, arg))
	case "peer":
		s.setFlaggerStatus(t, d, arg.Vals)
	default:
		d.Fatalf(t, "unknown fact %s", arg.Key)
	}
}

func (s *scenario) setRoute(t *testing.T, d *datadriven.TestData, to string) {
	w := s.world
	w.routeError = ""
	switch to {
	case "gone":
		delete(w.routes, w.plan().Provider)
	case "unreadable":
		w.routeError = "VirtualService cart.shop cannot be read"
	case "readable":
	case "matched": // the weight is that of matching requests
		w.matched[w.plan().Provider] = true
	case "mirror":
		w.route().Canary, w.route().Mirrored = 0, true
	default:
		n, err := strconv.Atoi(to)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		w.route().Canary, w.route().Mirrored = n, false
	}
}

// setFlaggerStatus makes the status one that Flagger left: phase, then key=value for weight, iterations, failed, applied,
// promoted.
func (s *scenario) setFlaggerStatus(t *testing.T, d *datadriven.TestData, vals []string) {
	w := s.world
	old := w.status
	w.status = flaggerv1.CanaryStatus{
		Phase: flaggerv1.CanaryPhase(vals[0]), LastAppliedSpec: old.LastAppliedSpec, LastPromotedSpec: old.LastPromotedSpec,
		LastTransitionTime: old.LastTransitionTime, Conditions: old.Conditions, TrackedConfigs: map[string]string{},
	}
	w.status.LastTransitionTime.Time = w.now
	for _, v := range vals[1:] {
		key, val, _ := strings.Cut(v, ":")
		n, _ := strconv.Atoi(val)
		switch key {
		case "weight":
			w.status.CanaryWeight = n
		case "iterations":
			w.status.Iterations = n
		case "failed":
			w.status.FailedChecks = n
		case "applied":
			w.status.LastAppliedSpec = val
		case "promoted":
			w.status.LastPromotedSpec = val
		default:
			d.Fatalf(t, "unknown field %s of Flagger's status", key)
		}
	}
}

func ready(t *testing.T, d *datadriven.TestData, arg datadriven.CmdArg, p *workload) {
	available, replicas, ok := strings.Cut(value(arg), "/")
	a, err := strconv.Atoi(available)
	r, err2 := strconv.Atoi(replicas)
	if !ok || err != nil || err2 != nil {
		d.Fatalf(t, "%s is not available/replicas", value(arg))
	}
	p.replicas, p.total, p.available, p.deadlineExceeded, p.podProblem = int32(r), int32(r), int32(a), false, ""
}

func value(arg datadriven.CmdArg) string {
	if len(arg.Vals) == 0 {
		return ""
	}
	return strings.Join(arg.Vals, ",")
}

func integer(t *testing.T, d *datadriven.TestData, arg datadriven.CmdArg) int {
	n, err := strconv.Atoi(value(arg))
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

func duration(t *testing.T, d *datadriven.TestData, arg datadriven.CmdArg) time.Duration {
	by, err := time.ParseDuration(value(arg))
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return by
}
