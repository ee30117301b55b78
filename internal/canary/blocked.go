package canary

import (
	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// blockingReasons are failed gates, one for each problem that the user must fix before Serin acts on this Canary.
func blockingReasons(s Snapshot) release.Gates {
	var gates release.Gates
	if s.TargetConflict != "" {
		gates = append(gates, release.NewFailedGate("obstacle", release.ByUser, s.TargetConflict))
	}
	for _, message := range s.Plan.ValidationErrors {
		gates = append(gates, release.NewFailedGate("plan", release.ByUser, message))
	}
	if s.Workload.Problem != "" {
		gates = append(gates, release.NewFailedGate("target", release.ByUser, s.Workload.Problem))
	}
	if s.Workload.ScalerProblem != "" {
		gates = append(gates, release.NewFailedGate("autoscaler", release.ByUser, s.Workload.ScalerProblem))
	}
	return gates
}

// blockedDecision changes nothing, and reports the problems that the user must fix in the condition Blocked and in events.
// There is one exception: traffic of a target that was deleted, or has a revision whose release cannot begin, moves to the primary,
// unless the target belongs to another Canary.
func blockedDecision(s Snapshot, gates release.Gates) Decision {
	targetLost := !s.Workload.Target.Found && s.Workload.Problem != ""
	mustReturn := s.TargetConflict == "" && s.isRouteObserved() && s.currentWeight() > 0 && s.primaryCanServe()
	switch {
	case !mustReturn || !targetLost && !hasUnreleasedRevision(s):
		return stopDeadline(s, withBlockedCondition(s, gates))
	case hasUnrecordedTraffic(s):
		return recordUnrecordedTraffic(s)
	default:
		return stopDeadline(s, withBlockedCondition(s, gates, TrafficWeight{}))
	}
}

// hasUnreleasedRevision reports whether the target of a release in progress has another revision than the release: it receives the
// traffic of the release without having been analysed. The revision is unknown while the target has a problem.
func hasUnreleasedRevision(s Snapshot) bool {
	return s.serin().Revision != "" && s.Workload.Target.Found && s.Workload.Problem == "" && s.Workload.Target.Revision != s.pinnedRevision()
}

// withBlockedCondition leaves the status unchanged except for the condition Blocked, which has the message of the first gate.
func withBlockedCondition(s Snapshot, gates release.Gates, effects ...release.Effect) Decision {
	e := s.editUnchanged().addEffects(effects...)
	first := gates.First()
	e.setCondition(flaggerv1.CanaryCondition{Type: flaggerv1.ConditionBlocked, Status: corev1.ConditionTrue, Reason: conditionReason(first.Name), Message: first.Message})
	for _, gate := range gates {
		e.addEvents(release.Event{Type: release.Warning, Message: gate.Message, Persistent: true})
	}
	d := e.decision(gates)
	if len(changedConditions(s.Status, d.Status)) == 0 {
		d.Status, d.Wake = s.Status, gates.Wake()
	}
	return d
}
