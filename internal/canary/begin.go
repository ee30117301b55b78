package canary

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// prepareRelease asks everything that must be so before a release starts. Nothing is written before.
func prepareRelease(s Snapshot) Decision {
	if s.Status.Phase == flaggerv1.CanaryPhaseWaiting {
		return awaitStartApproval(s)
	}
	gates := release.EvaluateGates(s, s.startGates()...)
	switch first := gates.First(); {
	case first == nil:
		return startRelease(s, gates)
	case first.Opener == release.ByUser && isHookGate(first, flaggerv1.ConfirmRolloutHook):
		e := s.edit().addEffects(steadyStateEffects(s)...).enterPhase(flaggerv1.CanaryPhaseWaiting).recordAwaitingApproval()
		return e.yieldInQueue().recordRefusal(first).addEvents(s.awaitingApprovalEvents(gates)...).decision(gates)
	default:
		return waitInQueue(s, gates, steadyStateEffects(s)...)
	}
}

// awaitStartApproval holds a revision until its release is approved, asking once per interval. An approval belongs to one revision:
// another one needs its own.
func awaitStartApproval(s Snapshot) Decision {
	effects := steadyStateEffects(s)
	switch {
	case s.statusFromOtherController():
		return s.edit().addEffects(effects...).adoptOtherStatus().addEvents(release.Event{
			Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s", s.Plan.targetName(), s.Status.Phase),
		}).decision(nil)
	case s.Workload.Target.Revision == s.promotedRevision():
		e := s.edit().addEffects(effects...)
		e.enterPhase(flaggerv1.CanaryPhaseSucceeded).clearRunState()
		e.recordAppliedRevision()
		return e.addEvents(cancelledEvent(s)).decision(nil)
	case s.hasCommand("abort"):
		e := s.edit().addEffects(effects...)
		e.serin.Command = s.Command
		return e.fail(reasonAbort).decision(nil)
	case s.serin().Run != s.approvalID(s.Status):
		return s.edit().addEffects(effects...).recordAwaitingApproval().decision(nil)
	}
	hooks := s.Plan.hooksOfType(flaggerv1.RollbackHook)
	conditions := make([]gate, 0, len(hooks))
	for _, hook := range hooks {
		conditions = append(conditions, rollbackRequestPolled(hook, "waiting"))
	}
	rollback := release.EvaluateGates(s, conditions...)
	if first := rollback.First(); first != nil && first.Verdict == release.Fail {
		return s.edit().addEffects(effects...).addEvents(rollback.Events()...).fail("a webhook requested a rollback before the release started").decision(rollback)
	}
	starts := release.EvaluateGates(s, s.startGates()...)
	gates := slices.Concat(rollback, starts)
	switch first := gates.First(); {
	case first == nil:
		return startRelease(s, gates)
	case first.Answer != nil && first.Opener == release.ByUser && isHookGate(first, flaggerv1.ConfirmRolloutHook) && s.serin().Held != first.Name:
		// It was asked and refused. A gate that only has to be asked again has nothing new to report.
		return s.edit().addEffects(effects...).yieldInQueue().recordRefusal(first).addEvents(s.awaitingApprovalEvents(starts)...).decision(gates)
	default:
		return wakeNoLaterThan(waitInQueue(s, gates, effects...), s.nextRollbackPoll("waiting"))
	}
}

// startGates are the conditions before a revision is taken up.
func (s *Snapshot) startGates() []gate {
	conditions := []gate{primaryReady, routeReadable}
	if s.hasCommand("promote") {
		return conditions
	}
	if s.Queue != nil {
		conditions = append(conditions, queueGate)
	}
	for _, hook := range s.Plan.hooksOfType(flaggerv1.ConfirmRolloutHook) {
		conditions = append(conditions, hookApproves(hook, s.Status.Phase, s.Workload.Target.Revision, s.askRefusedHooksFrom(),
			fmt.Sprintf("Confirm-rollout check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for approval %s", s.Plan.qualifiedName(), hook.Name)))
	}
	return conditions
}

// approvalID names the wait for approval of one revision, so that neither an answer nor a command for it counts for
// another one.
func (s *Snapshot) approvalID(status flaggerv1.CanaryStatus) string {
	began := ""
	if c := findCondition(status, flaggerv1.ConditionPromoted); c != nil {
		began = c.LastUpdateTime.UTC().Format(time.RFC3339)
	}
	return digest(s.UID, "waiting", s.Workload.Target.Revision, began)[:16]
}

// recordAwaitingApproval begins the wait for the approval of the target's revision.
func (e *statusEdit) recordAwaitingApproval() *statusEdit {
	if c := findCondition(e.status, flaggerv1.ConditionPromoted); c != nil {
		c.LastUpdateTime = metav1.NewTime(e.snapshot.Now.Truncate(time.Second))
	}
	e.serin.Run, e.serin.Asked, e.serin.Held = e.snapshot.approvalID(e.status), nil, ""
	e.recordCommand()
	return e
}

// recordRefusal records a closed gate, so that its event is sent once, and when it was asked.
func (e *statusEdit) recordRefusal(g *release.Gate) *statusEdit {
	asked := metav1.NewMicroTime(g.Until.Add(-e.snapshot.Plan.Window))
	e.serin.Asked, e.serin.Held = &asked, g.Name
	return e
}

func (s *Snapshot) awaitingApprovalEvents(gates release.Gates) []release.Event {
	return withAlert(gates.Events(), s.isMuted(gates.First().Name), release.Warn, "Canary is waiting for approval.")
}

// startRelease takes a new revision up.
func startRelease(s Snapshot, gates release.Gates) Decision {
	e := s.edit().addEffects(steadyStateEffects(s)...).enterPhase(flaggerv1.CanaryPhaseProgressing)
	if s.canaryHasTraffic() && s.primaryReachable() {
		e.addEffects(TrafficWeight{}) // a user routed traffic to the target, which changes now
	}
	e.resetCounters()
	e.beginRun()
	if s.canaryHasTraffic() {
		e.addStamps(release.StampTrafficEnded) // after a promotion that failed, the revision before this one had users until now
	}
	return e.addStamps(release.StampSince).addEvents(gates.Events()...).addEvents(release.Event{
		Type: release.Normal, Message: "New revision detected! Scaling up " + s.Plan.targetName(), Phase: string(flaggerv1.CanaryPhaseProgressing),
		Alert: &release.Alert{Severity: release.Info, Message: "New revision detected, progressing canary analysis.", Metadata: true},
	}).decision(gates)
}

// beginRun begins a new attempt with the target's revision; nothing that was asked or counted for another one stays.
func (e *statusEdit) beginRun() {
	old := *e.serin
	if left := old.LastTraffic; left != nil && (HasTransitionEffects(e.snapshot.Status.Phase) || e.snapshot.Now.Before(left.Add(e.snapshot.Plan.Drain))) {
		// It may have gone on for half a drain, if what took it off could not say so; see unnoticed.
		old.LastTraffic = new(metav1.NewMicroTime(e.snapshot.clampToNow(left.Add(e.snapshot.Plan.Drain / 2))))
	}
	*e.serin = flaggerv1.SerinStatus{
		Promoted: old.Promoted, LastTraffic: old.LastTraffic, Command: old.Command, Shape: e.snapshot.Plan.runShape(),
	}
	if old.Unfinished != nil {
		unfinished := *old.Unfinished
		unfinished.Inherited = e.snapshot.liveWeight() > 0 && !slices.ContainsFunc(e.effects, removesCanaryTraffic)
		e.serin.Unfinished = &unfinished
	}
	if old.Promoted == "" {
		e.serin.Promoted = e.snapshot.promotedRevision()
	}
	e.recordCommand()
	e.recordAppliedRevision()
	e.markRunStart()
}

func cancelledEvent(s Snapshot) release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Release of %s cancelled: the target was reverted to the promoted revision", s.Plan.targetName())}
}
