package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Canary is everything that was found out about one release by a Canary.
type Canary struct {
	Around

	// Object is the Canary as it is stored.
	Object *flaggerv1.Canary
	// Snapshot has no answers: a person's command asks nobody anything.
	Snapshot canary.Snapshot
	// WorkloadAssumed and RouteAssumed say that workload or route could not be read and stand in the snapshot as the
	// status implies them. What is said about them then comes from the status.
	WorkloadAssumed, RouteAssumed bool
}

// Key names the Canary.
func (seen *Canary) Key() Key { return Key{KindCanary, seen.Object.Namespace, seen.Object.Name} }

// Version is that of the object, and of the look.
func (seen *Canary) Version() Version {
	return Version{seen.Object.ResourceVersion, seen.Snapshot.Now}
}

// In is the same with other surroundings.
func (seen *Canary) In(around Around) Seen {
	other := *seen
	other.Around = around
	return &other
}

// At says where the release stands at that moment.
func (seen *Canary) At(now time.Time) Release {
	s := seen.Snapshot
	s.Now = now
	s.Peer = canary.Peer{Sign: seen.Peer.Sign, Until: seen.Peer.Until}
	s, d := looked(s)
	plan, status := s.Plan, s.Status
	f := ahead(s)
	r := Release{
		Kind: KindCanary,
		Name: plan.Name, Namespace: plan.Namespace, Target: plan.Kind + "/" + plan.Target,
		Provider: plan.Provider, Strategy: string(plan.Strategy),
		Phase: string(status.Phase), Since: utc(status.LastTransitionTime.Time), Suspended: plan.Suspended, Deleting: s.Deleting,
		Weight: live(s), Mirrored: s.Route.Mirrored,
		Iterations: status.Iterations, FailedChecks: status.FailedChecks, Threshold: plan.Threshold,
		Revision: status.LastAppliedSpec, Promoted: status.LastPromotedSpec,
		Window: window(s),
		Events: lastRun(seen.Events), Unread: slices.Clone(seen.Unread),
	}
	if plan.Strategy != canary.Weighted {
		r.TotalIterations = plan.Iterations
	}
	if own := status.Serin; own != nil {
		r.Run = own.Run
		if own.Revision != "" {
			r.Revision, r.Promoted = own.Revision, own.Promoted
		}
	}
	r.Gates = merge(seen, s, d.Gates, f.limits)
	r.State = stateOf(s, d, &r)
	r.Result = resultOf(status.Phase)
	r.Message = message(status)
	if r.State != AtRest && !s.Peer.Acts() {
		r.Steps = f.steps
		if len(f.steps) > 0 {
			r.NextStep = f.steps[0].Text
		}
	}
	return r
}

// looked is a decision, and the snapshot that it was made on. One that only notes down since when a deadline counts is
// followed by the next at once.
func looked(s canary.Snapshot) (canary.Snapshot, canary.Decision) {
	d := canary.Next(s)
	if len(d.Gates) > 0 || !slices.Equal(d.Stamp, []release.Stamp{release.StampSince}) || d.Status.Phase != s.Status.Phase {
		return s, d
	}
	s.Status = *d.Status.DeepCopy()
	canary.Stamp(&s.Status, s.Plan, d.Stamp, s.Now)
	return s, canary.Next(s)
}

// live is the canary's share of the requests.
func live(s canary.Snapshot) int {
	if s.Plan.Routed && s.Route.Found && s.Route.Problem == "" {
		return s.Route.Canary
	}
	return s.Status.CanaryWeight
}

// window is the open one.
func window(s canary.Snapshot) *Window {
	switch own := s.Status.Serin; {
	case own != nil && own.Window != nil && !own.Window.Start.IsZero():
		start := own.Window.Start.UTC()
		return &Window{Start: start, End: start.Add(s.Plan.Window)}
	case s.Pruned && s.Status.Phase == flaggerv1.CanaryPhaseProgressing && (s.Status.CanaryWeight > 0 || s.Status.Iterations > 0 || s.Route.Mirrored):
		start := s.Status.LastTransitionTime.UTC()
		return &Window{Start: start, End: start.Add(s.Plan.Window)}
	default:
		return nil
	}
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// atRest are the phases in which a release is over.
func atRest(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed:
		return true
	default:
		return false
	}
}

func resultOf(phase flaggerv1.CanaryPhase) Result {
	switch phase {
	case flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded:
		return Promoted
	case flaggerv1.CanaryPhaseFailed:
		return Failed
	default:
		return ""
	}
}

// stateOf says whether somebody has to do something.
func stateOf(s canary.Snapshot, d canary.Decision, r *Release) State {
	phase := s.Status.Phase
	if s.Peer.Acts() && atRest(phase) {
		return AtRest // what is new is for the other to take up
	}
	if s.Plan.Suspended && atRest(phase) {
		// A suspended release at rest keeps nobody waiting, unless there is something new.
		s.Plan.Suspended = false
		d = canary.Next(s)
		if atRest(d.Status.Phase) && d.Gates.First() == nil {
			r.Gates = nil
			return AtRest
		}
	}
	switch {
	case r.Person() != nil:
		return WaitsForPerson
	case returning(s):
		return Returning
	case !atRest(phase) || !atRest(d.Status.Phase):
		return Moving
	}
	if first := d.Gates.First(); first != nil && !strings.HasPrefix(first.Name, string(flaggerv1.PostRolloutHook)+"/") {
		return Moving // a new revision is there, and something has to be so before it starts
	}
	return AtRest
}

// returning is true from the decision to take a release back until it is over. The intents are those that the API
// documents.
func returning(s canary.Snapshot) bool {
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting:
	default:
		return false
	}
	if own := s.Status.Serin; own != nil && (own.Intent == "rollback" || own.Intent == "cancel") {
		return true
	}
	return s.Status.FailedChecks >= s.Plan.Threshold
}

// message is the sentence of the status: what blocks the release, else who does not answer, else what its phase means.
func message(status flaggerv1.CanaryStatus) string {
	silent, text := "", ""
	for _, c := range status.Conditions {
		switch {
		case c.Type == flaggerv1.ConditionBlocked && c.Status == corev1.ConditionTrue:
			return c.Message
		case c.Type == flaggerv1.ConditionUnanswered && c.Status == corev1.ConditionTrue:
			silent = c.Message
		case c.Type == flaggerv1.ConditionPromoted:
			text = c.Message
		}
	}
	return cmp.Or(silent, text)
}

// Names of gates that more than one function here asks for.
const (
	windowGate      = "window"
	unreachableGate = "provider-unreachable"
	peerGate        = "peer"
	deadlineGate    = "deadline"
	refusedGate     = "refused"
	sourcesGate     = "metrics-available"
	// askedPrefix begins the names of gates that hold rollout hooks while their answer is out.
	askedPrefix = "rollout-asked/"
)

// merge are the gates of the decision, with what only the controller can know: answers, and since when.
func merge(seen *Canary, s canary.Snapshot, gates release.Gates, limits map[string]string) []Gate {
	said := map[string]flaggerv1.GateStatus{}
	if s.Status.Serin != nil {
		for _, gate := range s.Status.Serin.Gates {
			said[gate.Name] = gate
		}
	}
	var out []Gate
	for _, name := range []string{refusedGate, unreachableGate} {
		if s.Peer.Acts() {
			break // what it said before is old
		}
		if gate, ok := said[name]; ok && gate.Verdict != string(release.Pass) && holds(name, s) {
			out = append(out, told(gate))
		}
	}
	for _, gate := range gates {
		old, known := said[gate.Name]
		if seen.assumed(gate.Name) {
			if known {
				out = append(out, told(old))
			}
			continue
		}
		g := Gate{
			Name: gate.Name, Verdict: string(gate.Verdict), Message: gate.Message, Opener: string(gate.Opener),
			Value: gate.Value, Limit: gate.Limit, Query: gate.Query, Until: utc(gate.Until),
		}
		if strings.HasPrefix(gate.Name, askedPrefix) && !current(old, known, s) {
			continue // nobody but the controller knows whether the hook has answered, and it says so when that takes long
		}
		question := describeQuestion(s.Plan, seen.Object, gate.Name)
		g.Asks, g.Check = question.asks, question.check
		switch {
		case question.asks != "":
			g = answered(g, old, known, s.Now)
			if g.Limit == "" {
				g.Limit = limits[gate.Name]
			}
		case known && old.Verdict == g.Verdict:
			if old.Since != nil {
				g.Since = utc(old.Since.Time)
			}
			if strings.HasPrefix(old.Message, g.Message) {
				g.Message = old.Message // the controller looks at pods, and names what keeps them from running
			}
		}
		if w := window(s); g.Name == windowGate && w != nil && g.Verdict != string(release.Pass) {
			g.Since = w.Start
		}
		if g.Opener == string(release.ByPerson) && g.Verdict != string(release.Pass) {
			g.Do = do(seen, question.hook, g.Name)
		}
		out = append(out, g)
	}
	return out
}

// holds is false for a gate of the status that time has overtaken.
func holds(name string, s canary.Snapshot) bool {
	if name == refusedGate {
		return slices.ContainsFunc(s.Status.Conditions, func(c flaggerv1.CanaryCondition) bool {
			return c.Type == flaggerv1.ConditionBlocked && c.Status == corev1.ConditionTrue
		})
	}
	w := window(s)
	return w != nil && !s.Now.Before(w.End)
}

// current is true for a gate of the status that was written about the open window.
func current(old flaggerv1.GateStatus, known bool, s canary.Snapshot) bool {
	w := window(s)
	return known && w != nil && old.Since != nil && !old.Since.Time.Before(w.Start)
}

// told is a gate as the status has it.
func told(g flaggerv1.GateStatus) Gate {
	out := Gate{
		Name: g.Name, Verdict: g.Verdict, Message: g.Message, Opener: g.Opener,
		Value: g.Value, Limit: g.Limit, Query: g.Query,
	}
	if g.Since != nil {
		out.Since = utc(g.Since.Time)
	}
	if g.Until != nil {
		out.Until = utc(g.Until.Time)
	}
	return out
}

// assumed is true for gates about something that could not be read.
func (seen *Canary) assumed(gate string) bool {
	switch gate {
	case "primary-ready", "canary-ready", "primary-serves", "primary-restored", "target-ready", "target",
		"canary-endpoints", "primary-endpoints", "target-endpoints":
		return seen.WorkloadAssumed
	case "route", "route-confirmed":
		return seen.RouteAssumed
	default:
		return false
	}
}

// answered adds to a gate with a question what the controller was answered last.
func answered(g Gate, old flaggerv1.GateStatus, known bool, now time.Time) Gate {
	if !known {
		return g
	}
	g.Value, g.Limit, g.Query = old.Value, old.Limit, old.Query
	if old.Verdict == string(release.Pass) && askedOnce(g.Name) {
		return toldAsked(g, old)
	}
	switch release.Verdict(old.Verdict) {
	case release.Pass, release.Fail:
		if g.Verdict == string(release.Pass) {
			break
		}
		g.Last = old.Verdict
		if old.Message != "" {
			g.Message += "; the last answer: " + old.Message
		}
		if old.Opener == string(release.ByPerson) { // a rollback that somebody asked for
			return toldAsked(g, old)
		}
	case release.Wait:
		if old.Opener == string(release.ByPerson) {
			// Somebody refused. When the gate is asked again does not change who opens it.
			g = toldAsked(g, old)
			if !g.Until.After(now) {
				g.Until = time.Time{}
			}
		}
	case release.Ask:
		if g.Verdict == old.Verdict && old.Since != nil {
			g.Since = utc(old.Since.Time)
		}
	}
	return g
}

// askedOnce is true for questions whose yes holds for the whole run; all others are asked in every window.
func askedOnce(gate string) bool {
	kind, _, _ := strings.Cut(gate, "/")
	switch kind {
	case sourcesGate, string(flaggerv1.ConfirmRolloutHook), string(flaggerv1.PreRolloutHook), string(flaggerv1.PostRolloutHook):
		return true
	default:
		return false
	}
}

// toldAsked is the gate as the status has it, with whom it asks.
func toldAsked(g Gate, old flaggerv1.GateStatus) Gate {
	out := told(old)
	out.Asks, out.Check, out.Last = g.Asks, g.Check, g.Last
	return out
}

// question is what a gate asks.
type question struct {
	// asks is empty for gates that ask nobody.
	asks  string
	check bool
	hook  *flaggerv1.CanaryWebhook
}

func describeQuestion(plan canary.Plan, object *flaggerv1.Canary, gate string) question {
	if gate == sourcesGate {
		return question{asks: "the metrics providers of all checks"}
	}
	for i := range plan.Hooks {
		hook := &plan.Hooks[i]
		if gate == string(hook.Type)+"/"+hook.Name || hook.Type == flaggerv1.RolloutHook && gate == askedPrefix+hook.Name {
			return question{asks: "webhook " + hook.Name + " at " + outbound.Redact(hook.URL), hook: hook}
		}
	}
	for _, check := range plan.Checks {
		if check.Metric.Name == gate {
			return question{asks: source(check, object), check: true}
		}
	}
	return question{}
}

// source is where a measurement comes from.
func source(check canary.Check, object *flaggerv1.Canary) string {
	if check.Source == canary.Template {
		ref := *check.Metric.TemplateRef
		if ref.Namespace == "" {
			ref.Namespace = object.Namespace
		}
		return "MetricTemplate " + ref.Name + "." + ref.Namespace
	}
	if object.Spec.MetricsServer != "" {
		return "Prometheus at " + outbound.Redact(object.Spec.MetricsServer)
	}
	return "the Prometheus of the controller"
}

// do says what a person can do to open a gate. Most gates say it in their message already.
func do(seen *Canary, hook *flaggerv1.CanaryWebhook, gate string) string {
	plan := seen.Snapshot.Plan
	switch gate {
	case peerGate:
		return seen.Peer.Stop
	case "suspended":
		return fmt.Sprintf(`kubectl -n %s patch canary/%s --type=merge -p '{"spec":{"suspend":false}}'`, plan.Namespace, plan.Name)
	}
	if hook == nil || hook.Type == flaggerv1.RollbackHook {
		return ""
	}
	url := outbound.Redact(hook.URL)
	base, tester := strings.CutSuffix(url, "/gate/check") // the load tester's gates, which answer what they were told last
	switch {
	case tester:
		return fmt.Sprintf(`curl -d '{"name":%q,"namespace":%q}' %s/gate/open`, plan.Name, plan.Namespace, base)
	case strings.HasSuffix(url, "/gate/halt"):
		return fmt.Sprintf("%s refuses always: give hook %s in spec.analysis.webhooks another URL", url, hook.Name)
	default:
		return fmt.Sprintf("let %s answer with a status of 2xx", url)
	}
}

// lastRun are the events since a revision was last taken up.
func lastRun(events []Event) []Event {
	for i, event := range slices.Backward(events) {
		if strings.HasPrefix(event.Message, "New revision detected!") {
			return slices.Clone(events[i:])
		}
	}
	return slices.Clone(events)
}
