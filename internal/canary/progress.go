package canary

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// progress moves a revision on, window by window, or takes it back.
func progress(s Snapshot) Decision {
	if s.foreign() {
		return adopted(s)
	}
	intent := s.intent()
	switch {
	case intent == intentRollback, intent == intentCancel:
		return takeBack(s)
	case intent == "" && s.Status.FailedChecks >= s.Plan.Threshold:
		return takeBack(s)
	case s.commanded("abort"):
		return aborted(s)
	case intent == "" && !s.Plan.Skip && s.copied():
		return promote(s.edit().effect(standing(s)...), nil) // it was decided, and the process died before it could say so
	case intent == intentSkip, s.Plan.Skip:
		return skipping(s)
	}
	if d, ok := changed(s); ok {
		return d
	}
	if s.inherits() && s.primaryCarries() {
		return disinherited(s)
	}
	switch {
	case s.commanded("promote") && s.Pruned:
		return skipping(s) // the command itself is the only memory of it
	case s.commanded("promote"):
		e := s.edit()
		e.serin.Command = s.Command
		return e.intend(intentSkip, "a person promoted the release").tell(release.Event{
			Type: release.Normal, Message: fmt.Sprintf("Promoting %s by command, without further analysis", s.Plan.workload()),
		}).done(nil)
	}
	effects := standing(s, ScalerPaused{Paused: false})
	if s.Workload.Target.Replicas == 0 {
		effects = append(effects, UpFromZero{})
	}
	if d, ok := strayed(s, effects); ok {
		return d
	}
	if _, open := s.start(); !open {
		return firstLook(s, effects)
	}
	return judgeWindow(s, effects)
}

// aborted takes a release back because a person said so.
func aborted(s Snapshot) Decision {
	e := s.edit()
	e.serin.Command = s.Command
	return e.rollback(reasonAbort).tell(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Rolling back %s aborted by command", s.Plan.full()),
	}).done(nil)
}

// adopted takes up a run of another controller where it stands. Its window starts again, because we did not see it.
func adopted(s Snapshot) Decision {
	e := s.edit().adopt()
	e.serin.Shape, e.serin.Run = s.Plan.shape(), s.run()
	e.stamp(release.StampSince)
	if s.Plan.Routed && s.live() == 0 {
		e.stamp(release.StampLeft) // nothing says any more when the target last had users: it may have been a moment ago
	}
	where := fmt.Sprintf("weight %d", s.live())
	if s.Plan.Strategy != Weighted {
		where = fmt.Sprintf("iteration %d/%d", s.Status.Iterations, s.Plan.Iterations)
	}
	if s.Workload.NewestTemplate.IsZero() && s.Workload.Target.PeerHash != s.Status.LastAppliedSpec {
		where += ", taking the target for the revision that it recorded, which could not be verified"
	}
	if s.live() > 0 || s.Status.CanaryWeight > 0 || s.Status.Iterations > 0 || s.Route.Mirrored {
		if s.live() != s.Status.CanaryWeight {
			e.status.LastTransitionTime = metav1.NewTime(s.Now.Truncate(time.Second)) // from which a pruned status knows its window
		}
		e.serin.Started = true
		e.status.CanaryWeight = s.live() // the original reports none with iterations
		e.status.Iterations = max(s.Status.Iterations, 0)
		e.window()
	}
	return e.tell(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s at %s", s.Plan.workload(), s.Status.Phase, where),
	}).done(nil)
}

// intend records what is going to be carried out, before anything of it is.
func (e *edit) intend(intent, why string) *edit {
	e.serin.Intent, e.serin.Reason = intent, release.Clip(why, maxMessage)
	return e
}

// changed notices that the run is about something else than the target is now.
func changed(s Snapshot) (Decision, bool) {
	revision := s.Workload.Target.Revision
	reshaped := s.serin().Shape != "" && s.serin().Shape != s.Plan.shape()
	if revision == s.pinned() && !reshaped {
		return Decision{}, false
	}
	e := s.edit()
	if revision == s.promoted() {
		e.applied()
		return e.intend(intentCancel, "the target is back at the promoted revision").tell(cancelled(s)).done(nil), true
	}
	touched := s.serin().Started || s.exposed() || s.Status.Iterations > 0 || s.Status.FailedChecks > 0
	if !touched {
		// Nobody has asked or seen anything of it yet: ConfigMap and Deployment of one change arrive one after the other.
		e.effect(ConfigsRestored{ID: s.copyID()})
		e.zero()
		e.run()
		return e.stamp(release.StampSince).done(nil), true
	}
	if s.primaryStands() && s.shapedBy() == "" {
		// What the new revision gets is taken away from the old one first, and the primary has to be reached for that.
		if gates := release.Look(s, primaryEndpointsAtOnce); gates.Verdict() != release.Pass {
			return hold(s, gates, standing(s)...), true
		}
	}
	exposed := s.exposed() || reshaped && s.shapedBy() != ""
	if exposed && (s.primaryCarries() || s.Workload.Primary.serves() && !s.canaryCarries()) {
		e.effect(RouteIs{Provider: s.shapedBy()})
	}
	e.effect(ConfigsRestored{ID: s.copyID()})
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
func (s *Snapshot) shapedBy() string {
	parts := strings.Split(s.serin().Shape, "/")
	if len(parts) < 2 || parts[1] == s.Plan.Provider || parts[1] == ProviderKubernetes {
		return ""
	}
	return parts[1]
}

// strayed puts the traffic right when it is not where the run left it. A weight above zero that somebody else set is
// taken over; a weight that is lost is written again, and observed anew. Traffic never moves to a copy that cannot
// answer.
func strayed(s Snapshot, effects []release.Effect) (Decision, bool) {
	if _, open := s.start(); !open || !s.Plan.Routed || s.Route.Problem != "" {
		return Decision{}, false
	}
	live, said := s.live(), s.Status.CanaryWeight
	if !s.Route.Found {
		live = 0
	}
	if live == said {
		return Decision{}, false
	}
	e := s.edit().effect(effects...)
	due := !s.Now.Before(s.windowEnd())
	switch {
	case s.Plan.Strategy == Weighted && live > 0 && live == s.Plan.next(said) && due:
		// The step was taken, and the process died before it could say so.
		e.status.CanaryWeight = live
		return e.cookies().window().tell(advanced(s, live)).done(nil), true
	case s.Plan.Strategy == BlueGreen && live == release.Total && s.Status.Iterations >= s.Plan.Iterations && due:
		return e.routeAll(nil), true // the same
	case live < said && !s.canaryCarries(), live > said && !s.primaryCarries():
		return Decision{}, false
	case s.Plan.Strategy == Weighted && live > 0, s.Pruned && live == s.planned():
		return Decision{}, false
	}
	if said == 0 {
		e.stamp(release.StampLeft)
	}
	return e.effect(RouteIs{Canary: said, Mirror: s.mirrors(s.Status.Iterations)}).cookies().window().tell(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Restored %s canary weight %d, which was changed to %d by somebody else", s.Plan.full(), said, live),
	}).done(nil), true
}

// planned is the weight that an iteration asks for. A status of another controller reports none with iterations.
func (s *Snapshot) planned() int {
	if s.Plan.Strategy == ABTesting && s.Status.Iterations > 0 || s.Plan.Strategy == BlueGreen && s.Status.Iterations > s.Plan.Iterations {
		return release.Total
	}
	return 0
}

// mirrors is true while blue/green copies requests to the canary.
func (s *Snapshot) mirrors(iteration int) bool {
	return s.Plan.Mirror && s.Plan.Strategy == BlueGreen && iteration >= 1 && iteration <= s.Plan.Iterations
}

func advanced(s Snapshot, weight int) release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Advance %s canary weight %d", s.Plan.full(), weight)}
}

// notReady waits for the canary, or takes it back when its deadline passed.
func notReady(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	if first == nil || first.Name != "canary-ready" && first.Name != "canary-endpoints" || first.Verdict != release.Fail {
		return hold(s, gates, effects...)
	}
	message := first.Message
	if first.Name == "canary-ready" {
		message = withoutPods(s).canaryMessage()
	}
	return s.edit().effect(effects...).rollback(first.Message).tell(
		release.Event{Type: release.Warning, Message: message},
		release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Rolling back %s progress deadline exceeded %s", s.Plan.full(), first.Message),
			Alert: &release.Alert{Severity: release.Error, Message: "Progress deadline exceeded " + first.Message},
		}).done(gates)
}

// firstLook asks what must be so before the new revision gets its first request.
func firstLook(s Snapshot, effects []release.Effect) Decision {
	conditions := []gate{primaryReady, canaryReady, canaryEndpoints}
	if ready := release.Look(s, conditions...); ready.Verdict() != release.Pass {
		return notReady(s, ready, effects)
	}
	for _, hook := range s.Plan.hooks(flaggerv1.RollbackHook) {
		conditions = append(conditions, rollbackPolled(hook, "first"))
	}
	pre := s.Plan.hooks(flaggerv1.PreRolloutHook)
	if len(pre) > 0 && !s.serin().Started && !s.Pruned {
		// That the hooks are asked is said before they are, so that a crash does not ask them of another attempt.
		gates := release.Look(s, conditions...)
		if gates.Verdict() != release.Pass {
			return firstRefused(s, gates, effects)
		}
		e := s.edit().effect(effects...)
		e.serin.Started = true
		return e.tell(s.firstEvents(gates)...).done(gates)
	}
	for _, hook := range pre {
		conditions = append(conditions, preRollout(hook, s.askFrom()))
	}
	if s.Plan.Strategy == Weighted {
		conditions = append(conditions, s.trafficGates()...)
	}
	gates := release.Look(s, conditions...)
	if gates.Verdict() != release.Pass {
		return firstRefused(s, gates, effects)
	}
	e := s.edit().effect(effects...).tell(s.firstEvents(gates)...)
	e.serin.Started, e.serin.Asked = true, nil
	return advance(e, gates)
}

// firstEvents tells what rollback hooks said before the start, and everything else after it. What was told when the
// start was recorded, or when a gate was found closed, is not told again.
func (s *Snapshot) firstEvents(gates release.Gates) []release.Event {
	_, refused := s.asked()
	starts := !s.serin().Started || refused
	var events []release.Event
	if starts {
		for _, gate := range gates {
			if isHook(&gate, flaggerv1.RollbackHook) {
				events = append(events, gate.Events...)
			}
		}
		events = append(events, release.Event{Type: release.Normal, Message: "Starting canary analysis for " + s.Plan.workload()})
		if !refused {
			for _, note := range s.Plan.Notes {
				events = append(events, release.Event{Type: release.Warning, Message: note})
			}
		}
	}
	for _, gate := range gates {
		held := s.serin().Held != "" && !isHook(&gate, flaggerv1.ConfirmTrafficIncreaseHook)
		if !held && !isHook(&gate, flaggerv1.RollbackHook) {
			events = append(events, gate.Events...)
		}
		if gate.Verdict != release.Pass {
			break
		}
	}
	return events
}

// preRollout is a test of the new revision before it has users. A refusal is a failed check.
func preRollout(hook flaggerv1.CanaryWebhook, from time.Time) gate {
	return func(s Snapshot) release.Gate {
		name := hookGate(hook)
		attempt := "first"
		if s.Pruned {
			attempt += strconv.Itoa(s.Status.FailedChecks) // all that tells that an answer was counted
		}
		p := s.hookProbe(hook, attempt, from)
		answer, ok := s.Answers.To(p)
		switch {
		case !ok && s.Now.Before(from):
			return release.WaitsUntil(name, from, hook.Name+" refused; asked again at "+from.UTC().Format(time.TimeOnly))
		case !ok:
			return s.asksHook(p, hook, flaggerv1.CanaryPhaseProgressing, "waiting for the answer of "+hook.Name)
		case answer.Outcome == release.Yes:
			g := release.Passes(name, "passed")
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Normal, Message: fmt.Sprintf("Pre-rollout check %s passed", hook.Name)}}
			return g
		default:
			g := release.Fails(name, release.ByTime, hook.Name+" failed "+answer.Text)
			g.Answer = &answer
			g.Events = []release.Event{{Type: release.Warning, Message: fmt.Sprintf("Halt %s advancement pre-rollout check %s failed %s", s.Plan.full(), hook.Name, answer.Text)}}
			return g
		}
	}
}

// trafficGates are the hooks that must approve every increase of the weight.
func (s *Snapshot) trafficGates() []gate {
	var out []gate
	for _, hook := range s.Plan.hooks(flaggerv1.ConfirmTrafficIncreaseHook) {
		out = append(out, approves(hook, flaggerv1.CanaryPhaseProgressing, s.attempt(), time.Time{},
			fmt.Sprintf("Confirm-traffic-increase check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for traffic increase approval %s", s.Plan.full(), hook.Name)))
	}
	return out
}

// firstRefused is a first look at which something did not pass.
func firstRefused(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	e := s.edit().effect(effects...)
	switch {
	case first.Verdict == release.Fail && isHook(first, flaggerv1.RollbackHook):
		return e.tell(gates.Events()...).rollback(first.Message).done(gates)
	case first.Verdict == release.Fail:
		// A pre-rollout hook refused. It is asked again one interval after the refused call.
		asked := metav1.NewMicroTime(s.past(first.Answer.Began))
		e.tell(s.firstEvents(gates)...)
		e.status.FailedChecks++
		e.serin.Started, e.serin.Asked = true, &asked
		return e.done(gates)
	case isHook(first, flaggerv1.ConfirmTrafficIncreaseHook) && first.Opener == release.ByPerson && s.serin().Held != first.Name && !s.Pruned:
		e.tell(withAlert(s.firstEvents(gates), s.muted(first.Name), release.Warn, "Canary traffic increase is waiting for approval.")...)
		e.serin.Started, e.serin.Asked, e.serin.Held = true, nil, first.Name
		return e.done(gates)
	default:
		return wakeBy(hold(s, gates, effects...), s.polledAgain("first"))
	}
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
	conditions := []gate{canaryReady}
	if s.Plan.Routed {
		conditions = append(conditions, canaryEndpoints)
	}
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
	// A canary that fails is rolled back whatever the primary lacks; only advancing waits for the primary.
	conditions = append(conditions, primaryReady)
	conditions = append(conditions, s.moveGates()...)
	gates := release.Look(s, conditions...)
	first := gates.First()
	switch {
	case first == nil:
		return advance(s.edit().effect(effects...).tell(gates.Events()...), gates)
	case first.Name == "canary-ready", first.Name == "canary-endpoints":
		return notReady(s, gates, effects)
	case first.Name == "primary-ready":
		return observeAgain(s, gates, effects)
	case first.Name == "route-confirmed" && !unconfirmed && s.serin().Window != nil:
		// The window observed something else in part: it starts anew when the router confirms.
		e := s.edit().effect(effects...)
		e.serin.Window.Unconfirmed = true
		return e.done(gates)
	case first.Verdict == release.Fail && isHook(first, flaggerv1.RollbackHook):
		return s.edit().effect(effects...).tell(gates.Events()...).rollback(first.Message).done(gates)
	case first.Verdict == release.Fail:
		return failCheck(s, gates, effects)
	case first.Name == "provider-unreachable" && s.serin().Unreachable == nil && !s.Pruned:
		return awayFrom(s, gates, effects)
	case first.Opener == release.ByPerson && (isHook(first, flaggerv1.ConfirmTrafficIncreaseHook) || isHook(first, flaggerv1.ConfirmPromotionHook)):
		return held(s, gates, effects)
	default:
		return hold(s, gates, effects...)
	}
}

// moveGates are the hooks that must approve what follows the open window.
func (s *Snapshot) moveGates() []gate {
	var out []gate
	if s.Plan.Strategy == Weighted && (s.live() > 0 || !s.Route.Mirrored) {
		out = s.trafficGates()
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
		out = append(out, approves(hook, flaggerv1.CanaryPhaseProgressing, s.attempt(), time.Time{},
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

// observeAgain opens one more window at the same weight while the primary is not ready: what was measured before says
// nothing about the moment at which it is.
func observeAgain(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().effect(effects...).window()
	e.serin.Unreachable = nil
	return e.done(gates)
}

// failCheck counts one failed check and observes the same weight for another window.
func failCheck(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().effect(effects...).tell(gates.Events()...)
	e.status.FailedChecks++
	if _, away := s.away(gates); !away {
		e.serin.Unreachable = nil // else each window in which it stays away counts, without another minute of patience
	}
	return e.window().done(gates)
}

// awayFrom remembers since when a provider cannot be reached, so that a restart is not another minute of patience.
func awayFrom(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().effect(effects...)
	if began, ok := s.away(gates); ok {
		since := metav1.NewMicroTime(s.past(began))
		e.serin.Unreachable = &since
		return e.done(gates)
	}
	return hold(s, gates, effects...)
}

// away is when the check at which the gates stop began to be asked of a provider that could not be reached.
func (s *Snapshot) away(gates release.Gates) (time.Time, bool) {
	for _, check := range s.Plan.Checks {
		answer, ok := s.Answers[s.metricProbe(check).ID]
		name := gates.First().Name
		if ok && answer.Outcome == release.Unreachable && (name == check.Metric.Name || name == "provider-unreachable") {
			return answer.Began, true
		}
	}
	return time.Time{}, false
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
			e.status.CanaryWeight = s.live()
			if (s.Plan.Mirror || s.live() > 0) && (s.live() == 0 || s.primaryCarries()) {
				e.effect(RouteIs{Mirror: s.Plan.Mirror})
				if s.live() > 0 {
					e.stamp(release.StampLeft)
				}
				e.status.CanaryWeight = 0
			}
			return e.iterate(gates)
		case s.live() >= release.Total, !s.Plan.Routed && s.Status.Iterations > s.Plan.Iterations:
			return promote(e, gates)
		}
		return e.routeAll(gates)
	default:
		return advanceWeight(e, gates)
	}
}

func (e *edit) iterate(gates release.Gates) Decision {
	e.status.Iterations++
	e.phase(flaggerv1.CanaryPhaseProgressing)
	return e.window().tell(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Advance %s canary iteration %d/%d", e.s.Plan.full(), e.status.Iterations, e.s.Plan.Iterations),
	}).done(gates)
}

// routeAll opens the last window of blue/green, in which the new revision has all users.
func (e *edit) routeAll(gates release.Gates) Decision {
	s := e.s
	e.status.Iterations = max(s.Status.Iterations, s.Plan.Iterations) + 1
	if s.Plan.Routed {
		message := "Routing all traffic to canary"
		if s.Plan.Mirror {
			message = "Stop traffic mirroring and route all traffic to canary"
		}
		e.tell(release.Event{Type: release.Normal, Message: message}).effect(RouteIs{Canary: release.Total})
		e.status.CanaryWeight = release.Total
	}
	e.window()
	e.serin.Window.Unobserved = !s.Plan.Routed
	return e.done(gates)
}

func advanceWeight(e *edit, gates release.Gates) Decision {
	s := e.s
	live := s.live()
	_, open := s.start()
	switch {
	case live == 0 && s.Plan.Mirror && (!s.Route.Mirrored || !open):
		e.phase(flaggerv1.CanaryPhaseProgressing)
		return e.effect(RouteIs{Mirror: true}).window().tell(advanced(s, 0)).done(gates)
	case live > 0 && !open:
		// A weight that was there before the run, after a promotion that failed or a crash: it is observed before anything else.
		e.status.CanaryWeight = live
		return e.cookies().window().tell(advanced(s, live)).done(gates)
	case live >= s.Plan.Max:
		return promote(e, gates)
	}
	weight := s.Plan.next(live)
	e.phase(flaggerv1.CanaryPhaseProgressing)
	e.effect(RouteIs{Canary: weight})
	e.status.CanaryWeight = weight
	return e.cookies().window().tell(advanced(s, weight)).done(gates)
}

// cookies names the session cookies of the run, once traffic is split.
func (e *edit) cookies() *edit {
	s := e.s
	if s.Plan.Cookie != "" && e.status.SessionAffinityCookie == "" {
		e.status.SessionAffinityCookie = s.Plan.Cookie + "=" + letters(s.UID, s.run(), "canary-cookie")
	}
	if s.Plan.PrimaryCookie != "" && e.status.PrimarySessionAffinityCookie == "" {
		e.status.PrimarySessionAffinityCookie = s.Plan.PrimaryCookie + "=" + letters(s.UID, s.run(), "primary-cookie")
	}
	return e
}

// forgetCookie lets the router take the run's cookie back from clients.
func (e *edit) forgetCookie() {
	if e.status.SessionAffinityCookie != "" {
		e.status.PreviousSessionAffinityCookie, e.status.SessionAffinityCookie = e.status.SessionAffinityCookie, ""
	}
}
