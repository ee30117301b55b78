package canary

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// begin asks everything that must be so before a release starts. Nothing is written before.
func begin(s Snapshot) Decision {
	if s.Status.Phase == flaggerv1.CanaryPhaseWaiting {
		return waiting(s)
	}
	gates := release.Look(s, s.startGates()...)
	switch first := gates.First(); {
	case first == nil:
		return start(s, gates)
	case first.Opener == release.ByPerson && isHook(first, flaggerv1.ConfirmRolloutHook):
		e := s.edit().effect(standing(s)...).phase(flaggerv1.CanaryPhaseWaiting).await()
		return e.stepAside().refused(first).tell(s.waitingEvents(gates)...).done(gates)
	default:
		return inLine(s, gates, standing(s)...)
	}
}

// waiting holds a revision until its release is approved, asking once per interval. An approval belongs to one revision:
// another one needs its own.
func waiting(s Snapshot) Decision {
	effects := standing(s)
	switch {
	case s.statusFromOtherController():
		return s.edit().effect(effects...).adopt().tell(release.Event{
			Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s", s.Plan.workload(), s.Status.Phase),
		}).done(nil)
	case s.Workload.Target.Revision == s.promotedRevision():
		e := s.edit().effect(effects...)
		e.phase(flaggerv1.CanaryPhaseSucceeded).settle()
		e.applied()
		return e.tell(cancelled(s)).done(nil)
	case s.commanded("abort"):
		e := s.edit().effect(effects...)
		e.serin.Command = s.Command
		return e.fail(reasonAbort).done(nil)
	case s.serin().Run != s.waitingRun(s.Status):
		return s.edit().effect(effects...).await().done(nil)
	}
	hooks := s.Plan.hooks(flaggerv1.RollbackHook)
	conditions := make([]gate, 0, len(hooks))
	for _, hook := range hooks {
		conditions = append(conditions, rollbackPolled(hook, "waiting"))
	}
	rollback := release.Look(s, conditions...)
	if first := rollback.First(); first != nil && first.Verdict == release.Fail {
		return s.edit().effect(effects...).tell(rollback.Events()...).fail("a rollback hook ended the release before it started").done(rollback)
	}
	starts := release.Look(s, s.startGates()...)
	gates := slices.Concat(rollback, starts)
	switch first := gates.First(); {
	case first == nil:
		return start(s, gates)
	case first.Answer != nil && first.Opener == release.ByPerson && isHook(first, flaggerv1.ConfirmRolloutHook) && s.serin().Held != first.Name:
		// It was asked and refused. A gate that only has to be asked again has nothing new to report.
		return s.edit().effect(effects...).stepAside().refused(first).tell(s.waitingEvents(starts)...).done(gates)
	default:
		return wakeBy(inLine(s, gates, effects...), s.polledAgain("waiting"))
	}
}

// startGates are the conditions before a revision is taken up.
func (s *Snapshot) startGates() []gate {
	conditions := []gate{primaryReady, routeReadable}
	if s.commanded("promote") {
		return conditions
	}
	if s.Turn != nil {
		conditions = append(conditions, turn)
	}
	for _, hook := range s.Plan.hooks(flaggerv1.ConfirmRolloutHook) {
		conditions = append(conditions, approves(hook, s.Status.Phase, s.Workload.Target.Revision, s.askFrom(),
			fmt.Sprintf("Confirm-rollout check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for approval %s", s.Plan.full(), hook.Name)))
	}
	return conditions
}

// waitingRun names the wait for approval of one revision, so that neither an answer nor a command for it counts for
// another one.
func (s *Snapshot) waitingRun(status flaggerv1.CanaryStatus) string {
	began := ""
	if c := condition(status, flaggerv1.ConditionPromoted); c != nil {
		began = c.LastUpdateTime.UTC().Format(time.RFC3339)
	}
	return digest(s.UID, "waiting", s.Workload.Target.Revision, began)[:16]
}

// await begins the wait for the approval of the target's revision.
func (e *edit) await() *edit {
	if c := condition(e.status, flaggerv1.ConditionPromoted); c != nil {
		c.LastUpdateTime = metav1.NewTime(e.s.Now.Truncate(time.Second))
	}
	e.serin.Run, e.serin.Asked, e.serin.Held = e.s.waitingRun(e.status), nil, ""
	e.obeyed()
	return e
}

// refused records a closed gate, so that its event is sent once, and when it was asked.
func (e *edit) refused(g *release.Gate) *edit {
	asked := metav1.NewMicroTime(g.Until.Add(-e.s.Plan.Window))
	e.serin.Asked, e.serin.Held = &asked, g.Name
	return e
}

func (s *Snapshot) waitingEvents(gates release.Gates) []release.Event {
	return withAlert(gates.Events(), s.muted(gates.First().Name), release.Warn, "Canary is waiting for approval.")
}

// start takes a new revision up.
func start(s Snapshot, gates release.Gates) Decision {
	e := s.edit().effect(standing(s)...).phase(flaggerv1.CanaryPhaseProgressing)
	if s.canaryHasTraffic() && s.primaryReachable() {
		e.effect(RouteIs{}) // a user routed traffic to the target, which changes now
	}
	e.zero()
	e.run()
	if s.canaryHasTraffic() {
		e.stamp(release.StampLeft) // after a promotion that failed, the revision before this one had users until now
	}
	return e.stamp(release.StampSince).tell(gates.Events()...).tell(release.Event{
		Type: release.Normal, Message: "New revision detected! Scaling up " + s.Plan.workload(), Phase: string(flaggerv1.CanaryPhaseProgressing),
		Alert: &release.Alert{Severity: release.Info, Message: "New revision detected, progressing canary analysis.", Metadata: true},
	}).done(gates)
}

// run begins a new attempt with the target's revision; nothing that was asked or counted for another one stays.
func (e *edit) run() {
	old := *e.serin
	if left := old.LastTraffic; left != nil && (Moves(e.s.Status.Phase) || e.s.Now.Before(left.Add(e.s.Plan.Drain))) {
		// It may have gone on for half a drain, if what took it off could not say so; see unnoticed.
		old.LastTraffic = new(metav1.NewMicroTime(e.s.past(left.Add(e.s.Plan.Drain / 2))))
	}
	*e.serin = flaggerv1.SerinStatus{
		Promoted: old.Promoted, LastTraffic: old.LastTraffic, Command: old.Command, Shape: e.s.Plan.shape(),
	}
	if old.Unfinished != nil {
		unfinished := *old.Unfinished
		unfinished.Inherited = e.s.live() > 0 && !slices.ContainsFunc(e.effects, takesOff)
		e.serin.Unfinished = &unfinished
	}
	if old.Promoted == "" {
		e.serin.Promoted = e.s.promotedRevision()
	}
	e.obeyed()
	e.applied()
	e.began()
}

func cancelled(s Snapshot) release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Release of %s cancelled: it is back at the promoted revision", s.Plan.workload())}
}
