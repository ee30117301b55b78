package canary

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// The intents: what was decided and is in progress.
const (
	intentRollback  = "rollback"  // return the traffic, scale the target to zero, then Failed
	intentCancel    = "cancel"    // the user reverted the target to the promoted revision
	intentSkip      = "skip"      // promote without analysis
	intentCompleted = "completed" // Succeeded; post-rollout hooks are pending
	intentSkipped   = "skipped"   // the same after a skipped analysis
	intentFailed    = "failed"    // Failed; post-rollout hooks are pending
)

// maxMessage limits the message of a condition and the reason of an intent, in bytes: both may quote user input.
const maxMessage = 1 << 10

// noRevision is the recorded revision of a primary whose promotion failed: no revision equals it, so any change is a release.
const noRevision = "none"

// statusEdit builds the status of a decision, together with its effects, events and stamps. Its methods are the elementary
// changes, such as a phase, a condition or an intent; functions that take it as a parameter are transitions of the state
// machine.
type statusEdit struct {
	snapshot Snapshot
	status   flaggerv1.CanaryStatus
	serin    *flaggerv1.SerinStatus
	stamps   []release.Stamp
	events   []release.Event
	effects  []release.Effect
	// ending and analyzed are those of the decision.
	ending   release.Ending
	analyzed bool
}

// edit starts a new status without the condition Blocked.
func (s *Snapshot) edit() *statusEdit {
	e := s.editUnchanged()
	e.dropCondition(flaggerv1.ConditionBlocked)
	return e
}

func (s *Snapshot) editUnchanged() *statusEdit {
	e := &statusEdit{snapshot: *s, status: *s.Status.DeepCopy()}
	if e.status.Serin == nil {
		e.status.Serin = &flaggerv1.SerinStatus{}
	}
	e.serin = e.status.Serin
	return e
}

// enterPhase enters a phase and sets the condition Promoted that Flagger has in that phase.
func (e *statusEdit) enterPhase(phase flaggerv1.CanaryPhase) *statusEdit {
	if e.status.Phase != phase {
		e.status.LastTransitionTime = metav1.NewTime(e.snapshot.Now.Truncate(time.Second))
	}
	e.status.Phase = phase
	e.setPromotedCondition()
	return e
}

// setPromotedCondition sets the condition Promoted for the phase.
func (e *statusEdit) setPromotedCondition() {
	status, message := promotedCondition(e.status.Phase, e.snapshot.Plan.Kind)
	e.setCondition(flaggerv1.CanaryCondition{Type: flaggerv1.ConditionPromoted, Status: status, Reason: string(e.status.Phase), Message: message})
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

// setCondition sets one condition. Its transition time changes only with its status.
func (e *statusEdit) setCondition(c flaggerv1.CanaryCondition) {
	now := metav1.NewTime(e.snapshot.Now.Truncate(time.Second))
	c.ObservedGeneration = e.snapshot.Generation
	c.Message = release.Truncate(c.Message, maxMessage)
	old := findCondition(e.status, c.Type)
	if old == nil {
		c.LastTransitionTime, c.LastUpdateTime = now, now
		e.status.Conditions = append(e.status.Conditions, c)
		return
	}
	if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
		old.ObservedGeneration = c.ObservedGeneration
		return
	}
	c.LastTransitionTime, c.LastUpdateTime = old.LastTransitionTime, now
	if old.Status != c.Status {
		c.LastTransitionTime = now
	}
	*old = c
}

func (e *statusEdit) dropCondition(conditionType string) {
	e.status.Conditions = slices.DeleteFunc(e.status.Conditions, func(c flaggerv1.CanaryCondition) bool { return c.Type == conditionType })
}

func findCondition(status flaggerv1.CanaryStatus, conditionType string) *flaggerv1.CanaryCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == conditionType {
			return &status.Conditions[i]
		}
	}
	return nil
}

// promotedCondition returns status and message of the condition Promoted, as Flagger has them.
func promotedCondition(phase flaggerv1.CanaryPhase, kind string) (corev1.ConditionStatus, string) {
	switch phase {
	case flaggerv1.CanaryPhaseInitialized:
		return corev1.ConditionTrue, kind + " initialization completed."
	case flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseWaitingPromotion:
		return corev1.ConditionUnknown, "Waiting for approval."
	case flaggerv1.CanaryPhaseProgressing:
		return corev1.ConditionUnknown, "New revision detected, progressing canary analysis."
	case flaggerv1.CanaryPhasePromoting:
		return corev1.ConditionUnknown, "Canary analysis completed, starting primary rolling update."
	case flaggerv1.CanaryPhaseFinalising:
		return corev1.ConditionUnknown, "Canary analysis completed, routing all traffic to primary."
	case flaggerv1.CanaryPhaseSucceeded:
		return corev1.ConditionTrue, "Canary analysis completed successfully, promotion finished."
	case flaggerv1.CanaryPhaseFailed:
		return corev1.ConditionFalse, "Canary analysis failed, " + kind + " scaled to zero."
	default: // Initializing, Terminating, and phases that only a newer Serin writes
		return corev1.ConditionUnknown, "New " + kind + " detected, starting initialization."
	}
}

// openWindow opens the next window; it starts when the effects before it have been applied.
func (e *statusEdit) openWindow() *statusEdit {
	e.serin.Window = &flaggerv1.AnalysisWindow{}
	e.analyzed = true
	return e.addStamps(release.StampWindow)
}

func (e *statusEdit) addStamps(stamps ...release.Stamp) *statusEdit {
	e.stamps = append(e.stamps, stamps...)
	return e
}

func (e *statusEdit) addEvents(events ...release.Event) *statusEdit {
	e.events = append(e.events, events...)
	return e
}

// addEffects adds effects. TrafficWeight replaces RouteMaintained: with both, the route would be written twice, once with the
// previous weights.
func (e *statusEdit) addEffects(effects ...release.Effect) *statusEdit {
	for _, effect := range effects {
		if traffic, ok := effect.(TrafficWeight); ok && traffic.Provider == "" {
			e.effects = slices.DeleteFunc(slices.Clone(e.effects), func(effect release.Effect) bool {
				_, maintained := effect.(RouteMaintained)
				return maintained
			})
		}
		e.effects = append(e.effects, effect)
	}
	return e
}

// decision is the decision to write the edited status.
func (e *statusEdit) decision(gates release.Gates) Decision {
	if e.snapshot.hasUnrecordedTraffic() && slices.ContainsFunc(e.effects, removesCanaryTraffic) {
		return recordUnrecordedTraffic(e.snapshot)
	}
	if len(gates) > 0 {
		e.serin.Gates = nil // the reconciler adds them
	}
	if equality.Semantic.DeepEqual(*e.serin, flaggerv1.SerinStatus{}) {
		e.status.Serin = nil
	}
	return Decision{
		Status: e.status, Effects: e.effects, Stamp: e.stamps, Gates: gates, Queries: gates.Queries(), Wake: e.snapshot.Now, Events: e.events,
		Ending: e.ending, Analyzed: e.analyzed,
	}
}

// FillStamps sets the times of a status that only the reconciler knows: at is when the last effect was applied.
func FillStamps(status *flaggerv1.CanaryStatus, plan Plan, stamps []release.Stamp, at time.Time) {
	if len(stamps) == 0 {
		return
	}
	if status.Serin == nil {
		status.Serin = &flaggerv1.SerinStatus{}
	}
	moment := metav1.NewMicroTime(at)
	for _, stamp := range stamps {
		switch stamp {
		case release.StampWindow:
			if status.Serin.Window == nil {
				status.Serin.Window = &flaggerv1.AnalysisWindow{}
			}
			status.Serin.Window.Start = moment
		case release.StampDrain:
			until := metav1.NewMicroTime(at.Add(plan.Drain))
			status.Serin.DrainUntil = &until
		case release.StampSince:
			status.Serin.Since = &moment
		case release.StampTrafficEnded:
			status.Serin.LastTraffic = &moment
		default: // a stamp of another kind of release
		}
	}
}

// clampToNow replaces a time in the future by now: a clock that was set back must not extend a window.
func (s *Snapshot) clampToNow(t time.Time) time.Time {
	if t.After(s.Now) {
		return s.Now
	}
	return t
}
