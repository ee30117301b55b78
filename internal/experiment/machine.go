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
	present(&s.Status, s.Now)
	e := &edit{s: s, d: Decision{Status: *s.Status.DeepCopy()}}
	duration, err := validate(s)
	if err != nil {
		return e.invalid(err)
	}
	e.valid()
	e.duration = duration
	e.ending = ending(s)
	for _, t := range s.Spec.Templates {
		e.side(t)
	}
	for _, a := range s.Spec.Analyses {
		e.analyse(a)
	}
	e.conclude()
	e.condition(progress(e.s.Name, e.d.Status))
	return e.d
}

// Faulted returns the decision for an Experiment whose reconciliation failed because of a defect of Serin, before or
// after Next was called. Only the status of the Experiment is known then. The next successful reconciliation removes
// the message.
func Faulted(status argov1.ExperimentStatus, sentence string) Decision {
	d := Decision{
		Status: *status.DeepCopy(), Gates: release.Gates{release.Fails("fault", release.ByPerson, sentence)},
		Events: []release.Event{{Type: release.Warning, Reason: "ReconciliationError", Message: sentence, Standing: true}},
	}
	if !status.Phase.Completed() {
		d.Status.Message = "Fault: " + sentence
	}
	return d
}

// present replaces times in the future by the current time. They exist if a clock was set back after the status was
// written; without the correction, durations and deadlines would be longer by the difference.
func present(status *argov1.ExperimentStatus, now time.Time) {
	if status.AvailableAt != nil && status.AvailableAt.After(now) {
		status.AvailableAt = new(metav1.NewTime(now))
	}
	for i := range status.TemplateStatuses {
		if t := &status.TemplateStatuses[i]; t.LastTransitionTime != nil && t.LastTransitionTime.After(now) {
			t.LastTransitionTime = new(metav1.NewTime(now))
		}
	}
}

// edit builds the decision about an Experiment.
type edit struct {
	s        Snapshot
	d        Decision
	duration time.Duration
	// ending is true if the pods are no longer needed.
	ending bool
}

// ending reports whether an Experiment has ended or is to end: because the user terminates it, because it is complete,
// or because a template or an analysis has failed.
func ending(s Snapshot) bool {
	badSide := func(t argov1.TemplateStatus) bool {
		return t.Status == argov1.TemplateStatusFailed || t.Status == argov1.TemplateStatusError
	}
	badRun := func(r argov1.ExperimentAnalysisRunStatus) bool { return bad(r.Phase) }
	return s.Spec.Terminate || s.Status.Phase.Completed() ||
		slices.ContainsFunc(s.Status.TemplateStatuses, badSide) || slices.ContainsFunc(s.Status.AnalysisRuns, badRun)
}

func bad(phase argov1.AnalysisPhase) bool {
	return phase.Completed() && phase != argov1.AnalysisPhaseSuccessful
}

// passed reports whether the duration of the Experiment has elapsed. Without spec.duration it never has.
func (e *edit) passed() bool {
	end, ok := e.end()
	return ok && !e.s.Now.Before(end)
}

// end returns the time at which the duration of the Experiment elapses; false: never, or not known yet.
func (e *edit) end() (time.Time, bool) {
	if e.s.Status.AvailableAt == nil || e.s.Spec.Duration == "" {
		return time.Time{}, false
	}
	return e.s.Status.AvailableAt.Add(e.duration), true
}

func (e *edit) do(effect release.Effect) { e.d.Effects = append(e.d.Effects, effect) }

func (e *edit) tell(kind release.EventType, reason, message string) {
	e.d.Events = append(e.d.Events, release.Event{Type: kind, Reason: reason, Message: message})
}

// wake requeues the Experiment at a time, unless it is requeued earlier anyway.
func (e *edit) wake(at time.Time) {
	if e.d.Wake.IsZero() || at.Before(e.d.Wake) {
		e.d.Wake = at
	}
}

func (e *edit) gate(g release.Gate) { e.d.Gates = append(e.d.Gates, g) }

// conclude sets the phase of the Experiment.
func (e *edit) conclude() {
	status := &e.d.Status
	before := status.Phase
	if before.Completed() {
		return
	}
	phase, message := e.assess()
	if phase == argov1.AnalysisPhaseRunning && status.AvailableAt == nil {
		status.AvailableAt = new(metav1.NewTime(e.s.Now))
	}
	if end, ok := e.end(); ok && !phase.Completed() && e.s.Now.Before(end) {
		e.gate(release.WaitsUntil("duration", end, "running until "+end.UTC().Format(time.RFC3339)))
		e.wake(end)
	}
	if e.s.Spec.Duration == "" && phase == argov1.AnalysisPhaseRunning && !e.anyRequired() {
		e.gate(release.WaitsFor("terminated", release.ByPerson, "without a duration it runs until spec.terminate is set, or an analysis ends badly"))
	}
	status.Phase, status.Message = phase, message
	if phase == before {
		return
	}
	kind := release.Normal
	if bad(phase) {
		kind = release.Warning
	}
	text := fmt.Sprintf("Experiment transitioned from %s -> %s", before, phase)
	if message != "" {
		text += ": " + message
	}
	e.tell(kind, "Experiment"+string(phase), text)
	e.d.Wake = e.s.Now
}

// assess returns the phase of the Experiment, and a message where the phase needs an explanation.
func (e *edit) assess() (argov1.AnalysisPhase, string) {
	for _, t := range e.d.Status.TemplateStatuses {
		switch t.Status {
		case argov1.TemplateStatusFailed:
			return argov1.AnalysisPhaseFailed, t.Message
		case argov1.TemplateStatusError:
			return argov1.AnalysisPhaseError, t.Message
		default: // not failed
		}
	}
	judged, why := e.judged()
	switch {
	case bad(judged):
		return judged, why
	case e.requiredPassed():
		return argov1.AnalysisPhaseSuccessful, "Required AnalysisRuns completed"
	case e.all(argov1.TemplateStatusSuccessful) && (judged.Completed() || !e.anyRequired() || e.s.Spec.Terminate):
		return argov1.AnalysisPhaseSuccessful, ""
	case e.d.Status.AvailableAt != nil || e.all(argov1.TemplateStatusRunning) || e.all(argov1.TemplateStatusSuccessful):
		return argov1.AnalysisPhaseRunning, ""
	default:
		return argov1.AnalysisPhasePending, ""
	}
}

// all reports whether all templates have a status.
func (e *edit) all(status argov1.TemplateStatusCode) bool {
	for _, t := range e.s.Spec.Templates {
		if e.template(t.Name).Status != status {
			return false
		}
	}
	return true
}
