package canary

import (
	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// rest keeps things as they are until a new revision comes. Nothing that others own is held: no weight, no replicas,
// no template.
func rest(s Snapshot) Decision {
	switch s.serin().Intent {
	case intentCompleted, intentSkipped, intentFailed:
		return afterwards(s)
	case intentRollback, intentCancel, intentSkip:
		// A user wrote the phase by hand: what was in progress ends with it.
		return s.edit().effect(standing(s)...).settle().done(nil)
	}
	if s.statusFromOtherController() {
		// Adopted: what is there is recorded in our form, and nothing starts.
		return s.edit().effect(standing(s)...).adopt().done(nil)
	}
	revision := s.Workload.Target.Revision
	retry := s.commanded("retry") && s.Status.Phase == flaggerv1.CanaryPhaseFailed && revision != s.promotedRevision()
	switch {
	case s.resumable() && s.rolledBackToUnpromoted():
		return recordPrimary(s)
	case s.resumable():
		return resume(s, s.Plan.primary()+" is ready")
	case retry && revision == s.pinnedRevision() && s.hasAnalysed() && !s.Workload.Primary.Exceeded:
		return resume(s, "a person asked for it")
	case s.promotionCompletable():
		return withdraw(s)
	}
	if revision == s.pinnedRevision() && !retry {
		if s.serin().Queue != nil {
			return s.edit().effect(standing(s)...).leaveLine().done(nil) // the user went back to what failed before
		}
		return resting(s)
	}
	if revision == s.promotedRevision() {
		// The user went back to what the primary runs. The same revision may be tried again later.
		e := s.edit().effect(standing(s)...)
		e.applied()
		return e.done(nil)
	}
	return begin(s)
}

// resting holds what is. References that lead nowhere are said while there is time to mend them: a release that starts
// with them fails its checks.
func resting(s Snapshot) Decision {
	if len(s.Missing) == 0 {
		return keepStatus(s, nil, standing(s)...)
	}
	gates := make(release.Gates, 0, len(s.Missing))
	for _, missing := range s.Missing {
		gates = append(gates, release.Fails("references", release.ByPerson, missing))
	}
	e := s.copy().effect(standing(s)...)
	e.condition(flaggerv1.CanaryCondition{Type: flaggerv1.ConditionBlocked, Status: corev1.ConditionTrue, Reason: reason("references"), Message: s.Missing[0]})
	d := e.done(gates)
	if len(diffConditions(s.Status, d.Status)) == 0 {
		d.Status, d.Wake = s.Status, gates.Wake()
	}
	return d
}
