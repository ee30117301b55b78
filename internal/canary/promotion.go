package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// promote gives the primary the template that was analysed.
func promote(e *edit, gates release.Gates) Decision {
	s := e.s
	e.effect(CopyTemplate{Revision: s.pinned(), ID: s.copyID()}).phase(flaggerv1.CanaryPhasePromoting)
	e.serin.Window, e.serin.Held = nil, ""
	return e.stamp(release.StampSince).tell(s.copying()).done(gates)
}

func (s Snapshot) copyID() string    { return s.id("promote", s.run()) }
func (s Snapshot) restoreID() string { return s.id("restore", s.run()) }

func (s Snapshot) copying() release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Copying %s template spec to %s", s.Plan.workload(), s.Plan.primary())}
}

// primaryPromoted is primary-ready while the primary itself is changing: nothing lifts it, and its deadline counts.
func primaryPromoted(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	if primary.Found && primary.Ready {
		return release.Passes("primary-ready", fmt.Sprintf("%d pods available", primary.Available))
	}
	message := s.primaryMessage()
	deadline, ok := s.deadline()
	if primary.Exceeded || ok && !s.Now.Before(deadline) {
		return release.Fails("primary-ready", release.ByCluster, message)
	}
	g := release.WaitsFor("primary-ready", release.ByCluster, message)
	g.Until = deadline
	return g
}

// promoting waits for the primary's rolling update, then brings the traffic back to it.
func promoting(s Snapshot) Decision {
	if s.serin().Revision == "" && !s.Pruned {
		return adopted(s)
	}
	if s.serin().Intent == intentRollback {
		return takeBack(s)
	}
	effects := standing(s, ScalerExists{Update: true})
	gates := release.Look(s, primaryPromoted, canaryReady)
	if first := gates.First(); first != nil {
		switch {
		case first.Name == "primary-ready" && first.Verdict == release.Fail && s.Workload.Target.serves():
			return promotionFailed(s, gates, effects)
		case gates[1].Verdict == release.Fail:
			return notReady(s, gates[1:], effects)
		default:
			return hold(s, gates, effects...)
		}
	}
	live := s.live()
	if !s.Plan.Routed || s.Plan.PromotionStep == 0 || live == 0 {
		e := s.edit().effect(effects...)
		if s.Plan.Routed {
			e.tell(release.Event{Type: release.Normal, Message: "Routing all traffic to primary", Phase: string(flaggerv1.CanaryPhasePromoting)})
			e.effect(RouteIs{})
		}
		return finalise(e, gates)
	}
	gates = append(gates, release.Look(s, windowOver)...)
	if gates.Verdict() != release.Pass {
		return hold(s, gates, effects...)
	}
	weight := max(live-s.Plan.PromotionStep, 0)
	e := s.edit().effect(effects...).effect(RouteIs{Canary: weight}).tell(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Advance %s primary weight %d", s.Plan.full(), release.Total-weight), Phase: string(flaggerv1.CanaryPhasePromoting),
	})
	if weight == 0 {
		return finalise(e, gates)
	}
	e.status.CanaryWeight = weight
	return e.window().done(gates)
}

// finalise is entered with all traffic back on the primary.
func finalise(e *edit, gates release.Gates) Decision {
	exposed := e.s.exposed()
	e.phase(flaggerv1.CanaryPhaseFinalising)
	e.status.CanaryWeight, e.status.Iterations = 0, 0
	e.serin.Window = nil
	if exposed {
		e.stamp(release.StampDrain, release.StampLeft)
		e.forgetCookie()
	}
	return e.done(gates)
}

// finalising takes the target's pods away when nothing reaches them any more.
func finalising(s Snapshot) Decision {
	if s.serin().Revision == "" && !s.Pruned {
		e := s.edit()
		e.serin.Revision, e.serin.Promoted, e.serin.Configs = s.pinned(), s.promoted(), s.Workload.Configs
		return e.stamp(release.StampSince, release.StampDrain).done(nil)
	}
	effects := standing(s)
	gates := release.Look(s, primaryPromoted)
	switch first := gates.First(); {
	case first != nil && first.Verdict == release.Fail && s.Workload.Target.serves():
		return promotionFailed(s, gates, effects)
	case first != nil:
		return hold(s, gates, effects...)
	case s.Plan.Routed && s.live() > 0:
		return s.edit().effect(effects...).effect(RouteIs{}).stamp(release.StampDrain).done(gates)
	}
	gates = append(gates, release.Look(s, drained)...)
	if gates.Verdict() != release.Pass {
		return hold(s, gates, effects...)
	}
	e := s.edit().effect(effects...).effect(ScalerPaused{Paused: true}, DownToZero{}, ConfigsCollected{})
	return e.succeed(intentCompleted).done(gates)
}

// succeed ends a release whose revision the primary runs.
func (e *edit) succeed(intent string) *edit {
	e.phase(flaggerv1.CanaryPhaseSucceeded)
	e.status.CanaryWeight, e.status.Iterations = 0, 0
	e.status.LastPromotedSpec, e.serin.Promoted = e.status.LastAppliedSpec, e.serin.Revision
	e.settle()
	if len(e.s.Plan.hooks(flaggerv1.PostRolloutHook)) > 0 && !e.s.Pruned {
		e.serin.Intent = intent
		return e
	}
	return e.tell(completed(e.s, intent))
}

// settle forgets what only a moving release needs.
func (e *edit) settle() {
	e.serin.Window, e.serin.Since, e.serin.DrainUntil, e.serin.Asked, e.serin.Unreachable = nil, nil, nil, nil, nil
	e.serin.Started, e.serin.Held, e.serin.Intent, e.serin.Reason, e.serin.Approved = false, "", "", "", nil
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
	var gates release.Gates
	for _, hook := range s.Plan.hooks(flaggerv1.PostRolloutHook) {
		name := string(hook.Type) + "/" + hook.Name
		p := s.hookProbe(hook, phase, s.run(), release0)
		answer, ok := s.Answers.To(p)
		if !ok {
			gates = append(gates, release.Asks(name, p, "waiting for the answer of "+hook.Name))
			break
		}
		g := release.Passes(name, "answered")
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
	if gates.Verdict() != release.Pass && s.Workload.Target.Revision == s.pinned() {
		return hold(s, gates, effects...)
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

// skipping promotes without analysis: the primary first, then whatever traffic the canary has, its pods last.
func skipping(s Snapshot) Decision {
	effects := standing(s)
	copied := s.Workload.Primary.ID == s.copyID()
	if !copied {
		e := s.edit().effect(effects...)
		if s.Workload.Target.Revision != s.pinned() {
			e.run() // what is to be promoted changed before it was
			return e.stamp(release.StampSince).done(nil)
		}
		return e.effect(CopyTemplate{Revision: s.pinned(), ID: s.copyID()}).stamp(release.StampSince).tell(s.copying()).done(nil)
	}
	effects = append(effects, ScalerExists{Update: true})
	gates := release.Look(s, primaryPromoted)
	switch first := gates.First(); {
	case first != nil && first.Verdict == release.Fail && s.Workload.Target.serves():
		return promotionFailed(s, gates, effects)
	case first != nil:
		return hold(s, gates, effects...)
	case s.exposed() && s.serin().DrainUntil == nil && (!s.Pruned || s.live() > 0):
		e := s.edit().effect(effects...).effect(RouteIs{}).stamp(release.StampDrain, release.StampLeft)
		e.forgetCookie()
		return e.done(gates)
	}
	gates = append(gates, release.Look(s, drained)...)
	if gates.Verdict() != release.Pass {
		return hold(s, gates, effects...)
	}
	e := s.edit().effect(effects...).effect(ScalerPaused{Paused: true}, DownToZero{}, ConfigsCollected{})
	e.status.FailedChecks = 0
	return e.succeed(intentSkipped).done(gates)
}

// promotionFailed leaves the canary serving: the primary has the new template and cannot run it, so there is nothing
// to roll back to. The next revision repairs the primary.
func promotionFailed(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	message := s.primaryMessage()
	e := s.edit().effect(effects...)
	weight := 0
	if s.Plan.Routed {
		weight = release.Total
		e.effect(RouteIs{Canary: release.Total})
	}
	e.tell(
		release.Event{Type: release.Warning, Message: message},
		release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Promotion of %s failed, primary not ready: %s", s.Plan.workload(), message),
			Alert: &release.Alert{Severity: release.Error, Message: "Promotion failed, primary not ready: " + message},
		})
	e.phase(flaggerv1.CanaryPhaseFailed)
	e.zero()
	e.status.CanaryWeight = weight
	e.settle()
	e.serin.Promoted = nothing
	if len(s.Plan.hooks(flaggerv1.PostRolloutHook)) > 0 && !s.Pruned {
		e.serin.Intent = intentFailed
	}
	return e.done(gates)
}
