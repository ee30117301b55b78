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

func findAnalysisStatus(status argov1.ExperimentStatus, analysis string) (argov1.ExperimentAnalysisRunStatus, bool) {
	i := slices.IndexFunc(status.AnalysisRuns, func(r argov1.ExperimentAnalysisRunStatus) bool { return r.Name == analysis })
	if i < 0 {
		return argov1.ExperimentAnalysisRunStatus{}, false
	}
	return status.AnalysisRuns[i], true
}

// withAnalysisStatus returns the status with another status of an analysis that it contains.
func withAnalysisStatus(status argov1.ExperimentStatus, run argov1.ExperimentAnalysisRunStatus) argov1.ExperimentStatus {
	status.AnalysisRuns = slices.Clone(status.AnalysisRuns)
	i := slices.IndexFunc(status.AnalysisRuns, func(old argov1.ExperimentAnalysisRunStatus) bool { return old.Name == run.Name })
	status.AnalysisRuns[i] = run
	return status
}

// decideAnalyses starts, observes or terminates the AnalysisRuns of all analyses.
func decideAnalyses(f facts, status argov1.ExperimentStatus) (argov1.ExperimentStatus, outcome) {
	var all outcome
	for _, a := range f.Spec.Analyses {
		var o outcome
		switch run, exists := findAnalysisStatus(status, a.Name); {
		case !exists:
			status, o = startAnalysis(f, status, a)
		case !run.Phase.Completed():
			run, o = observeRun(f, run)
			status = withAnalysisStatus(status, run)
		}
		all = joinOutcomes(all, o)
	}
	return status, all
}

func startAnalysis(f facts, status argov1.ExperimentStatus, a argov1.ExperimentAnalysisTemplateRef) (argov1.ExperimentStatus, outcome) {
	if f.Status.AvailableAt == nil || f.isEnding {
		return status, outcome{}
	}
	args, err := resolveArguments(f, a.Args)
	if err != nil {
		events := RecordRunRejected(&status, a.Name, err.Error())
		return status, outcome{events: events}
	}
	return status, outcome{effects: []release.Effect{AnalysisRunStarted{Analysis: a, Name: f.Name + "-" + a.Name, Args: args}}}
}

// RecordRunStarted records in a decided status that the AnalysisRun of an analysis exists. The reconciler calls it after it
// has applied AnalysisRunStarted.
func RecordRunStarted(status *argov1.ExperimentStatus, analysis, run string) []release.Event {
	started, event := transitionRun(argov1.ExperimentAnalysisRunStatus{Name: analysis, AnalysisRun: run}, argov1.AnalysisPhasePending, "")
	status.AnalysisRuns = append(slices.Clip(status.AnalysisRuns), started)
	return []release.Event{event}
}

// RecordRunRejected records in a decided status that the AnalysisRun of an analysis cannot be created as requested, for
// example because a template does not exist.
func RecordRunRejected(status *argov1.ExperimentStatus, analysis, message string) []release.Event {
	message = creationFailed(analysis, message)
	rejected, event := transitionRun(argov1.ExperimentAnalysisRunStatus{Name: analysis}, argov1.AnalysisPhaseError, message)
	status.AnalysisRuns = append(slices.Clip(status.AnalysisRuns), rejected)
	return []release.Event{event}
}

// RecordRunForbidden records in a decided status that the AnalysisRun of an analysis cannot be created before the administrator
// grants a permission, for example to read its template. The next successful reconciliation removes the message.
func RecordRunForbidden(status *argov1.ExperimentStatus, analysis, message string) []release.Event {
	status.Message = creationFailed(analysis, message)
	return []release.Event{{Type: release.Warning, Reason: reasonReconciliation, Message: status.Message, Persistent: true}}
}

func creationFailed(analysis, message string) string {
	return fmt.Sprintf("Failed to create AnalysisRun for analysis '%s': %s", analysis, message)
}

// observeRun returns the status of an analysis with the phase of its run, and terminates a run that is no longer needed.
func observeRun(f facts, status argov1.ExperimentAnalysisRunStatus) (argov1.ExperimentAnalysisRunStatus, outcome) {
	var o outcome
	run := f.AnalysisRuns[status.AnalysisRun]
	switch {
	case !run.Found:
		status, event := transitionRun(status, argov1.AnalysisPhaseError, fmt.Sprintf("AnalysisRun '%s' not found", status.AnalysisRun))
		return status, outcome{events: []release.Event{event}, wake: f.Now}
	case run.Phase != "" && run.Phase != status.Phase:
		var event release.Event
		status, event = transitionRun(status, run.Phase, run.Message)
		o = outcome{events: []release.Event{event}, wake: f.Now}
	default:
		status.Message = run.Message
	}
	if status.Phase.Completed() {
		return status, o
	}
	o.gates = append(o.gates, release.NewWaitingGate("analysis/"+status.Name, release.ByCluster, string(status.Phase)))
	if f.isEnding && !run.Terminated {
		o.effects = append(o.effects, AnalysisRunTerminated{status.AnalysisRun})
		o.events = append(o.events, newEvent(release.Normal, "AnalysisRunTerminating", fmt.Sprintf("Terminating AnalysisRun '%s'", status.AnalysisRun)))
	}
	return status, o
}

// transitionRun returns the status of an analysis with another phase of its run, and the event about it.
func transitionRun(status argov1.ExperimentAnalysisRunStatus, phase argov1.AnalysisPhase, message string) (argov1.ExperimentAnalysisRunStatus, release.Event) {
	kind := release.Normal
	if isUnsuccessful(phase) {
		kind = release.Warning
	}
	text := fmt.Sprintf("AnalysisRun '%s' transitioned from %s -> %s", status.Name, status.Phase, phase)
	if message != "" {
		text += ": " + message
	}
	status.Phase, status.Message = phase, message
	return status, newEvent(kind, "AnalysisRun"+string(phase), text)
}

// phaseSeverity lists phases by severity. The most severe phase of the analyses is that of all of them together.
var phaseSeverity = []argov1.AnalysisPhase{
	argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseRunning, argov1.AnalysisPhasePending,
	argov1.AnalysisPhaseInconclusive, argov1.AnalysisPhaseError, argov1.AnalysisPhaseFailed,
}

// analysesPhase returns the phase of all analyses together, and its message: Successful if all are, or if there are none,
// and Running while some are not complete.
func analysesPhase(spec argov1.ExperimentSpec, status argov1.ExperimentStatus) (argov1.AnalysisPhase, string) {
	mostSevere, cause := argov1.AnalysisPhaseSuccessful, ""
	for _, a := range spec.Analyses {
		phase, message := argov1.AnalysisPhaseRunning, ""
		if run, exists := findAnalysisStatus(status, a.Name); exists {
			phase, message = run.Phase, run.Message
		}
		if slices.Index(phaseSeverity, phase) > slices.Index(phaseSeverity, mostSevere) {
			mostSevere, cause = phase, message
		}
	}
	if mostSevere == argov1.AnalysisPhasePending {
		mostSevere = argov1.AnalysisPhaseRunning
	}
	return mostSevere, cause
}

func hasRequiredAnalyses(spec argov1.ExperimentSpec) bool {
	return slices.ContainsFunc(spec.Analyses, func(a argov1.ExperimentAnalysisTemplateRef) bool { return a.RequiredForCompletion })
}

// requiredAnalysesPassed reports whether there are analyses that are required for completion, and all of them are
// successful.
func requiredAnalysesPassed(spec argov1.ExperimentSpec, status argov1.ExperimentStatus) bool {
	for _, a := range spec.Analyses {
		if !a.RequiredForCompletion {
			continue
		}
		if run, exists := findAnalysisStatus(status, a.Name); !exists || run.Phase != argov1.AnalysisPhaseSuccessful {
			return false
		}
	}
	return hasRequiredAnalyses(spec)
}

// variableTag matches a reference to a value of the Experiment, such as {{experiment.availableAt}}.
var variableTag = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// resolveArguments returns the arguments of an analysis, with references replaced by values of the Experiment: the hashes
// and the names of its ReplicaSets, and the times at which it begins and ends.
func resolveArguments(f facts, args []argov1.Argument) ([]argov1.Argument, error) {
	values := map[string]string{"experiment.availableAt": f.Status.AvailableAt.UTC().Format(time.RFC3339)}
	if end, ok := f.endTime(); ok {
		values["experiment.finishedAt"] = end.UTC().Format(time.RFC3339)
	}
	for name, template := range f.Templates {
		values["templates."+name+".podTemplateHash"] = template.Hash
		values["templates."+name+".replicaset.name"] = template.ReplicaSet
	}
	out := slices.Clone(args)
	for i, arg := range args {
		if arg.Value == nil {
			continue
		}
		var missing error
		text := variableTag.ReplaceAllStringFunc(*arg.Value, func(reference string) string {
			name := strings.TrimSpace(reference[2 : len(reference)-2])
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
