package canary

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// prepareRelease evaluates the gates before the start of a release. Before they pass, only conditions and the queue are written.
func prepareRelease(s Snapshot) Decision {
	gates := release.EvaluateGates(s, startGates(s)...)
	switch first := gates.First(); {
	case first == nil:
		return startRelease(s, gates)
	case first.Opener == release.ByUser && isHookGate(first, flaggerv1.ConfirmRolloutHook):
		e := s.edit().addEffects(steadyStateEffects(s)...).enterPhase(flaggerv1.CanaryPhaseWaiting)
		recordAwaitingApproval(e)
		yieldInQueue(e)
		recordRefusal(e, first)
		return e.addEvents(awaitingApprovalEvents(s, gates)...).decision(gates)
	default:
		return waitInQueue(s, gates, steadyStateEffects(s)...)
	}
}

// awaitStartApproval waits until the release is approved, and calls the webhooks once per interval. An approval is valid for one
// revision only.
func awaitStartApproval(s Snapshot) Decision {
	effects := steadyStateEffects(s)
	switch {
	case s.statusFromOtherController():
		return adoptOtherStatus(s.edit().addEffects(effects...)).addEvents(release.Event{
			Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s", s.Plan.targetName(), s.Status.Phase),
		}).decision(nil)
	case s.Workload.Target.Revision == s.promotedRevision():
		e := s.edit().addEffects(effects...)
		e.enterPhase(flaggerv1.CanaryPhaseSucceeded).clearRunState()
		e.recordAppliedRevision()
		return e.addEvents(cancelledEvent(s)).decision(nil)
	case s.hasCommand(CommandAbort):
		e := s.edit().addEffects(effects...)
		e.serin.Command = s.Command
		return failRelease(e, reasonAbort).decision(nil)
	case s.serin().Run != approvalID(s, s.Status):
		return recordAwaitingApproval(s.edit().addEffects(effects...)).decision(nil)
	}
	hooks := s.Plan.hooksOfType(flaggerv1.RollbackHook)
	conditions := make([]gate, 0, len(hooks))
	for _, hook := range hooks {
		conditions = append(conditions, rollbackRequestPolled(hook, "waiting"))
	}
	rollback := release.EvaluateGates(s, conditions...)
	if first := rollback.First(); first != nil && first.Verdict == release.Fail {
		e := s.edit().addEffects(effects...).addEvents(rollback.Events()...)
		return failRelease(e, "a webhook requested a rollback before the release started").decision(rollback)
	}
	start := release.EvaluateGates(s, startGates(s)...)
	gates := slices.Concat(rollback, start)
	switch first := gates.First(); {
	case first == nil:
		return startRelease(s, gates)
	case first.Answer != nil && first.Opener == release.ByUser && isHookGate(first, flaggerv1.ConfirmRolloutHook) && s.serin().Held != first.Name:
		// The webhook was called and refused. A gate whose webhook is only due to be called again has nothing new to report.
		e := s.edit().addEffects(effects...)
		yieldInQueue(e)
		recordRefusal(e, first)
		return e.addEvents(awaitingApprovalEvents(s, start)...).decision(gates)
	default:
		return wakeNoLaterThan(waitInQueue(s, gates, effects...), nextRollbackPoll(s, "waiting"))
	}
}

// startGates are the gates before the start of a release.
func startGates(s Snapshot) []gate {
	conditions := []gate{primaryReady, routeAccepted}
	if s.hasCommand(CommandPromote) || shipsUnanalyzed(s) {
		return conditions
	}
	if s.Queue != nil {
		conditions = append(conditions, queueGate)
	}
	for _, hook := range s.Plan.hooksOfType(flaggerv1.ConfirmRolloutHook) {
		conditions = append(conditions, hookApproves(hook, s.Status.Phase, s.Workload.Target.Revision, callRefusedHooksFrom(s),
			fmt.Sprintf("Confirm-rollout check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for approval %s", s.Plan.qualifiedName(), hook.Name)))
	}
	return conditions
}

// approvalID identifies the approval of one revision, so that neither an answer nor a command for it applies to another revision.
func approvalID(s Snapshot, status flaggerv1.CanaryStatus) string {
	began := ""
	if c := findCondition(status, flaggerv1.ConditionPromoted); c != nil {
		began = c.LastUpdateTime.UTC().Format(time.RFC3339)
	}
	return digest(s.UID, "waiting", s.Workload.Target.Revision, began)[:16]
}

// recordAwaitingApproval records that the revision of the target waits for approval.
func recordAwaitingApproval(e *statusEdit) *statusEdit {
	if c := findCondition(e.status, flaggerv1.ConditionPromoted); c != nil {
		c.LastUpdateTime = metav1.NewTime(e.snapshot.Now.Truncate(time.Second))
	}
	e.serin.Run, e.serin.Asked, e.serin.Held = approvalID(e.snapshot, e.status), nil, ""
	e.recordCommand()
	return e
}

// recordRefusal records the gate of a webhook that refused, so that its event is sent once, and the time of the call.
func recordRefusal(e *statusEdit, g *release.Gate) {
	calledAt := metav1.NewMicroTime(g.Until.Add(-e.snapshot.Plan.Interval))
	e.serin.Asked, e.serin.Held = &calledAt, g.Name
}

func awaitingApprovalEvents(s Snapshot, gates release.Gates) []release.Event {
	return withAlert(gates.Events(), s.Plan.mutesAlerts(gates.First().Name), release.Warn, "Canary is waiting for approval.")
}

// startRelease starts the release of a new revision.
func startRelease(s Snapshot, gates release.Gates) Decision {
	e := s.edit().addEffects(steadyStateEffects(s)...).enterPhase(flaggerv1.CanaryPhaseProgressing)
	if s.canaryHasTraffic() && s.primaryReachable() {
		e.addEffects(trafficEnded(s)...) // a user routed traffic to the target, whose revision changes now
	}
	e.resetCounters()
	beginRun(e)
	if s.canaryHasTraffic() {
		e.addStamps(release.StampTrafficEnded) // after a failed promotion the previous revision had traffic until now
	}
	e.addStamps(release.StampSince).addEvents(gates.Events()...).addEvents(release.Event{
		Type: release.Normal, Message: "New revision detected! Scaling up " + s.Plan.targetName(), Phase: string(flaggerv1.CanaryPhaseProgressing),
		Alert: &release.Alert{Severity: release.Info, Message: "New revision detected, progressing canary analysis.", Metadata: true},
	})
	if s.Plan.NoAnalysis {
		e.addEvents(release.Event{Type: release.Normal, Message: NoAnalysisMessage, ObjectOnly: true})
	}
	if shipsUnanalyzed(s) {
		skipAnalysisOnCommand(e)
	}
	return e.decision(gates)
}
