package canary

import (
	"fmt"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// progress moves a revision on, window by window, or takes it back.
func progress(s Snapshot) Decision {
	if s.statusFromOtherController() {
		return adopted(s)
	}
	intent := s.serin().Intent
	switch {
	case s.rollingBack():
		return takeBack(s)
	case s.commanded("abort"):
		return aborted(s)
	case intent == "" && !s.Plan.Skip && s.primaryHasTemplate():
		return promote(s.edit().effect(standing(s)...), nil) // it was decided, and the process died before it could say so
	case s.becameReady():
		return recordPrimary(s)
	case intent == intentSkip, s.Plan.Skip:
		return skipping(s)
	}
	if d, ok := changed(s); ok {
		return d
	}
	if s.inheritsTraffic() && s.primaryReachable() {
		return disinherited(s)
	}
	if s.commanded("promote") {
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
	if d, ok := weightDrifted(s, effects); ok {
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
	return e.intend(intentRollback, reasonAbort).tell(release.Event{
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
	if revision == s.pinnedRevision() && !reshaped {
		return Decision{}, false
	}
	e := s.edit()
	if revision == s.promotedRevision() {
		e.applied()
		return e.intend(intentCancel, "the target is back at the promoted revision").tell(cancelled(s)).done(nil), true
	}
	touched := s.serin().Started || s.canaryHasTraffic() || s.Status.Iterations > 0 || s.Status.FailedChecks > 0
	if !touched {
		// No query was sent and nothing was observed yet: ConfigMap and Deployment of one change arrive one after the other.
		e.effect(ConfigsRestored{ID: s.copyID()})
		e.zero()
		e.run()
		return e.stamp(release.StampSince).done(nil), true
	}
	if s.primaryCanServe() && s.shapedBy() == "" {
		// What the new revision gets is taken away from the old one first, and the primary has to be reached for that.
		if gates := release.Look(s, primaryEndpointsAtOnce); gates.Verdict() != release.Pass {
			return keepStatus(s, gates, standing(s)...), true
		}
	}
	exposed := s.canaryHasTraffic() || reshaped && s.shapedBy() != ""
	if exposed && (s.primaryReachable() || s.Workload.Primary.serves() && !s.canaryReachable()) {
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

// weightDrifted corrects a weight that differs from that of the run. A weight above zero that a user set is adopted; a lost one
// is written again, and observed anew. Traffic never moves to a workload that cannot answer.
func weightDrifted(s Snapshot, effects []release.Effect) (Decision, bool) {
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
	case live < said && !s.canaryReachable(), live > said && !s.primaryReachable():
		return Decision{}, false
	case s.Plan.Strategy == Weighted && live > 0:
		return Decision{}, false
	}
	if said == 0 {
		e.stamp(release.StampLeft)
	}
	return e.effect(RouteIs{Canary: said, Mirror: s.mirrors(s.Status.Iterations)}).cookies().window().tell(release.Event{
		Type: release.Warning, Message: fmt.Sprintf("Restored %s canary weight %d, which was changed to %d by somebody else", s.Plan.full(), said, live),
	}).done(nil), true
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
		return keepStatus(s, gates, effects...)
	}
	message := first.Message
	if first.Name == "canary-ready" {
		message = withoutPods(s).canaryMessage()
	}
	return s.edit().effect(effects...).intend(intentRollback, first.Message).tell(
		release.Event{Type: release.Warning, Message: message},
		release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Rolling back %s progress deadline exceeded %s", s.Plan.full(), first.Message),
			Alert: &release.Alert{Severity: release.Error, Message: "Progress deadline exceeded " + first.Message},
		}).done(gates)
}
