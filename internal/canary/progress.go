package canary

import (
	"fmt"

	"github.com/serin-dev/serin/internal/release"
)

// continueRelease advances a release, window by window, or rolls it back.
func continueRelease(s Snapshot) Decision {
	if s.statusFromOtherController() {
		return adoptRun(s)
	}
	intent := s.serin().Intent
	switch {
	case IsFinalising(s.Status):
		return continueFinalising(s)
	case s.isReverting():
		return continueRollback(s)
	case s.hasCommand(CommandAbort):
		return rollBackOnCommand(s)
	case intent == "" && !s.Plan.SkipAnalysis && s.primaryHasNewTemplate():
		// The promotion was decided, and the process stopped before it wrote the status.
		return startPromotion(s.edit().addEffects(steadyStateEffects(s)...), nil)
	case s.NextTarget != "" && !s.primaryHasNewTemplate():
		return rollBackFormerTarget(s)
	case primaryBecameReady(s):
		return recordPrimary(s)
	case intent == intentSkip, s.Plan.SkipAnalysis:
		return promoteWithoutAnalysis(s)
	}
	if d, ok := restartOnTargetChange(s); ok {
		return d
	}
	if inheritsTraffic(s) && s.primaryReachable() {
		return withdrawInheritedTraffic(s)
	}
	switch {
	case s.hasCommand(CommandPromoteFull):
		e := s.edit()
		e.serin.Command = s.Command
		return skipAnalysisOnCommand(e).decision(nil)
	case s.hasCommand(CommandPromote) && !s.approvedByCommand():
		e := s.edit()
		e.serin.Command = s.Command
		return e.addEvents(release.Event{Type: release.Warning, Message: fmt.Sprintf(
			"Ignored the command %s: it does not name the current step of %s. The command %s skips the remaining analysis",
			CommandPromote, s.Plan.targetName(), CommandPromoteFull,
		)}).decision(nil)
	}
	effects := steadyStateEffects(s, ScalerPaused{Paused: false})
	if s.Workload.Target.Replicas == 0 {
		effects = append(effects, TargetScaledUp{})
	}
	if d, ok := reconcileLiveWeight(s, effects); ok {
		return d
	}
	if !s.currentWindow().open {
		return evaluateBeforeTraffic(s, effects)
	}
	return evaluateWindow(s, effects)
}

// reconcileLiveWeight corrects a weight that differs from that of the run. A weight above zero that a user set remains until the
// next step; the status keeps the weight of the plan. A weight that was removed is restored, and observed again. Traffic never
// moves to a workload that cannot serve it.
func reconcileLiveWeight(s Snapshot, effects []release.Effect) (Decision, bool) {
	if !s.currentWindow().open || !s.Plan.HasRouter || s.Route.Problem != "" {
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
	due := !s.Now.Before(s.currentWindow().end())
	switch {
	case s.Plan.Strategy == Weighted && live > 0 && live == s.Plan.nextWeight(recorded) && due:
		// The step was taken, and the process stopped before it wrote the status.
		e.status.CanaryWeight = live
		return e.recordApproval().setCookies().startWindow().addEvents(weightAdvancedEvent(s, live)).decision(nil), true
	case s.Plan.Strategy == BlueGreen && live == release.Total && s.Status.Iterations >= s.Plan.Iterations && due:
		return routeAllToCanary(e.recordApproval(), nil), true // the same for the last step of blue/green
	case live < recorded && !s.Workload.Target.isReachable(), live > recorded && !s.primaryReachable():
		return Decision{}, false
	case s.Plan.Strategy == Weighted && live > 0:
		return Decision{}, false
	}
	if recorded == 0 {
		e.addStamps(release.StampTrafficEnded)
	}
	return e.addEffects(TrafficWeight{Canary: recorded, Mirror: s.Plan.mirrorsTraffic(s.Status.Iterations)}).setCookies().startWindow().addEvents(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Restored %s canary weight %d after an external change to %d", s.Plan.qualifiedName(), recorded, live),
	}).decision(nil), true
}
