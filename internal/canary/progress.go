package canary

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// release0 is the moment from which every answer counts.
var release0 time.Time

// progress moves a revision on, window by window, or takes it back.
func progress(s Snapshot) Decision {
	if s.serin().Revision == "" && !s.Pruned {
		return adopted(s)
	}
	switch s.serin().Intent {
	case intentRollback, intentCancel:
		return takeBack(s)
	case intentSkip:
		return skipping(s)
	}
	if s.Status.FailedChecks >= s.Plan.Threshold {
		return takeBack(s)
	}
	if d, ok := changed(s); ok {
		return d
	}
	switch {
	case s.commanded("abort"):
		e := s.edit()
		e.serin.Command = s.Command
		return e.intend(intentRollback, reasonAbort).tell(release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Rolling back %s aborted by command", s.Plan.full()),
		}).done(nil)
	case s.commanded("promote"):
		e := s.edit()
		e.serin.Command = s.Command
		return e.intend(intentSkip, "a person promoted the release").done(nil)
	}
	effects := standing(s, ScalerPaused{Paused: false})
	if s.Workload.Target.Replicas == 0 {
		effects = append(effects, UpFromZero{})
	}
	if s.Plan.Skip {
		gates := release.Look(s, canaryReady)
		if gates.Verdict() != release.Pass {
			return notReady(s, gates, effects)
		}
		return s.edit().effect(effects...).intend(intentSkip, "spec.skipAnalysis is true").done(gates)
	}
	if d, ok := strayed(s, effects); ok {
		return d
	}
	if _, open := s.start(); !open {
		return firstLook(s, effects)
	}
	return judgeWindow(s, effects)
}

// adopted takes up a run of another controller where it stands. Its window starts again, because we did not see it.
func adopted(s Snapshot) Decision {
	e := s.edit()
	e.serin.Revision, e.serin.Promoted, e.serin.Configs = s.pinned(), s.promoted(), s.Workload.Configs
	e.serin.Shape, e.serin.Run = s.Plan.shape(), s.run()
	e.stamp(release.StampSince)
	where := fmt.Sprintf("weight %d", s.live())
	if s.Plan.Strategy != Weighted {
		where = fmt.Sprintf("iteration %d/%d", s.Status.Iterations, s.Plan.Iterations)
	}
	if s.live() > 0 || s.Status.CanaryWeight > 0 || s.Status.Iterations > 0 || s.Route.Mirrored {
		e.serin.Started = true
		if s.Plan.Strategy == Weighted {
			e.status.CanaryWeight = s.live()
		}
		e.window()
	}
	return e.tell(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s at %s", s.Plan.workload(), s.Status.Phase, where),
	}).done(nil)
}

// intend records what is going to be carried out, before anything of it is.
func (e *edit) intend(intent, why string) *edit {
	e.serin.Intent, e.serin.Reason = intent, why
	return e
}

// changed notices that the run is about something else than the target is now.
func changed(s Snapshot) (Decision, bool) {
	revision := s.Workload.Target.Revision
	reshaped := s.serin().Shape != "" && s.serin().Shape != s.Plan.shape()
	if revision == s.pinned() && !reshaped {
		return Decision{}, false
	}
	if revision == s.promoted() {
		e := s.edit()
		e.applied()
		return e.intend(intentCancel, "the target is back at the promoted revision").tell(cancelled(s)).done(nil), true
	}
	e := s.edit()
	if !s.serin().Started && !s.exposed() {
		// Nobody has asked or seen anything of it yet: ConfigMap and Deployment of one change arrive one after the other.
		e.run()
		return e.stamp(release.StampSince).done(nil), true
	}
	exposed := s.exposed()
	if exposed && (s.Workload.Primary.serves() || s.Workload.Target.Available == 0) {
		e.effect(RouteIs{Provider: s.shapedBy()})
	}
	e.zero()
	e.run()
	e.phase(flaggerv1.CanaryPhaseProgressing)
	e.stamp(release.StampSince)
	if exposed {
		e.stamp(release.StampLeft)
		e.forgetCookie()
	}
	return e.tell(release.Event{
		Type: release.Normal, Message: "New revision detected! Restarting analysis for " + s.Plan.workload(),
	}).done(nil), true
}

// shapedBy is the provider that carries the traffic of the run, when the plan names another one by now.
func (s Snapshot) shapedBy() string {
	parts := strings.Split(s.serin().Shape, "/")
	if len(parts) < 2 || parts[1] == s.Plan.Provider || parts[1] == ProviderKubernetes {
		return ""
	}
	return parts[1]
}

// strayed puts the traffic right when it is not where the run left it. A weight above zero that somebody else set is
// taken over; a weight that is lost is written again, and observed anew.
func strayed(s Snapshot, effects []release.Effect) (Decision, bool) {
	if !s.Plan.Routed || s.Route.Problem != "" {
		return Decision{}, false
	}
	if _, open := s.start(); !open {
		return Decision{}, false
	}
	live, said := s.live(), s.Status.CanaryWeight
	if !s.Route.Found {
		live = 0
	}
	switch {
	case live > said && !s.Workload.Primary.serves():
		return Decision{}, false // traffic never moves to a copy that cannot answer
	case live == 0 && said > 0, s.Plan.Strategy != Weighted && live != said:
		return s.edit().effect(effects...).effect(RouteIs{Canary: said, Mirror: s.mirrors(s.Status.Iterations)}).window().tell(release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Restored %s canary weight %d, which was changed to %d by somebody else", s.Plan.full(), said, live),
		}).done(nil), true
	case s.Plan.Strategy == Weighted && live > 0 && live != said && live == s.Plan.next(said):
		// The step was taken, and the process died before it could say so.
		e := s.edit().effect(effects...)
		e.status.CanaryWeight = live
		return e.window().tell(advanced(s, live)).done(nil), true
	default:
		return Decision{}, false
	}
}

// mirrors is true while blue/green copies requests to the canary.
func (s Snapshot) mirrors(iteration int) bool {
	return s.Plan.Mirror && s.Plan.Strategy == BlueGreen && iteration >= 1 && iteration <= s.Plan.Iterations
}

func advanced(s Snapshot, weight int) release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Advance %s canary weight %d", s.Plan.full(), weight)}
}

// notReady waits for the canary, or takes it back when its deadline passed.
func notReady(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	if first == nil || first.Name != "canary-ready" || first.Verdict != release.Fail {
		return hold(s, gates, effects...)
	}
	return s.edit().effect(effects...).intend(intentRollback, first.Message).tell(
		release.Event{Type: release.Warning, Message: first.Message},
		release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Rolling back %s progress deadline exceeded %s", s.Plan.full(), first.Message),
			Alert: &release.Alert{Severity: release.Error, Message: "Progress deadline exceeded " + first.Message},
		}).done(gates)
}

// firstLook asks what must be so before the new revision gets its first request.
func firstLook(s Snapshot, effects []release.Effect) Decision {
	ready := release.Look(s, primaryReady, canaryReady)
	if ready.Verdict() != release.Pass {
		return notReady(s, ready, effects)
	}
	since := release0
	if asked := s.serin().Asked; asked != nil {
		since = asked.Add(s.Plan.Window)
	}
	pre := s.Plan.hooks(flaggerv1.PreRolloutHook)
	conditions := []gate{primaryReady, canaryReady}
	for _, hook := range s.Plan.hooks(flaggerv1.RollbackHook) {
		conditions = append(conditions, rollbackAsked(hook, "first", since))
	}
	asks := len(pre) > 0
	if asks && !s.serin().Started && !s.Pruned {
		// That the hooks are asked is said before they are, so that a crash does not ask them of another attempt.
		gates := release.Look(s, conditions...)
		if gates.Verdict() == release.Pass {
			e := s.edit().effect(effects...)
			e.serin.Started = true
			return e.tell(gates.Events()...).tell(s.starting()...).done(gates)
		}
		return firstRefused(s, gates, effects, nil)
	}
	for _, hook := range pre {
		conditions = append(conditions, preRollout(hook, since))
	}
	if s.Plan.Strategy == Weighted {
		conditions = append(conditions, s.trafficGates("first")...)
	}
	gates := release.Look(s, conditions...)
	var begins []release.Event
	if !s.serin().Started || s.serin().Asked != nil {
		begins = s.starting()
	}
	if gates.Verdict() != release.Pass {
		return firstRefused(s, gates, effects, begins)
	}
	e := s.edit().effect(effects...).tell(insertStart(gates, begins)...)
	e.serin.Started, e.serin.Asked, e.serin.Held = true, nil, ""
	return advance(e, gates)
}

// insertStart tells what rollback hooks said before the start, and everything else after it.
func insertStart(gates release.Gates, begins []release.Event) []release.Event {
	var before, after []release.Event
	for _, gate := range gates {
		if isHook(&gate, flaggerv1.RollbackHook) {
			before = append(before, gate.Events...)
		} else {
			after = append(after, gate.Events...)
		}
		if gate.Verdict != release.Pass {
			break
		}
	}
	return append(append(before, begins...), after...)
}

// starting is told at the first look, with what the provider makes of the plan.
func (s Snapshot) starting() []release.Event {
	events := []release.Event{{Type: release.Normal, Message: "Starting canary analysis for " + s.Plan.workload()}}
	if s.serin().Asked == nil {
		for _, note := range s.Plan.Notes {
			events = append(events, release.Event{Type: release.Warning, Message: note})
		}
	}
	return events
}

// preRollout is a test of the new revision before it has users. A refusal is a failed check.
func preRollout(hook flaggerv1.CanaryWebhook, since time.Time) gate {
	return func(s Snapshot) release.Gate {
		name := string(hook.Type) + "/" + hook.Name
		p := s.hookProbe(hook, flaggerv1.CanaryPhaseProgressing, s.run(), since)
		answer, ok := s.Answers.To(p)
		switch {
		case !ok && s.Now.Before(since):
			return release.WaitsUntil(name, since, hook.Name+" refused; asked again at "+since.UTC().Format(time.TimeOnly))
		case !ok:
			return release.Asks(name, p, "waiting for the answer of "+hook.Name)
		case answer.Outcome == release.Yes:
			g := release.Passes(name, "passed")
			g.Events = []release.Event{{Type: release.Normal, Message: fmt.Sprintf("Pre-rollout check %s passed", hook.Name)}}
			return g
		default:
			g := release.Fails(name, release.ByTime, hook.Name+" failed "+answer.Text)
			g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement pre-rollout check %s failed %s", s.Plan.full(), hook.Name, answer.Text)}}
			return g
		}
	}
}

// trafficGates are the hooks that must approve every increase of the weight.
func (s Snapshot) trafficGates(attempt string) []gate {
	var out []gate
	for _, hook := range s.Plan.hooks(flaggerv1.ConfirmTrafficIncreaseHook) {
		out = append(out, approves(hook, flaggerv1.CanaryPhaseProgressing, attempt+"/"+s.run(), release0,
			fmt.Sprintf("Confirm-traffic-increase check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for traffic increase approval %s", s.Plan.full(), hook.Name)))
	}
	return out
}

// firstRefused is a first look at which something did not pass.
func firstRefused(s Snapshot, gates release.Gates, effects []release.Effect, begins []release.Event) Decision {
	first := gates.First()
	e := s.edit().effect(effects...).tell(insertStart(gates, begins)...)
	switch {
	case first.Verdict == release.Fail && isHook(first, flaggerv1.RollbackHook):
		return e.intend(intentRollback, first.Message).done(gates)
	case first.Verdict == release.Fail:
		// A pre-rollout hook refused. It is asked again one interval after the refused call.
		e.status.FailedChecks++
		asked := metav1.NewMicroTime(s.Now)
		if answer, ok := s.Answers[s.preRolloutID(first.Name)]; ok {
			asked = metav1.NewMicroTime(answer.Began)
		}
		e.serin.Started, e.serin.Asked = true, &asked
		return e.done(gates)
	case isHook(first, flaggerv1.ConfirmTrafficIncreaseHook) && first.Opener == release.ByPerson && s.serin().Held != first.Name:
		e.serin.Started, e.serin.Asked, e.serin.Held = true, nil, first.Name
		withAlert(e.events, s.muted(first.Name), release.Warn, "Canary traffic increase is waiting for approval.")
		return e.done(gates)
	default:
		return hold(s, gates, effects...)
	}
}

func (s Snapshot) preRolloutID(gateName string) string {
	for _, hook := range s.Plan.hooks(flaggerv1.PreRolloutHook) {
		if string(hook.Type)+"/"+hook.Name == gateName {
			return s.hookProbe(hook, flaggerv1.CanaryPhaseProgressing, s.run(), release0).ID
		}
	}
	return ""
}

func isHook(g *release.Gate, of flaggerv1.HookType) bool {
	return strings.HasPrefix(g.Name, string(of)+"/")
}

// judgeWindow holds the current weight or iteration for one window, then moves on or counts a failed check.
func judgeWindow(s Snapshot, effects []release.Effect) Decision {
	unconfirmed := s.serin().Window != nil && s.serin().Window.Unconfirmed
	if unconfirmed && s.Route.Confirmation != Unconfirmed {
		return s.edit().effect(effects...).window().done(nil) // what is observed begins with the confirmation
	}
	end := s.windowEnd()
	conditions := []gate{primaryReady, canaryReady}
	rollout := s.Plan.hooks(flaggerv1.RolloutHook)
	for i, hook := range rollout {
		conditions = append(conditions, rolloutAsked(hook, rollout[:i]))
	}
	conditions = append(conditions, windowOver, routeConfirmed)
	for _, hook := range s.Plan.hooks(flaggerv1.RollbackHook) {
		conditions = append(conditions, rollbackAsked(hook, s.attempt(), end))
	}
	for _, hook := range rollout {
		conditions = append(conditions, rolloutJudged(hook))
	}
	conditions = append(conditions, oldSamples)
	for _, check := range s.Plan.Checks {
		conditions = append(conditions, passes(check))
	}
	conditions = append(conditions, s.moveGates()...)
	gates := release.Look(s, conditions...)
	first := gates.First()
	switch {
	case first == nil:
		return advance(s.edit().effect(effects...).tell(gates.Events()...), gates)
	case first.Name == "canary-ready":
		return notReady(s, gates, effects)
	case first.Name == "route-confirmed" && !unconfirmed && s.serin().Window != nil:
		// The window observed something else in part: it starts anew when the router confirms.
		e := s.edit().effect(effects...)
		e.serin.Window.Unconfirmed = true
		return e.done(gates)
	case first.Verdict == release.Fail && isHook(first, flaggerv1.RollbackHook):
		return s.edit().effect(effects...).tell(gates.Events()...).intend(intentRollback, first.Message).done(gates)
	case first.Verdict == release.Fail:
		return failCheck(s, gates, effects)
	case first.Opener == release.ByPerson && (isHook(first, flaggerv1.ConfirmTrafficIncreaseHook) || isHook(first, flaggerv1.ConfirmPromotionHook)):
		return held(s, gates, effects)
	default:
		return hold(s, gates, effects...)
	}
}

// moveGates are the hooks that must approve what follows the open window.
func (s Snapshot) moveGates() []gate {
	var out []gate
	if s.Plan.Strategy == Weighted && (s.live() > 0 || !s.Route.Mirrored) {
		out = s.trafficGates(s.attempt())
	}
	last := false
	switch s.Plan.Strategy {
	case Weighted:
		last = s.live() >= s.Plan.Max
	default:
		last = s.Status.Iterations >= s.Plan.Iterations
	}
	if !last {
		return out
	}
	for _, hook := range s.Plan.hooks(flaggerv1.ConfirmPromotionHook) {
		out = append(out, approves(hook, flaggerv1.CanaryPhaseProgressing, s.attempt()+"/"+s.run(), release0,
			fmt.Sprintf("Confirm-promotion check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for promotion approval %s", s.Plan.full(), hook.Name)))
	}
	return out
}

// held opens one more window at the same weight, because a gate that people open is closed. They are told once.
func held(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	e := s.edit().effect(effects...).window()
	e.serin.Unreachable = nil
	told := s.serin().Held == first.Name
	promotion := isHook(first, flaggerv1.ConfirmPromotionHook)
	if promotion {
		told = told || s.Status.Phase == flaggerv1.CanaryPhaseWaitingPromotion
		e.phase(flaggerv1.CanaryPhaseWaitingPromotion)
	}
	e.serin.Held = first.Name
	if told {
		first.Events = nil
	}
	e.tell(gates.Events()...)
	if !told {
		message := "Canary traffic increase is waiting for approval."
		if promotion {
			message = "Canary promotion is waiting for approval."
		}
		withAlert(e.events, s.muted(first.Name), release.Warn, message)
	}
	return e.done(gates)
}

// failCheck counts one failed check and observes the same weight for another window.
func failCheck(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().effect(effects...).tell(gates.Events()...)
	e.status.FailedChecks++
	first := s.serin().Unreachable
	e.serin.Unreachable = nil
	for _, check := range s.Plan.Checks {
		if answer, ok := s.Answers.To(s.metricProbe(check)); ok && check.Metric.Name == gates.First().Name && answer.Outcome == release.Unreachable {
			// From now on each window in which the provider stays away counts, without another minute of patience.
			since := metav1.NewMicroTime(s.windowEnd())
			e.serin.Unreachable = &since
			if first != nil {
				e.serin.Unreachable = first
			}
		}
	}
	return e.window().done(gates)
}

// advance takes the next step of the plan, and opens its window.
func advance(e *edit, gates release.Gates) Decision {
	s := e.s
	e.serin.Held, e.serin.Unreachable = "", nil
	switch s.Plan.Strategy {
	case ABTesting:
		if s.Status.Iterations >= s.Plan.Iterations {
			return promote(e, gates)
		}
		e.effect(RouteIs{Canary: release.Total})
		e.status.CanaryWeight = release.Total
		return e.iterate(gates)
	case BlueGreen:
		switch {
		case s.Status.Iterations < s.Plan.Iterations:
			if s.Plan.Mirror {
				e.effect(RouteIs{Mirror: true})
			}
			return e.iterate(gates)
		case s.Status.Iterations > s.Plan.Iterations:
			return promote(e, gates)
		}
		e.status.Iterations = s.Plan.Iterations + 1
		if s.Plan.Routed {
			message := "Routing all traffic to canary"
			if s.Plan.Mirror {
				message = "Stop traffic mirroring and route all traffic to canary"
			}
			e.tell(release.Event{Type: release.Normal, Message: message}).effect(RouteIs{Canary: release.Total})
			e.status.CanaryWeight = release.Total
		}
		return e.window().done(gates)
	default:
		return advanceWeight(e, gates)
	}
}

func (e *edit) iterate(gates release.Gates) Decision {
	e.status.Iterations++
	return e.window().tell(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Advance %s canary iteration %d/%d", e.s.Plan.full(), e.status.Iterations, e.s.Plan.Iterations),
	}).done(gates)
}

func advanceWeight(e *edit, gates release.Gates) Decision {
	s := e.s
	live := s.live()
	_, open := s.start()
	switch {
	case live == 0 && s.Plan.Mirror && !s.Route.Mirrored:
		return e.effect(RouteIs{Mirror: true}).window().tell(advanced(s, 0)).done(gates)
	case live > 0 && !open:
		// A weight that was there before the run, after a promotion that failed: it is observed before anything else.
		e.status.CanaryWeight = live
		return e.window().tell(advanced(s, live)).done(gates)
	case live >= s.Plan.Max:
		return promote(e, gates)
	}
	weight := s.Plan.next(live)
	e.effect(RouteIs{Canary: weight})
	e.status.CanaryWeight = weight
	e.cookies()
	return e.window().tell(advanced(s, weight)).done(gates)
}

// cookies names the session cookies of the run, once traffic is split.
func (e *edit) cookies() {
	s := e.s
	if s.Plan.Cookie != "" && e.status.SessionAffinityCookie == "" {
		e.status.SessionAffinityCookie = s.Plan.Cookie + "=" + letters(s.UID, s.run(), "canary-cookie")
	}
	if s.Plan.PrimaryCookie != "" && e.status.PrimarySessionAffinityCookie == "" {
		e.status.PrimarySessionAffinityCookie = s.Plan.PrimaryCookie + "=" + letters(s.UID, s.run(), "primary-cookie")
	}
}

// forgetCookie lets the router take the run's cookie back from clients.
func (e *edit) forgetCookie() {
	if e.status.SessionAffinityCookie != "" {
		e.status.PreviousSessionAffinityCookie, e.status.SessionAffinityCookie = e.status.SessionAffinityCookie, ""
	}
}
