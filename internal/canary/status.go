package canary

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

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
	// ending, endingReason and analyzed are those of the decision.
	ending       release.Ending
	endingReason string
	analyzed     bool
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

// decision is the decision to write the edited status.
func (e *statusEdit) decision(gates release.Gates) Decision {
	if mustRecordTraffic(e.snapshot, e.effects) {
		return recordUnrecordedTraffic(e.snapshot)
	}
	if u := e.serin.Unfinished; u != nil && slices.Contains(e.effects, release.Effect(TrafficWeight{Provider: u.Provider})) {
		ended := *u
		ended.Provider = ""
		e.serin.Unfinished = &ended
	}
	if len(gates) > 0 {
		e.serin.Gates = nil // the reconciler adds them
	}
	if equality.Semantic.DeepEqual(*e.serin, flaggerv1.SerinStatus{}) {
		e.status.Serin = nil
	}
	return Decision{
		Status: e.status, Effects: e.effects, Stamp: e.stamps, Gates: gates, Queries: gates.Queries(), Wake: e.snapshot.Now, Events: e.events,
		Ending: e.ending, EndingReason: e.endingReason, Analyzed: e.analyzed,
	}
}

// mustRecordTraffic reports whether effects remove traffic that the status does not record.
func mustRecordTraffic(s Snapshot, effects []release.Effect) bool {
	movesApex := targetReceivesApexTraffic(s) && slices.Contains(effects, release.Effect(ServicesExist{Apex: true}))
	return hasUnrecordedTraffic(s) && (movesApex || slices.ContainsFunc(effects, removesCanaryTraffic))
}

// recordUnrecordedTraffic records that the canary has traffic, before that traffic is removed: a crash afterwards must not skip
// the drain.
func recordUnrecordedTraffic(s Snapshot) Decision {
	return s.editUnchanged().addStamps(release.StampTrafficEnded).decision(nil) // with the condition Blocked, if there is one
}

// keepStatus leaves the status unchanged, except that it removes a condition Blocked whose reason no longer exists. The condition
// of a refused step remains until the step is retried.
func keepStatus(s Snapshot, gates release.Gates, effects ...release.Effect) Decision {
	if mustRecordTraffic(s, effects) {
		return recordUnrecordedTraffic(s)
	}
	d := Decision{Status: s.Status, Effects: effects, Gates: gates, Queries: gates.Queries(), Wake: gates.Wake()}
	for _, gate := range gates {
		for _, event := range gate.Events {
			if event.Persistent {
				d.Events = append(d.Events, event)
			}
		}
	}
	blocked := findCondition(s.Status, flaggerv1.ConditionBlocked)
	if blocked != nil && blocked.Reason != reasonRefusedStep && !s.Deleting && !s.Plan.Suspended {
		e := s.edit()
		e.effects, e.events = d.Effects, d.Events
		return e.decision(gates)
	}
	return d
}

// clearDrain removes the previous drain from the status before the traffic moves again, so that a crash in between does not
// shorten the next drain.
func clearDrain(s Snapshot, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...)
	e.serin.DrainUntil = nil
	return e.decision(nil)
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

// startWindow starts the next window; it starts when the effects before it have been applied.
func (e *statusEdit) startWindow() *statusEdit {
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
