package experiment

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

func findAnalysisStatus(status *argov1.ExperimentStatus, analysis string) *argov1.ExperimentAnalysisRunStatus {
	i := slices.IndexFunc(status.AnalysisRuns, func(r argov1.ExperimentAnalysisRunStatus) bool { return r.Name == analysis })
	if i < 0 {
		return nil
	}
	return &status.AnalysisRuns[i]
}

// reconcileAnalysis starts, observes or terminates the AnalysisRun of an analysis.
func (e *decisionBuilder) reconcileAnalysis(a argov1.ExperimentAnalysisTemplateRef) {
	status := findAnalysisStatus(&e.decision.Status, a.Name)
	switch {
	case status == nil:
		e.startAnalysis(a)
	case status.Phase.Completed():
	default:
		e.followRun(status)
	}
}

func (e *decisionBuilder) startAnalysis(a argov1.ExperimentAnalysisTemplateRef) {
	if e.snapshot.Status.AvailableAt == nil || e.isEnding {
		return
	}
	args, err := e.resolveArguments(a.Args)
	if err != nil {
		e.decision.Events = append(e.decision.Events, RecordRunRejected(&e.decision.Status, a.Name, err.Error())...)
		return
	}
	e.addEffect(AnalysisRunStarted{Analysis: a, Name: e.snapshot.Name + "-" + a.Name, Args: args})
}

// RecordRunStarted records in a decided status that the AnalysisRun of an analysis exists. The reconciler calls it after it has
// applied AnalysisRunStarted.
func RecordRunStarted(status *argov1.ExperimentStatus, analysis, run string) []release.Event {
	status.AnalysisRuns = append(status.AnalysisRuns, argov1.ExperimentAnalysisRunStatus{Name: analysis, AnalysisRun: run})
	return []release.Event{transitionRun(&status.AnalysisRuns[len(status.AnalysisRuns)-1], argov1.AnalysisPhasePending, "")}
}

// RecordRunRejected records in a decided status that the AnalysisRun of an analysis cannot be created as requested, for example
// because a template does not exist.
func RecordRunRejected(status *argov1.ExperimentStatus, analysis, why string) []release.Event {
	status.AnalysisRuns = append(status.AnalysisRuns, argov1.ExperimentAnalysisRunStatus{Name: analysis})
	why = fmt.Sprintf("Failed to create AnalysisRun for analysis '%s': %s", analysis, why)
	return []release.Event{transitionRun(&status.AnalysisRuns[len(status.AnalysisRuns)-1], argov1.AnalysisPhaseError, why)}
}

// followRun records the phase of a run, and terminates a run that is no longer needed.
func (e *decisionBuilder) followRun(status *argov1.ExperimentAnalysisRunStatus) {
	run := e.snapshot.AnalysisRuns[status.AnalysisRun]
	switch {
	case !run.Found:
		e.decision.Events = append(e.decision.Events, transitionRun(status, argov1.AnalysisPhaseError, fmt.Sprintf("AnalysisRun '%s' not found", status.AnalysisRun)))
		e.decision.Wake = e.snapshot.Now
		return
	case run.Phase != "" && run.Phase != status.Phase:
		e.decision.Events = append(e.decision.Events, transitionRun(status, run.Phase, run.Message))
		e.decision.Wake = e.snapshot.Now
	default:
		status.Message = run.Message
	}
	if !status.Phase.Completed() {
		e.addGate(release.NewWaitingGate("analysis/"+status.Name, release.ByCluster, string(status.Phase)))
	}
	if e.isEnding && !status.Phase.Completed() && !run.Terminated {
		e.addEffect(AnalysisRunTerminated{status.AnalysisRun})
		e.addEvent(release.Normal, "AnalysisRunTerminating", fmt.Sprintf("Terminating AnalysisRun '%s'", status.AnalysisRun))
	}
}

// transitionRun sets another phase of the run of an analysis, and returns the event about it.
func transitionRun(status *argov1.ExperimentAnalysisRunStatus, now argov1.AnalysisPhase, why string) release.Event {
	kind := release.Normal
	if isUnsuccessful(now) {
		kind = release.Warning
	}
	text := fmt.Sprintf("AnalysisRun '%s' transitioned from %s -> %s", status.Name, status.Phase, now)
	if why != "" {
		text += ": " + why
	}
	status.Phase, status.Message = now, why
	return release.Event{Type: kind, Reason: "AnalysisRun" + string(now), Message: text}
}

// phaseSeverity lists phases by severity. The most severe phase of the analyses is that of all of them together.
var phaseSeverity = []argov1.AnalysisPhase{
	argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseRunning, argov1.AnalysisPhasePending,
	argov1.AnalysisPhaseInconclusive, argov1.AnalysisPhaseError, argov1.AnalysisPhaseFailed,
}

// analysesPhase returns the phase of all analyses together, and its message: Successful if all are, or if there are none, and
// Running while some are not complete.
func (e *decisionBuilder) analysesPhase() (argov1.AnalysisPhase, string) {
	worst, why := argov1.AnalysisPhaseSuccessful, ""
	for _, a := range e.snapshot.Spec.Analyses {
		phase, message := argov1.AnalysisPhaseRunning, ""
		if status := findAnalysisStatus(&e.decision.Status, a.Name); status != nil {
			phase, message = status.Phase, status.Message
		}
		if slices.Index(phaseSeverity, phase) > slices.Index(phaseSeverity, worst) {
			worst, why = phase, message
		}
	}
	if worst == argov1.AnalysisPhasePending {
		worst = argov1.AnalysisPhaseRunning
	}
	return worst, why
}

func (e *decisionBuilder) hasRequiredAnalyses() bool {
	return slices.ContainsFunc(e.snapshot.Spec.Analyses, func(a argov1.ExperimentAnalysisTemplateRef) bool { return a.RequiredForCompletion })
}

// requiredAnalysesPassed reports whether there are analyses that are required for completion, and all of them are successful.
func (e *decisionBuilder) requiredAnalysesPassed() bool {
	for _, a := range e.snapshot.Spec.Analyses {
		if !a.RequiredForCompletion {
			continue
		}
		if status := findAnalysisStatus(&e.decision.Status, a.Name); status == nil || status.Phase != argov1.AnalysisPhaseSuccessful {
			return false
		}
	}
	return e.hasRequiredAnalyses()
}

// variableTag matches a reference to a value of the Experiment, such as {{experiment.availableAt}}.
var variableTag = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// resolveArguments returns the arguments of an analysis, with references replaced by values of the Experiment: the hashes and
// the names of its ReplicaSets, and when it begins and ends.
func (e *decisionBuilder) resolveArguments(args []argov1.Argument) ([]argov1.Argument, error) {
	values := map[string]string{"experiment.availableAt": e.snapshot.Status.AvailableAt.UTC().Format(time.RFC3339)}
	if end, ok := e.endTime(); ok {
		values["experiment.finishedAt"] = end.UTC().Format(time.RFC3339)
	}
	for name, side := range e.snapshot.Templates {
		values["templates."+name+".podTemplateHash"] = side.Hash
		values["templates."+name+".replicaset.name"] = side.ReplicaSet
	}
	out := slices.Clone(args)
	for i, arg := range args {
		if arg.Value == nil {
			continue
		}
		var missing error
		text := variableTag.ReplaceAllStringFunc(*arg.Value, func(found string) string {
			name := strings.TrimSpace(found[2 : len(found)-2])
			value, ok := values[name]
			if !ok && missing == nil {
				missing = fmt.Errorf("failed to resolve {{%s}}", name)
			}
			return value
		})
		if missing != nil {
			return nil, missing
		}
		out[i].Value = &text
	}
	return out, nil
}
