package canary

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// obstacles are the reasons for which Serin must not act on this Canary, each of which a person has to remove.
func obstacles(s Snapshot) release.Gates {
	var gates release.Gates
	if s.Obstacle != "" {
		gates = append(gates, release.Fails("obstacle", release.ByPerson, s.Obstacle))
	}
	for _, block := range s.Plan.Blocks {
		gates = append(gates, release.Fails("plan", release.ByPerson, block))
	}
	if s.Workload.Problem != "" {
		gates = append(gates, release.Fails("target", release.ByPerson, s.Workload.Problem))
	}
	if s.Workload.ScalerProblem != "" {
		gates = append(gates, release.Fails("autoscaler", release.ByPerson, s.Workload.ScalerProblem))
	}
	return gates
}

// blocked holds everything where it is and says, in the condition Blocked and in an event, what a person must do. Only
// requests for a target that is gone are given to those who can answer them, by the Canary whose target it is.
func blocked(s Snapshot, gates release.Gates) Decision {
	lost := s.Obstacle == "" && !s.Workload.Target.Found && s.Workload.Problem != "" && s.readable() && s.live() > 0 && s.primaryCanServe()
	switch {
	case !lost:
		return pauseDeadline(s, withBlockedCondition(s, gates))
	case s.hasUnrecordedTraffic():
		return s.notice()
	default:
		return pauseDeadline(s, withBlockedCondition(s, gates, RouteIs{}))
	}
}

// withBlockedCondition keeps the status and sets the condition Blocked, with the message of the first gate.
func withBlockedCondition(s Snapshot, gates release.Gates, effects ...release.Effect) Decision {
	e := s.copy().effect(effects...)
	first := gates.First()
	e.condition(flaggerv1.CanaryCondition{Type: flaggerv1.ConditionBlocked, Status: corev1.ConditionTrue, Reason: reason(first.Name), Message: first.Message})
	for _, gate := range gates {
		e.tell(release.Event{Type: release.Warning, Message: gate.Message, Standing: true})
	}
	d := e.done(gates)
	if len(diffConditions(s.Status, d.Status)) == 0 {
		d.Status, d.Wake = s.Status, gates.Wake()
	}
	return d
}

// diffConditions are the conditions that differ, generations apart: a block that holds is written once.
func diffConditions(a, b flaggerv1.CanaryStatus) []string {
	var out []string
	for _, c := range b.Conditions {
		old := condition(a, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message || old.ObservedGeneration != c.ObservedGeneration {
			out = append(out, c.Type)
		}
	}
	return out
}

// reason makes a condition's reason of a gate's name: canary-ready becomes CanaryReady.
func reason(gate string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(gate, func(r rune) bool { return r == '-' || r == '/' || r == ' ' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
