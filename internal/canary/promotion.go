package canary

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// promote gives the primary the template that was analysed.
func promote(e *edit, gates release.Gates) Decision {
	s := e.s
	e.effect(CopyTemplate{Revision: s.pinnedRevision(), ID: s.copyID()}).phase(flaggerv1.CanaryPhasePromoting)
	e.serin.Window, e.serin.Held = nil, ""
	e.analyzed = true
	return e.stamp(release.StampSince).tell(s.copying()).done(gates)
}

func (s *Snapshot) copyID() string    { return s.id("promote", s.run()) }
func (s *Snapshot) restoreID() string { return s.id("restore", s.run()) }

func (s *Snapshot) copying() release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Copying %s template spec to %s", s.Plan.workload(), s.Plan.primary())}
}

// primaryPromoted is primary-ready while the primary itself is changing: nothing lifts it, and its deadline counts from its
// last progress.
func primaryPromoted(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	if primary.Found && primary.Ready && (primary.Available > 0 || !s.canaryHasTraffic()) {
		return release.Passes("primary-ready", pods(primary))
	}
	message := s.primaryMessage()
	if primary.Exceeded {
		return release.Fails("primary-ready", release.ByCluster, message)
	}
	return dueBy(s, release.WaitsFor("primary-ready", release.ByCluster, message), s.primaryDeadline())
}

// promoting waits for the primary's rolling update, then brings the traffic back to it.
func promoting(s Snapshot) Decision {
	switch {
	case s.statusFromOtherController():
		return adopted(s)
	case s.rollingBack():
		return takeBack(s)
	case s.commanded("abort"):
		return aborted(s)
	}
	effects := standing(s, ScalerExists{Update: true})
	conditions := []gate{primaryPromoted, primaryEndpointsBack, canaryReady}
	replaced := s.Workload.Target.Revision != s.pinnedRevision()
	if replaced || s.resumed() {
		// What the target runs by now is another story: no user shall see more of it. After a promotion that failed there is
		// no way back from the primary's template, whatever becomes of the canary.
		conditions = conditions[:2]
	}
	gates := release.Look(s, conditions...)
	switch first := gates.First(); {
	case first == nil:
	case first.Name == "primary-ready" && first.Verdict == release.Fail && s.canaryReachable():
		return promotionFailed(s, gates, effects)
	case len(gates) > 2 && gates[2].Verdict == release.Fail:
		return notReady(s, gates[2:], effects)
	case first.Name == "primary-ready" && first.Verdict == release.Fail:
		return promotionPending(s, gates, effects)
	default:
		return keepStatus(s, gates, effects...)
	}
	live := s.live()
	if !s.Plan.Routed || s.Plan.PromotionStep == 0 || live == 0 || replaced {
		e := s.edit().effect(effects...)
		if s.Plan.Routed {
			e.tell(release.Event{Type: release.Normal, Message: "Routing all traffic to primary", Phase: string(flaggerv1.CanaryPhasePromoting)})
			e.effect(RouteIs{})
		}
		return finalise(e, gates)
	}
	if live < s.Status.CanaryWeight {
		// The step was taken, and the process died before it could say so.
		e := s.edit().effect(effects...)
		e.status.CanaryWeight = live
		return e.window().tell(returned(s, live)).done(gates)
	}
	gates = append(gates, release.Look(s, windowOver)...)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	weight := max(live-s.Plan.PromotionStep, 0)
	e := s.edit().effect(effects...).effect(RouteIs{Canary: weight}).tell(returned(s, weight))
	if weight == 0 {
		return finalise(e, gates)
	}
	e.status.CanaryWeight = weight
	return e.window().done(gates)
}

func returned(s Snapshot, weight int) release.Event {
	return release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Advance %s primary weight %d", s.Plan.full(), release.Total-weight), Phase: string(flaggerv1.CanaryPhasePromoting),
	}
}

// finalise is entered with all traffic back on the primary.
func finalise(e *edit, gates release.Gates) Decision {
	exposed := e.s.canaryHasTraffic()
	e.phase(flaggerv1.CanaryPhaseFinalising)
	e.status.CanaryWeight, e.status.Iterations = 0, 0
	e.serin.Window = nil
	e.stamp(release.StampSince) // both copies were just seen ready
	if exposed {
		e.stamp(release.StampDrain, release.StampLeft)
		e.forgetCookie()
	}
	return e.done(gates)
}

// finalising takes the target's pods away when nothing reaches them any more.
func finalising(s Snapshot) Decision {
	if s.statusFromOtherController() {
		e := s.edit().adopt().stamp(release.StampSince, release.StampDrain)
		return e.tell(release.Event{
			Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s", s.Plan.workload(), s.Status.Phase),
		}).done(nil)
	}
	effects := standing(s)
	gates := release.Look(s, primaryPromoted, primaryEndpointsBack)
	switch first := gates.First(); {
	case first != nil && first.Verdict == release.Fail:
		return promotionPending(s, gates, effects)
	case first != nil:
		return keepStatus(s, gates, effects...)
	case s.trafficReturned():
		return forgetDrain(s, effects)
	case s.canaryHasTraffic() && s.Route.Problem == "":
		e := s.edit().effect(effects...).effect(RouteIs{}).stamp(release.StampDrain)
		e.status.CanaryWeight = 0
		return e.done(gates)
	}
	gates = append(gates, release.Look(s, drained)...)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().effect(effects...).effect(ScalerPaused{Paused: true}, DownToZero{}, ConfigsCollected{})
	return e.succeed(intentCompleted).done(gates)
}

// succeed ends a release whose revision the primary runs.
func (e *edit) succeed(intent string) *edit {
	e.phase(flaggerv1.CanaryPhaseSucceeded)
	e.status.CanaryWeight, e.status.Iterations = 0, 0
	e.status.LastPromotedSpec, e.serin.Promoted, e.serin.Unfinished = e.status.LastAppliedSpec, e.serin.Revision, nil
	e.ending = release.EndingPromoted
	if intent == intentSkipped {
		e.ending = release.EndingUnanalyzed
	}
	e.settle().postRollout(intent)
	if e.serin.Intent != "" {
		return e // the last event comes after what the hooks said
	}
	return e.tell(completed(e.s, intent))
}

// postRollout remembers that the hooks of the end are to be asked.
func (e *edit) postRollout(intent string) *edit {
	if len(e.s.Plan.hooks(flaggerv1.PostRolloutHook)) > 0 {
		e.serin.Intent = intent
	}
	return e
}

// settle forgets what only a moving release needs.
func (e *edit) settle() *edit {
	e.serin.Window, e.serin.Since, e.serin.DrainUntil, e.serin.Asked, e.serin.Unreachable = nil, nil, nil, nil, nil
	e.serin.Started, e.serin.Held, e.serin.Intent, e.serin.Reason = false, "", "", ""
	e.serin.CanaryUnready, e.serin.PrimaryUnready, e.serin.CarriedBy = nil, nil, nil
	return e
}

func completed(s Snapshot, intent string) release.Event {
	event := release.Event{
		Type: release.Normal, Message: "Promotion completed! Scaling down " + s.Plan.workload(), Phase: string(flaggerv1.CanaryPhaseSucceeded),
		Alert: &release.Alert{Severity: release.Info, Message: "Canary analysis completed successfully, promotion finished."},
	}
	if intent == intentSkipped {
		event.Message = "Promotion completed! Canary analysis was skipped for " + s.Plan.workload()
		event.Alert.Message = "Canary analysis was skipped, promotion finished."
	}
	return event
}

// afterwards asks the post-rollout hooks of a release that has ended. Nothing waits for them but the last event, and a
// new revision does not even wait for that.
func afterwards(s Snapshot) Decision {
	effects := standing(s)
	intent := s.serin().Intent
	phase := flaggerv1.CanaryPhaseSucceeded
	if intent == intentFailed {
		phase = flaggerv1.CanaryPhaseFailed
	}
	gates := s.postGates(phase)
	if gates.Verdict() != release.Pass && s.Workload.Target.Revision == s.pinnedRevision() {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().effect(effects...)
	for _, gate := range gates {
		e.tell(gate.Events...)
	}
	e.serin.Intent = ""
	if intent != intentFailed {
		e.tell(completed(s, intent))
	}
	return e.done(gates)
}

// postGates ask the hooks of the end in order, up to the first that refuses.
func (s *Snapshot) postGates(phase flaggerv1.CanaryPhase) release.Gates {
	var gates release.Gates
	for _, hook := range s.Plan.hooks(flaggerv1.PostRolloutHook) {
		p := s.hookProbe(hook, string(phase), time.Time{})
		answer, ok := s.Answers.To(p)
		if !ok {
			return append(gates, s.asksHook(p, hook, phase, "waiting for the answer of "+hook.Name))
		}
		g := release.Passes(hookGate(hook), "answered")
		g.Answer = &answer
		event := release.Event{Type: release.Normal, Message: fmt.Sprintf("Post-rollout check %s passed", hook.Name), Phase: string(phase)}
		if answer.Outcome != release.Yes {
			event.Type, event.Message = release.Warning, fmt.Sprintf("Post-rollout hook %s failed %s", hook.Name, answer.Text)
		}
		g.Events = []release.Event{event}
		gates = append(gates, g)
		if answer.Outcome != release.Yes {
			break
		}
	}
	return gates
}

// skipping promotes without analysis: the primary first, then whatever traffic the canary has, its pods last. What is
// skipped is the analysis, not that the new revision must be able to run.
func skipping(s Snapshot) Decision {
	if !s.primaryHasTemplate() {
		if d, ok := changed(s); ok {
			return d // what is to be promoted changed before it was
		}
		effects := standing(s, ScalerPaused{Paused: false})
		if s.Workload.Target.Replicas == 0 {
			effects = append(effects, UpFromZero{})
		}
		gates := release.Look(s, canaryReady)
		if gates.Verdict() != release.Pass {
			return notReady(s, gates, effects)
		}
		e := s.edit().effect(effects...).effect(CopyTemplate{Revision: s.pinnedRevision(), ID: s.copyID()}).stamp(release.StampSince)
		if s.serin().Intent == "" {
			e.intend(intentSkip, "spec.skipAnalysis is true")
		}
		return e.tell(s.copying()).done(gates)
	}
	effects := standing(s)
	effects = append(effects, ScalerExists{Update: true})
	gates := release.Look(s, primaryPromoted, primaryEndpointsBack)
	switch first := gates.First(); {
	case first != nil && first.Verdict == release.Fail:
		return promotionPending(s, gates, effects)
	case first != nil:
		return keepStatus(s, gates, effects...)
	case s.trafficReturned():
		return forgetDrain(s, effects)
	case s.canaryHasTraffic() && !s.drainStarted():
		e := s.edit().effect(effects...).effect(RouteIs{}).stamp(release.StampDrain, release.StampLeft)
		e.forgetCookie()
		return e.done(gates)
	}
	gates = append(gates, release.Look(s, drained)...)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().effect(effects...).effect(ScalerPaused{Paused: true}, DownToZero{}, ConfigsCollected{})
	return e.succeed(intentSkipped).done(gates)
}

// promotionPending decides about a promotion whose primary does not become ready. The canary serves instead, and gets pods for that
// where it was scaled down; another revision waits for neither of them.
func promotionPending(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	switch target := s.Workload.Target; {
	case s.canaryReachable():
		return promotionFailed(s, gates, effects)
	case target.Found && target.Revision != s.pinnedRevision():
		return s.edit().effect(effects...).tell(notPromoted(s)...).unfinished(s.pinnedRevision(), s.Status.LastAppliedSpec).failKeepingCanary(s.live(), "Promotion failed").done(gates)
	case target.Found && target.Replicas == 0:
		return keepStatus(s, gates, append(effects, ScalerPaused{Paused: false}, UpFromZero{})...)
	default:
		return keepStatus(s, gates, effects...)
	}
}

// notPromoted tells that a promotion failed, and why.
func notPromoted(s Snapshot) []release.Event {
	message := withoutPods(s).primaryMessage()
	return []release.Event{
		{Type: release.Warning, Message: message},
		{
			Type: release.Warning, Message: fmt.Sprintf("Promotion of %s failed, primary not ready: %s", s.Plan.workload(), message),
			Alert: &release.Alert{Severity: release.Error, Message: "Promotion failed, primary not ready: " + message},
		},
	}
}

// promotionFailed leaves the canary serving: the primary has the new template and is not ready with it in time, so there
// is nothing to roll back to. As soon as the primary is ready the promotion goes on; else the next revision repairs it.
func promotionFailed(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	e := s.edit().effect(effects...)
	weight := 0
	if s.Plan.Routed {
		weight = release.Total
		e.effect(RouteIs{Canary: release.Total})
	}
	return e.tell(notPromoted(s)...).unfinished(s.pinnedRevision(), s.Status.LastAppliedSpec).failKeepingCanary(weight, "Promotion failed").done(gates)
}

// unfinished remembers what the primary was given last, for when it is ready.
func (e *edit) unfinished(revision, spec string) *edit {
	e.serin.Unfinished = &flaggerv1.UnfinishedPrimary{Revision: revision, Spec: spec}
	return e
}

// failKeepingCanary ends a release that leaves no primary which could serve: the canary does, with that weight. why begins the
// sentence that the condition has.
func (e *edit) failKeepingCanary(weight int, why string) *edit {
	e.phase(flaggerv1.CanaryPhaseFailed)
	e.ending = release.EndingFailed
	message := why + ", primary not ready."
	if weight > 0 {
		message = fmt.Sprintf("%s, primary not ready: %s keeps %d%% of the traffic.", why, e.s.Plan.Kind, weight)
	}
	e.condition(flaggerv1.CanaryCondition{
		Type: flaggerv1.ConditionPromoted, Status: corev1.ConditionFalse, Reason: string(flaggerv1.CanaryPhaseFailed), Message: message,
	})
	e.zero()
	e.status.CanaryWeight = weight
	e.settle()
	e.serin.Promoted = nothing
	return e.postRollout(intentFailed)
}
