package experiment

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Next decides what an Experiment needs now. It is total: it also returns a decision for a snapshot that no healthy
// cluster produces.
func Next(s Snapshot) Decision {
	s.Status = *s.Status.DeepCopy()
	clampFutureTimes(&s.Status, s.Now)
	e := &decisionBuilder{snapshot: s, decision: Decision{Status: *s.Status.DeepCopy()}}
	duration, err := validateSpec(s)
	if err != nil {
		return e.rejectSpec(err)
	}
	e.clearInvalidSpec()
	e.duration = duration
	e.isEnding = isExperimentEnding(s)
	for _, t := range s.Spec.Templates {
		e.reconcileTemplate(t)
	}
	for _, a := range s.Spec.Analyses {
		e.reconcileAnalysis(a)
	}
	e.completeStatus()
	e.setCondition(progressingCondition(e.snapshot.Name, e.decision.Status))
	return e.decision
}

// FaultDecision returns the decision for an Experiment whose reconciliation failed because of a defect of Serin, before or
// after Next was called. Only the status of the Experiment is known then. The next successful reconciliation removes
// the message.
func FaultDecision(status argov1.ExperimentStatus, sentence string) Decision {
	d := Decision{
		Status: *status.DeepCopy(), Gates: release.Gates{release.NewFailedGate("fault", release.ByUser, sentence)},
		Events: []release.Event{{Type: release.Warning, Reason: "ReconciliationError", Message: sentence, Persistent: true}},
	}
	if !status.Phase.Completed() {
		d.Status.Message = "Fault: " + sentence
	}
	return d
}

// clampFutureTimes replaces times in the future by the current time. They exist if a clock was set back after the status was
// written; without the correction, durations and deadlines would be longer by the difference.
func clampFutureTimes(status *argov1.ExperimentStatus, now time.Time) {
	if status.AvailableAt != nil && status.AvailableAt.After(now) {
		status.AvailableAt = new(metav1.NewTime(now))
	}
	for i := range status.TemplateStatuses {
		if t := &status.TemplateStatuses[i]; t.LastTransitionTime != nil && t.LastTransitionTime.After(now) {
			t.LastTransitionTime = new(metav1.NewTime(now))
		}
	}
}

// decisionBuilder builds the decision about an Experiment.
type decisionBuilder struct {
	snapshot Snapshot
	decision Decision
	duration time.Duration
	// isEnding is true if the pods are no longer needed.
	isEnding bool
}

// isExperimentEnding reports whether an Experiment has ended or is to end: because the user terminates it, because it is complete,
// or because a template or an analysis has failed.
func isExperimentEnding(s Snapshot) bool {
	badSide := func(t argov1.TemplateStatus) bool {
		return t.Status == argov1.TemplateStatusFailed || t.Status == argov1.TemplateStatusError
	}
	badRun := func(r argov1.ExperimentAnalysisRunStatus) bool { return isUnsuccessful(r.Phase) }
	return s.Spec.Terminate || s.Status.Phase.Completed() ||
		slices.ContainsFunc(s.Status.TemplateStatuses, badSide) || slices.ContainsFunc(s.Status.AnalysisRuns, badRun)
}

func isUnsuccessful(phase argov1.AnalysisPhase) bool {
	return phase.Completed() && phase != argov1.AnalysisPhaseSuccessful
}

// isDurationElapsed reports whether the duration of the Experiment has elapsed. Without spec.duration it never has.
func (e *decisionBuilder) isDurationElapsed() bool {
	end, ok := e.endTime()
	return ok && !e.snapshot.Now.Before(end)
}

// endTime returns the time at which the duration of the Experiment elapses; false: never, or not known yet.
func (e *decisionBuilder) endTime() (time.Time, bool) {
	if e.snapshot.Status.AvailableAt == nil || e.snapshot.Spec.Duration == "" {
		return time.Time{}, false
	}
	return e.snapshot.Status.AvailableAt.Add(e.duration), true
}

func (e *decisionBuilder) addEffect(effect release.Effect) {
	e.decision.Effects = append(e.decision.Effects, effect)
}

func (e *decisionBuilder) addEvent(kind release.EventType, reason, message string) {
	e.decision.Events = append(e.decision.Events, release.Event{Type: kind, Reason: reason, Message: message})
}

// wakeAt requeues the Experiment at a time, unless it is requeued earlier anyway.
func (e *decisionBuilder) wakeAt(at time.Time) {
	if e.decision.Wake.IsZero() || at.Before(e.decision.Wake) {
		e.decision.Wake = at
	}
}

func (e *decisionBuilder) addGate(g release.Gate) { e.decision.Gates = append(e.decision.Gates, g) }

// completeStatus sets the phase of the Experiment.
func (e *decisionBuilder) completeStatus() {
	status := &e.decision.Status
	before := status.Phase
	if before.Completed() {
		return
	}
	phase, message := e.assessExperiment()
	if phase == argov1.AnalysisPhaseRunning && status.AvailableAt == nil {
		status.AvailableAt = new(metav1.NewTime(e.snapshot.Now))
	}
	if end, ok := e.endTime(); ok && !phase.Completed() && e.snapshot.Now.Before(end) {
		e.addGate(release.NewTimedGate("duration", end, "running until "+end.UTC().Format(time.RFC3339)))
		e.wakeAt(end)
	}
	if e.snapshot.Spec.Duration == "" && phase == argov1.AnalysisPhaseRunning && !e.hasRequiredAnalyses() {
		e.addGate(release.NewWaitingGate("terminated", release.ByUser, "spec.duration is not set: runs until spec.terminate is set or an analysis is not successful"))
	}
	status.Phase, status.Message = phase, message
	if phase == before {
		return
	}
	kind := release.Normal
	if isUnsuccessful(phase) {
		kind = release.Warning
	}
	text := fmt.Sprintf("Experiment transitioned from %s -> %s", before, phase)
	if message != "" {
		text += ": " + message
	}
	e.addEvent(kind, "Experiment"+string(phase), text)
	e.decision.Wake = e.snapshot.Now
}

// assessExperiment returns the phase of the Experiment, and a message where the phase needs an explanation.
func (e *decisionBuilder) assessExperiment() (argov1.AnalysisPhase, string) {
	for _, t := range e.decision.Status.TemplateStatuses {
		switch t.Status {
		case argov1.TemplateStatusFailed:
			return argov1.AnalysisPhaseFailed, t.Message
		case argov1.TemplateStatusError:
			return argov1.AnalysisPhaseError, t.Message
		default: // not failed
		}
	}
	judged, why := e.analysesPhase()
	switch {
	case isUnsuccessful(judged):
		return judged, why
	case e.requiredAnalysesPassed():
		return argov1.AnalysisPhaseSuccessful, "Required AnalysisRuns completed"
	case e.allTemplatesHave(argov1.TemplateStatusSuccessful) && (judged.Completed() || !e.hasRequiredAnalyses() || e.snapshot.Spec.Terminate):
		return argov1.AnalysisPhaseSuccessful, ""
	case e.decision.Status.AvailableAt != nil || e.allTemplatesHave(argov1.TemplateStatusRunning) || e.allTemplatesHave(argov1.TemplateStatusSuccessful):
		return argov1.AnalysisPhaseRunning, ""
	default:
		return argov1.AnalysisPhasePending, ""
	}
}

// allTemplatesHave reports whether all templates have a status.
func (e *decisionBuilder) allTemplatesHave(status argov1.TemplateStatusCode) bool {
	for _, t := range e.snapshot.Spec.Templates {
		if e.templateStatus(t.Name).Status != status {
			return false
		}
	}
	return true
}
