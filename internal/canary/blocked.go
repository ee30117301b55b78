package canary

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// blockingReasons are the reasons for which Serin must not act on this Canary, each of which a person has to remove.
func blockingReasons(s Snapshot) release.Gates {
	var gates release.Gates
	if s.TargetConflict != "" {
		gates = append(gates, release.NewFailedGate("obstacle", release.ByUser, s.TargetConflict))
	}
	for _, block := range s.Plan.ValidationErrors {
		gates = append(gates, release.NewFailedGate("plan", release.ByUser, block))
	}
	if s.Workload.Problem != "" {
		gates = append(gates, release.NewFailedGate("target", release.ByUser, s.Workload.Problem))
	}
	if s.Workload.ScalerProblem != "" {
		gates = append(gates, release.NewFailedGate("autoscaler", release.ByUser, s.Workload.ScalerProblem))
	}
	return gates
}

// blockedDecision holds everything where it is and says, in the condition Blocked and in an event, what a person must do. Only
// requests for a target that is gone are given to those who can answer them, by the Canary whose target it is.
func blockedDecision(s Snapshot, gates release.Gates) Decision {
	lost := s.TargetConflict == "" && !s.Workload.Target.Found && s.Workload.Problem != "" && s.routeReadable() && s.liveWeight() > 0 && s.primaryCanServe()
	switch {
	case !lost:
		return pauseDeadline(s, withBlockedCondition(s, gates))
	case s.hasUnrecordedTraffic():
		return s.recordUnrecordedTraffic()
	default:
		return pauseDeadline(s, withBlockedCondition(s, gates, TrafficWeight{}))
	}
}

// withBlockedCondition keeps the status and sets the condition Blocked, with the message of the first gate.
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

// changedConditions are the conditions that differ, generations apart: a block that holds is written once.
func changedConditions(a, b flaggerv1.CanaryStatus) []string {
	var out []string
	for _, c := range b.Conditions {
		old := findCondition(a, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message || old.ObservedGeneration != c.ObservedGeneration {
			out = append(out, c.Type)
		}
	}
	return out
}

// conditionReason makes a condition's reason of a gate's name: canary-ready becomes CanaryReady.
func conditionReason(gate string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(gate, func(r rune) bool { return r == '-' || r == '/' || r == ' ' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
