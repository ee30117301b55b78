package canary

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// beginRun starts a new run with the revision of the target; answers and counters of another run are dropped.
func beginRun(e *statusEdit) {
	old := *e.serin
	if lastTraffic := old.LastTraffic; lastTraffic != nil && (IsActivePhase(e.snapshot.Status.Phase) || e.snapshot.Now.Before(lastTraffic.Add(e.snapshot.Plan.Drain))) {
		// The traffic may have continued for half a drain without being recorded; see hasUnrecordedTraffic.
		old.LastTraffic = new(metav1.NewMicroTime(e.snapshot.clampToNow(lastTraffic.Add(e.snapshot.Plan.Drain / 2))))
	}
	*e.serin = flaggerv1.SerinStatus{
		Promoted: old.Promoted, LastTraffic: old.LastTraffic, Command: old.Command, Shape: e.snapshot.Plan.runShape().String(),
	}
	if old.Unfinished != nil {
		unfinished := *old.Unfinished
		unfinished.Inherited = e.snapshot.currentWeight() > 0 && !slices.ContainsFunc(e.effects, removesCanaryTraffic)
		unfinished.Provider = e.snapshot.routingProvider()
		e.serin.Unfinished = &unfinished
	}
	if old.Promoted == "" {
		e.serin.Promoted = e.snapshot.promotedRevision()
	}
	e.recordCommand()
	e.recordAppliedRevision()
	markRunStart(e, old.Run)
}

// markRunStart records the start of a run in the condition Promoted, from which the ID of the run is derived. previous is the ID
// of the run before it.
func markRunStart(e *statusEdit, previous string) {
	if findCondition(e.status, flaggerv1.ConditionPromoted) == nil {
		e.setPromotedCondition() // something removed it
	}
	started := metav1.NewTime(e.snapshot.Now.Truncate(time.Second))
	if c := findCondition(e.status, flaggerv1.ConditionPromoted); c != nil {
		c.LastUpdateTime = started
	}
	e.serin.Run = newRunID(e.snapshot.UID, e.status)
	if before := findCondition(e.snapshot.Status, flaggerv1.ConditionPromoted); previous != "" && before != nil && before.LastUpdateTime.Equal(&started) {
		// The condition has whole seconds, in which a plan can change repeatedly: an answer of one run must not count in the next.
		e.serin.Run = digest(e.serin.Run, previous)[:16]
	}
}

// recordAppliedRevision records the revision of the target as the one whose release started last, in Serin's form and in
// Flagger's.
func (e *statusEdit) recordAppliedRevision() {
	w := e.snapshot.Workload
	e.status.LastAppliedSpec, e.status.TrackedConfigs = w.Target.FlaggerHash, w.FlaggerConfigs
	e.serin.Revision, e.serin.Configs = w.Target.Revision, w.Configs
	e.leaveQueue()
}

// recordCommand records a command for the run that ends here, so that it is never executed again.
func (e *statusEdit) recordCommand() {
	if _, run, _ := parseCommand(e.snapshot.Command); run == e.snapshot.run() {
		e.serin.Command = e.snapshot.Command
	}
}

// recordApproval ends the wait for the approval of a step that was taken, and records the command that approved it.
func (e *statusEdit) recordApproval() *statusEdit {
	if e.snapshot.hasCommand(CommandPromote) {
		e.serin.Command = e.snapshot.Command
	}
	e.serin.Held = ""
	return e
}

// recordIntent records an intent before any of its effects are applied.
func (e *statusEdit) recordIntent(intent, why string) *statusEdit {
	e.serin.Intent, e.serin.Reason = intent, release.Truncate(why, maxMessage)
	return e
}

// resetCounters resets the counters of a run.
func (e *statusEdit) resetCounters() {
	e.status.CanaryWeight, e.status.FailedChecks, e.status.Iterations = 0, 0, 0
}

// clearRunState removes what only a release in progress needs.
func (e *statusEdit) clearRunState() *statusEdit {
	e.serin.Window, e.serin.Since, e.serin.DrainUntil, e.serin.Asked, e.serin.Unreachable = nil, nil, nil, nil, nil
	e.serin.Started, e.serin.Held, e.serin.Intent, e.serin.Reason = false, "", "", ""
	e.serin.CanaryUnready, e.serin.PrimaryUnready, e.serin.CarriedBy = nil, nil, nil
	return e
}

// setCookies sets the session cookies of the run, once traffic is split.
func (e *statusEdit) setCookies() *statusEdit {
	s := e.snapshot
	if s.Plan.Cookie != "" && e.status.SessionAffinityCookie == "" {
		e.status.SessionAffinityCookie = s.Plan.Cookie + "=" + letterDigest(s.UID, s.run(), "canary-cookie")
	}
	if s.Plan.PrimaryCookie != "" && e.status.PrimarySessionAffinityCookie == "" {
		e.status.PrimarySessionAffinityCookie = s.Plan.PrimaryCookie + "=" + letterDigest(s.UID, s.run(), "primary-cookie")
	}
	return e
}

// expireCookie makes the router delete the cookie of the run from clients.
func (e *statusEdit) expireCookie() {
	if e.status.SessionAffinityCookie != "" {
		e.status.PreviousSessionAffinityCookie, e.status.SessionAffinityCookie = e.status.SessionAffinityCookie, ""
	}
}

func (e *statusEdit) leaveQueue() *statusEdit {
	e.serin.Queue = nil
	return e
}
