package canary

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Limits of the values in a status. The values that Serin or another controller writes are far below them.
const (
	maxCount         = 1 << 30 // more checks or iterations than any release can have
	maxConditions    = 20
	maxConditionText = 32 << 10 // bytes, the limit of metav1.Condition
	maxName          = 256      // bytes of a run, of a cookie
)

// sanitizeStatus corrects impossible values: in many clusters users may write statuses, and clocks are set back. A time in the future
// is replaced by the present in the status itself: replaced in each reconciliation, it would never be in the past.
func sanitizeStatus(s Snapshot) (Decision, bool) {
	m := &sanitizer{now: s.Now}
	status := s.Status
	if !s.Deleting && (status.Phase == flaggerv1.CanaryPhaseTerminating || status.Phase == flaggerv1.CanaryPhaseTerminated) {
		status.Phase, m.changed = phaseBeforeDeletion(s), true
	}
	m.number(&status.CanaryWeight, 0, release.Total)
	m.number(&status.Iterations, -1, maxCount+1) // Flagger counts from -1
	m.number(&status.FailedChecks, 0, maxCount)
	m.time(&status.LastTransitionTime)
	m.cookie(&status.SessionAffinityCookie)
	m.cookie(&status.PrimarySessionAffinityCookie)
	m.cookie(&status.PreviousSessionAffinityCookie)
	m.conditions(&status.Conditions)

	again := false
	if status.Serin != nil {
		serin := *status.Serin
		status.Serin = &serin
		m.moment(&serin.Since, s.Now)
		m.unready(&serin.CanaryUnready)
		m.unready(&serin.PrimaryUnready)
		m.moment(&serin.Asked, s.Now)
		m.moment(&serin.Unreachable, s.Now)
		m.moment(&serin.LastTraffic, s.Now)
		m.moment(&serin.DrainUntil, s.Now.Add(s.Plan.Drain))
		if len(serin.Run) > maxName { // it is part of the ID of every query
			serin.Run, m.changed = "", true
		}
		again = serin.Window != nil && (serin.Window.Start.IsZero() || serin.Window.Start.After(s.Now))
	}
	if !m.changed && !again {
		return Decision{}, false
	}
	s.Status = status
	e := s.editUnchanged()
	if again {
		e.openWindow()
	}
	return e.decision(nil), true
}

// phaseBeforeDeletion is the phase of a Canary whose status is that of a deletion, but which is not being deleted: it was restored
// from a backup. A release that was in progress continues, because an existing primary must never receive a template that was
// not analysed.
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

func (m *sanitizer) number(n *int, least, most int) {
	if right := min(max(*n, least), most); right != *n {
		*n, m.changed = right, true
	}
}

func (m *sanitizer) time(at *metav1.Time) {
	if at.After(m.now) {
		*at, m.changed = metav1.NewTime(m.now.Truncate(time.Second)), true
	}
}

func (m *sanitizer) moment(at **metav1.MicroTime, latest time.Time) {
	if *at != nil && (*at).After(latest) {
		*at, m.changed = new(metav1.NewMicroTime(latest)), true
	}
}

func (m *sanitizer) unready(of **flaggerv1.UnreadyWorkload) {
	if *of != nil && (*of).Since.After(m.now) {
		right := **of
		right.Since = metav1.NewMicroTime(m.now)
		*of, m.changed = &right, true
	}
}

// cookie removes a cookie with characters that would add attributes or lines to a header.
func (m *sanitizer) cookie(cookie *string) {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == ';' || r == ',' || r == '"' || r == '\\' }
	if len(*cookie) > maxName || slices.ContainsFunc([]rune(*cookie), odd) {
		*cookie, m.changed = "", true
	}
}

// conditions retains one condition of each type, those of Serin first.
func (m *sanitizer) conditions(conditions *[]flaggerv1.CanaryCondition) {
	fine := len(*conditions) <= maxConditions
	for i, c := range *conditions {
		fine = fine && len(c.Message) <= maxConditionText && !slices.ContainsFunc((*conditions)[:i], func(other flaggerv1.CanaryCondition) bool { return other.Type == c.Type })
	}
	if fine {
		return
	}
	var kept []flaggerv1.CanaryCondition
	keep := func(ours bool) {
		for _, c := range *conditions {
			isOurs := slices.Contains([]string{flaggerv1.ConditionPromoted, flaggerv1.ConditionBlocked, flaggerv1.ConditionUnanswered}, c.Type)
			twice := slices.ContainsFunc(kept, func(other flaggerv1.CanaryCondition) bool { return other.Type == c.Type })
			if isOurs == ours && !twice && len(kept) < maxConditions && len(c.Message) <= maxConditionText {
				kept = append(kept, c)
			}
		}
	}
	keep(true)
	keep(false)
	*conditions, m.changed = kept, true
}
