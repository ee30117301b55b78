package canary

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Limits of the conditions in a status. Those that Serin or another controller writes are far below them.
const (
	maxConditions    = 20
	maxConditionText = 32 << 10 // bytes, the limit of metav1.Condition
)

// sanitizeStatus corrects impossible values: in many clusters users may write statuses, and clocks are set back. A time in the
// future is replaced by the present in the status itself. If each reconciliation replaced it only for itself, the time would
// never be in the past.
func sanitizeStatus(s Snapshot) (Decision, bool) {
	m := &sanitizer{now: s.Now}
	status := s.Status
	if !s.Deleting && (status.Phase == flaggerv1.CanaryPhaseTerminating || status.Phase == flaggerv1.CanaryPhaseTerminated) {
		status.Phase, m.changed = phaseBeforeDeletion(s), true
	}
	m.clampNumber(&status.CanaryWeight, 0, release.Total)
	m.clampNumber(&status.Iterations, -1, maxCount+1) // Flagger counts from -1
	m.clampNumber(&status.FailedChecks, 0, maxCount)
	m.clampTime(&status.LastTransitionTime)
	m.removeInvalidCookie(&status.SessionAffinityCookie)
	m.removeInvalidCookie(&status.PrimarySessionAffinityCookie)
	m.removeInvalidCookie(&status.PreviousSessionAffinityCookie)
	m.limitConditions(&status.Conditions)

	windowInvalid := false
	if status.Serin != nil {
		serin := *status.Serin
		status.Serin = &serin
		m.clampMicroTime(&serin.Since, s.Now)
		m.clampUnreadiness(&serin.CanaryUnready)
		m.clampUnreadiness(&serin.PrimaryUnready)
		m.clampMicroTime(&serin.Asked, s.Now)
		m.clampMicroTime(&serin.Unreachable, s.Now)
		m.clampMicroTime(&serin.LastTraffic, s.Now)
		m.clampMicroTime(&serin.DrainUntil, s.Now.Add(s.Plan.Drain))
		if hasDeadline(status.Phase) && isEndIntent(serin.Intent) {
			// A user wrote the phase of a release that had ended: it is in progress again, so that it can end again.
			serin.Intent, serin.Reason, m.changed = "", "", true
		}
		if len(serin.Run) > maxName { // it is part of the ID of every query
			serin.Run, m.changed = "", true
		}
		windowInvalid = serin.Window != nil && (serin.Window.Start.IsZero() || serin.Window.Start.After(s.Now))
	}
	if !m.changed && !windowInvalid {
		return Decision{}, false
	}
	s.Status = status
	e := s.editUnchanged()
	if windowInvalid {
		e.startWindow()
	}
	return e.decision(nil), true
}

// phaseBeforeDeletion is the phase of a Canary whose status is that of a deletion, but which is not being deleted: it was
// restored from a backup. A release that was in progress continues, because an existing primary must never receive a template
// that was not analysed.
func phaseBeforeDeletion(s Snapshot) flaggerv1.CanaryPhase {
	switch serin := s.serin(); {
	case !s.Workload.Primary.Found:
		return flaggerv1.CanaryPhaseInitializing
	case serin.Window != nil || serin.Started:
		return flaggerv1.CanaryPhaseProgressing
	default:
		return flaggerv1.CanaryPhaseInitialized
	}
}

// sanitizer corrects a status. It never changes the target of a pointer, because the snapshot shares it.
type sanitizer struct {
	now     time.Time
	changed bool
}

func (m *sanitizer) clampNumber(n *int, minimum, maximum int) {
	if corrected := min(max(*n, minimum), maximum); corrected != *n {
		*n, m.changed = corrected, true
	}
}

func (m *sanitizer) clampTime(at *metav1.Time) {
	if at.After(m.now) {
		*at, m.changed = metav1.NewTime(m.now.Truncate(time.Second)), true
	}
}

func (m *sanitizer) clampMicroTime(at **metav1.MicroTime, latest time.Time) {
	if *at != nil && (*at).After(latest) {
		*at, m.changed = new(metav1.NewMicroTime(latest)), true
	}
}

func (m *sanitizer) clampUnreadiness(unready **flaggerv1.UnreadyWorkload) {
	if *unready != nil && (*unready).Since.After(m.now) {
		corrected := **unready
		corrected.Since = metav1.NewMicroTime(m.now)
		*unready, m.changed = &corrected, true
	}
}

// removeInvalidCookie removes a cookie with characters that would add attributes or lines to a header.
func (m *sanitizer) removeInvalidCookie(cookie *string) {
	invalid := func(r rune) bool { return r <= ' ' || r > '~' || r == ';' || r == ',' || r == '"' || r == '\\' }
	if len(*cookie) > maxName || slices.ContainsFunc([]rune(*cookie), invalid) {
		*cookie, m.changed = "", true
	}
}

// limitConditions retains one condition of each type, those of Serin first.
func (m *sanitizer) limitConditions(conditions *[]flaggerv1.CanaryCondition) {
	valid := len(*conditions) <= maxConditions
	for i, c := range *conditions {
		valid = valid && len(c.Message) <= maxConditionText && !slices.ContainsFunc((*conditions)[:i], func(other flaggerv1.CanaryCondition) bool { return other.Type == c.Type })
	}
	if valid {
		return
	}
	var retained []flaggerv1.CanaryCondition
	retain := func(ours bool) {
		for _, c := range *conditions {
			isOurs := slices.Contains([]string{flaggerv1.ConditionPromoted, flaggerv1.ConditionBlocked, flaggerv1.ConditionUnanswered}, c.Type)
			duplicate := slices.ContainsFunc(retained, func(other flaggerv1.CanaryCondition) bool { return other.Type == c.Type })
			if isOurs == ours && !duplicate && len(retained) < maxConditions && len(c.Message) <= maxConditionText {
				retained = append(retained, c)
			}
		}
	}
	retain(true)
	retain(false)
	*conditions, m.changed = retained, true
}
