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
	s.Status = withoutFutureTimes(s.Status, s.Now)
	duration, err := ValidateSpec(s.Name, s.Spec)
	if err != nil {
		return rejectSpec(s, err)
	}
	f := facts{Snapshot: s, duration: duration, isEnding: isExperimentEnding(s)}
	status := withoutInvalidSpec(*s.Status.DeepCopy())
	status, templates := decideTemplates(f, status)
	status, analyses := decideAnalyses(f, status)
	status, completion := fillInStatus(f, status)
	status.Conditions, _ = withCondition(status.Conditions, progressingCondition(s.Name, status), s.Now)
	return newDecision(status, templates, analyses, completion)
}

// PanicDecision returns the decision for an Experiment whose reconciliation failed because of a defect of Serin, before or
// after Next was called. Only the status of the Experiment is known then. The next successful reconciliation removes
// the message.
func PanicDecision(status argov1.ExperimentStatus, message string) Decision {
	d := Decision{
		Status: *status.DeepCopy(), Gates: release.Gates{release.NewFailedGate("fault", release.ByUser, message)},
		Events: []release.Event{{Type: release.Warning, Reason: reasonReconciliation, Message: message, Persistent: true}},
	}
	if !status.Phase.Completed() {
		d.Status.Message = "Fault: " + message
	}
	return d
}

// reasonReconciliation is the reason of events about a failure that only a user or an administrator can resolve.
const reasonReconciliation = "ReconciliationError"

// withoutFutureTimes returns the status with times in the future replaced by the current time. They exist if a clock was
// set back after the status was written; without the correction, durations and deadlines would be longer by the
// difference.
func withoutFutureTimes(status argov1.ExperimentStatus, now time.Time) argov1.ExperimentStatus {
	status = *status.DeepCopy()
	if status.AvailableAt != nil && status.AvailableAt.After(now) {
		status.AvailableAt = new(metav1.NewTime(now))
	}
	for i := range status.TemplateStatuses {
		if t := &status.TemplateStatuses[i]; t.LastTransitionTime != nil && t.LastTransitionTime.After(now) {
			t.LastTransitionTime = new(metav1.NewTime(now))
		}
	}
	return status
}

// facts are the input of all stages: the snapshot of an Experiment with a valid spec. They are computed once and never
// changed.
type facts struct {
	Snapshot
	duration time.Duration
	// isEnding is true if the pods are no longer needed.
	isEnding bool
}

// isDurationElapsed reports whether the duration of the Experiment has elapsed. Without spec.duration it never has.
func (f facts) isDurationElapsed() bool {
	end, ok := f.endTime()
	return ok && !f.Now.Before(end)
}

// endTime returns the time at which the duration of the Experiment elapses; false: never, or not known yet.
func (f facts) endTime() (time.Time, bool) {
	if f.Status.AvailableAt == nil || f.Spec.Duration == "" {
		return time.Time{}, false
	}
	return f.Status.AvailableAt.Add(f.duration), true
}

// isExperimentEnding reports whether an Experiment has ended or is to end: because the user terminates it, because it is
// complete, or because a template or an analysis has failed.
func isExperimentEnding(s Snapshot) bool {
	isBadTemplate := func(t argov1.TemplateStatus) bool {
		return t.Status == argov1.TemplateStatusFailed || t.Status == argov1.TemplateStatusError
	}
	isBadRun := func(r argov1.ExperimentAnalysisRunStatus) bool { return isUnsuccessful(r.Phase) }
	return s.Spec.Terminate || s.Status.Phase.Completed() ||
		slices.ContainsFunc(s.Status.TemplateStatuses, isBadTemplate) || slices.ContainsFunc(s.Status.AnalysisRuns, isBadRun)
}

func isUnsuccessful(phase argov1.AnalysisPhase) bool {
	return phase.Completed() && phase != argov1.AnalysisPhaseSuccessful
}

// outcome is the contribution of a stage to the decision, in addition to the status.
type outcome struct {
	effects []release.Effect
	events  []release.Event
	gates   release.Gates
	// wake is the time at which the Experiment is reconciled again; zero: this stage does not need it.
	wake time.Time
}

// joinOutcomes returns the contributions of stages, in order. The earliest wake time applies.
func joinOutcomes(stages ...outcome) outcome {
	var all outcome
	for _, o := range stages {
		all.effects, all.events, all.gates = append(all.effects, o.effects...), append(all.events, o.events...), append(all.gates, o.gates...)
		if all.wake.IsZero() || !o.wake.IsZero() && o.wake.Before(all.wake) {
			all.wake = o.wake
		}
	}
	return all
}

func newDecision(status argov1.ExperimentStatus, stages ...outcome) Decision {
	all := joinOutcomes(stages...)
	return Decision{Status: status, Effects: all.effects, Events: all.events, Gates: all.gates, Wake: all.wake}
}

func newEvent(kind release.EventType, reason, message string) release.Event {
	return release.Event{Type: kind, Reason: reason, Message: message}
}

// fillInStatus returns the status with the phase of the Experiment.
func fillInStatus(f facts, status argov1.ExperimentStatus) (argov1.ExperimentStatus, outcome) {
	before := status.Phase
	if before.Completed() {
		return status, outcome{}
	}
	var o outcome
	phase, message := assessExperiment(f, status)
	if phase == argov1.AnalysisPhaseRunning && status.AvailableAt == nil {
		status.AvailableAt = new(metav1.NewTime(f.Now))
	}
	if end, ok := f.endTime(); ok && !phase.Completed() && f.Now.Before(end) {
		o = outcome{gates: release.Gates{release.NewTimedGate("duration", end, "running until "+end.UTC().Format(time.RFC3339))}, wake: end}
	}
	if f.Spec.Duration == "" && phase == argov1.AnalysisPhaseRunning && !hasRequiredAnalyses(f.Spec) {
		o.gates = append(o.gates, release.NewWaitingGate("terminated", release.ByUser,
			"spec.duration is not set: runs until spec.terminate is set or an analysis is not successful"))
	}
	status.Phase, status.Message = phase, message
	if phase == before {
		return status, o
	}
	kind := release.Normal
	if isUnsuccessful(phase) {
		kind = release.Warning
	}
	text := fmt.Sprintf("Experiment transitioned from %s -> %s", before, phase)
	if message != "" {
		text += ": " + message
	}
	o.events, o.wake = append(o.events, newEvent(kind, "Experiment"+string(phase), text)), f.Now
	return status, o
}

// assessExperiment returns the phase of the Experiment, and a message if the phase needs an explanation.
func assessExperiment(f facts, status argov1.ExperimentStatus) (argov1.AnalysisPhase, string) {
	for _, t := range status.TemplateStatuses {
		switch t.Status {
		case argov1.TemplateStatusFailed:
			return argov1.AnalysisPhaseFailed, t.Message
		case argov1.TemplateStatusError:
			return argov1.AnalysisPhaseError, t.Message
		default: // not failed
		}
	}
	analyses, message := analysesPhase(f.Spec, status)
	isRunning, isSuccessful := allTemplatesHave(f.Spec, status, argov1.TemplateStatusRunning), allTemplatesHave(f.Spec, status, argov1.TemplateStatusSuccessful)
	switch {
	case isUnsuccessful(analyses):
		return analyses, message
	case requiredAnalysesPassed(f.Spec, status):
		return argov1.AnalysisPhaseSuccessful, "Required AnalysisRuns completed"
	case isSuccessful && (analyses.Completed() || !hasRequiredAnalyses(f.Spec) || f.Spec.Terminate):
		return argov1.AnalysisPhaseSuccessful, ""
	case status.AvailableAt != nil || isRunning || isSuccessful:
		return argov1.AnalysisPhaseRunning, ""
	default:
		return argov1.AnalysisPhasePending, ""
	}
}

// allTemplatesHave reports whether all templates have a status.
func allTemplatesHave(spec argov1.ExperimentSpec, status argov1.ExperimentStatus, code argov1.TemplateStatusCode) bool {
	return !slices.ContainsFunc(spec.Templates, func(t argov1.TemplateSpec) bool { return findTemplateStatus(status, t.Name).Status != code })
}
