package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// continueRelease advances a release, window by window, or rolls it back.
func continueRelease(s Snapshot) Decision {
	if s.statusFromOtherController() {
		return adoptRun(s)
	}
	intent := s.serin().Intent
	switch {
	case s.mustRollBack():
		return continueRollback(s)
	case s.hasCommand("abort"):
		return rollBackOnCommand(s)
	case intent == "" && !s.Plan.SkipAnalysis && s.primaryHasTemplate():
		// The promotion was decided, and the process stopped before it wrote the status.
		return startPromotion(s.edit().addEffects(steadyStateEffects(s)...), nil)
	case s.primaryBecameReady():
		return recordPrimary(s)
	case intent == intentSkip, s.Plan.SkipAnalysis:
		return promoteWithoutAnalysis(s)
	}
	if d, ok := restartOnTargetChange(s); ok {
		return d
	}
	if s.inheritsTraffic() && s.primaryReachable() {
		return withdrawInheritedTraffic(s)
	}
	if s.hasCommand("promote") {
		e := s.edit()
		e.serin.Command = s.Command
		return e.recordIntent(intentSkip, "the release was promoted by command").addEvents(release.Event{
			Type: release.Normal, Message: fmt.Sprintf("Promoting %s by command, without further analysis", s.Plan.targetName()),
		}).decision(nil)
	}
	effects := steadyStateEffects(s, ScalerPaused{Paused: false})
	if s.Workload.Target.Replicas == 0 {
		effects = append(effects, TargetScaledUp{})
	}
	if d, ok := reconcileLiveWeight(s, effects); ok {
		return d
	}
	if !s.openWindow().open {
		return evaluateBeforeTraffic(s, effects)
	}
	return evaluateWindow(s, effects)
}

// rollBackOnCommand rolls back a release at the user's command.
func rollBackOnCommand(s Snapshot) Decision {
	e := s.edit()
	e.serin.Command = s.Command
	return e.recordIntent(intentRollback, reasonAbort).addEvents(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Rolling back %s aborted by command", s.Plan.qualifiedName()),
	}).decision(nil)
}

// adoptRun continues a run of another controller at its current step. The window restarts, because Serin did not observe it.
func adoptRun(s Snapshot) Decision {
	e := adoptOtherStatus(s.edit())
	e.serin.Shape, e.serin.Run = s.Plan.runShape(), s.run()
	e.addStamps(release.StampSince)
	if s.Plan.HasRouter && s.currentWeight() == 0 {
		e.addStamps(release.StampTrafficEnded) // when the target last had traffic is unknown: it may have been a moment ago
	}
	where := fmt.Sprintf("weight %d", s.currentWeight())
	if s.Plan.Strategy != Weighted {
		where = fmt.Sprintf("iteration %d/%d", s.Status.Iterations, s.Plan.Iterations)
	}
	if s.Workload.NewestTemplateTime.IsZero() && s.Workload.Target.FlaggerHash != s.Status.LastAppliedSpec {
		where += ", assuming that the target runs the recorded revision, which could not be verified"
	}
	if s.currentWeight() > 0 || s.Status.CanaryWeight > 0 || s.Status.Iterations > 0 || s.Route.Mirrored {
		e.serin.Started = true
		e.status.CanaryWeight = s.currentWeight() // Flagger reports none with iterations
		e.status.Iterations = max(s.Status.Iterations, 0)
		e.openWindow()
	}
	return e.addEvents(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s at %s", s.Plan.targetName(), s.Status.Phase, where),
	}).decision(nil)
}

// recordIntent records an intent before any of its effects are applied.
func (e *statusEdit) recordIntent(intent, why string) *statusEdit {
	e.serin.Intent, e.serin.Reason = intent, release.Truncate(why, maxMessage)
	return e
}

// restartOnTargetChange cancels or restarts the run if the target or the shape of the plan changed during it; false: neither did.
func restartOnTargetChange(s Snapshot) (Decision, bool) {
	revision := s.Workload.Target.Revision
	reshaped := s.serin().Shape != "" && s.serin().Shape != s.Plan.runShape()
	if revision == s.pinnedRevision() && !reshaped {
		return Decision{}, false
	}
	e := s.edit()
	if revision == s.promotedRevision() {
		e.recordAppliedRevision()
		return e.recordIntent(intentCancel, "the target was reverted to the promoted revision").addEvents(cancelledEvent(s)).decision(nil), true
	}
	observed := s.serin().Started || s.canaryHasTraffic() || s.Status.Iterations > 0 || s.Status.FailedChecks > 0
	if !observed {
		// No query was sent and nothing was observed yet: the ConfigMap and the Deployment of one change arrive one after the other.
		e.addEffects(ConfigsRestored{ID: s.promotionCopyID()})
		e.resetCounters()
		beginRun(e)
		return e.addStamps(release.StampSince).decision(nil), true
	}
	if s.primaryCanServe() && s.routingProvider() == "" {
		// The traffic of the previous revision returns to the primary first, and the primary must be reachable for that.
		if gates := release.EvaluateGates(s, primaryEndpointsForRollback); gates.Verdict() != release.Pass {
			return keepStatus(s, gates, steadyStateEffects(s)...), true
		}
	}
	exposed := s.canaryHasTraffic() || reshaped && s.routingProvider() != ""
	if exposed && (s.primaryReachable() || s.Workload.Primary.canServe() && !s.Workload.Target.isReachable()) {
		e.addEffects(TrafficWeight{Provider: s.routingProvider()})
	}
	e.addEffects(ConfigsRestored{ID: s.promotionCopyID()})
	e.resetCounters()
	beginRun(e)
	e.enterPhase(flaggerv1.CanaryPhaseProgressing)
	e.addStamps(release.StampSince)
	if exposed {
		e.addStamps(release.StampTrafficEnded)
		e.expireCookie()
	}
	return e.addEvents(release.Event{
		Type: release.Normal, Message: "New revision detected! Restarting analysis for " + s.Plan.targetName(),
	}).decision(nil), true
}

// reconcileLiveWeight corrects a weight that differs from that of the run. A weight above zero that a user set remains until the
// next step; the status keeps the weight of the plan. A weight that was removed is restored, and observed again. Traffic never
// moves to a workload that cannot serve it.
func reconcileLiveWeight(s Snapshot, effects []release.Effect) (Decision, bool) {
	if !s.openWindow().open || !s.Plan.HasRouter || s.Route.Problem != "" {
		return Decision{}, false
	}
	live, recorded := s.currentWeight(), s.Status.CanaryWeight
	if !s.Route.Found {
		live = 0
	}
	if live == recorded {
		return Decision{}, false
	}
	e := s.edit().addEffects(effects...)
	due := !s.Now.Before(s.openWindow().end())
	switch {
	case s.Plan.Strategy == Weighted && live > 0 && live == s.Plan.nextWeight(recorded) && due:
		// The step was taken, and the process stopped before it wrote the status.
		e.status.CanaryWeight = live
		return e.setCookies().openWindow().addEvents(weightAdvancedEvent(s, live)).decision(nil), true
	case s.Plan.Strategy == BlueGreen && live == release.Total && s.Status.Iterations >= s.Plan.Iterations && due:
		return routeAllToCanary(e, nil), true // the same for the last step of blue/green
	case live < recorded && !s.Workload.Target.isReachable(), live > recorded && !s.primaryReachable():
		return Decision{}, false
	case s.Plan.Strategy == Weighted && live > 0:
		return Decision{}, false
	}
	if recorded == 0 {
		e.addStamps(release.StampTrafficEnded)
	}
	return e.addEffects(TrafficWeight{Canary: recorded, Mirror: s.Plan.mirrorsTraffic(s.Status.Iterations)}).setCookies().openWindow().addEvents(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Restored %s canary weight %d after an external change to %d", s.Plan.qualifiedName(), recorded, live),
	}).decision(nil), true
}

// mirrorsTraffic reports whether blue/green mirrors requests to the canary in that iteration.
func (p *Plan) mirrorsTraffic(iteration int) bool {
	return p.Mirror && p.Strategy == BlueGreen && iteration >= 1 && iteration <= p.Iterations
}

func weightAdvancedEvent(s Snapshot, weight int) release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Advance %s canary weight %d", s.Plan.qualifiedName(), weight)}
}

// awaitCanaryReady waits for the canary, or rolls back when its deadline has passed.
func awaitCanaryReady(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	first := gates.First()
	if first == nil || first.Name != "canary-ready" && first.Name != "canary-endpoints" || first.Verdict != release.Fail {
		return keepStatus(s, gates, effects...)
	}
	message := first.Message
	if first.Name == "canary-ready" {
		message = canaryMessage(withoutPodDetails(s))
	}
	return s.edit().addEffects(effects...).recordIntent(intentRollback, first.Message).addEvents(
		release.Event{Type: release.Warning, Message: message},
		release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Rolling back %s progress deadline exceeded %s", s.Plan.qualifiedName(), first.Message),
			Alert: &release.Alert{Severity: release.Error, Message: "Progress deadline exceeded " + first.Message},
		},
	).decision(gates)
}
