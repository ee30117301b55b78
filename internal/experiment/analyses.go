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

func find(status *argov1.ExperimentStatus, analysis string) *argov1.ExperimentAnalysisRunStatus {
	i := slices.IndexFunc(status.AnalysisRuns, func(r argov1.ExperimentAnalysisRunStatus) bool { return r.Name == analysis })
	if i < 0 {
		return nil
	}
	return &status.AnalysisRuns[i]
}

// analyse starts, observes or terminates the AnalysisRun of an analysis.
func (e *edit) analyse(a argov1.ExperimentAnalysisTemplateRef) {
	status := find(&e.d.Status, a.Name)
	switch {
	case status == nil:
		e.start(a)
	case status.Phase.Completed():
	default:
		e.follow(status)
	}
}

func (e *edit) start(a argov1.ExperimentAnalysisTemplateRef) {
	if e.s.Status.AvailableAt == nil || e.ending {
		return
	}
	args, err := e.arguments(a.Args)
	if err != nil {
		e.d.Events = append(e.d.Events, Refused(&e.d.Status, a.Name, err.Error())...)
		return
	}
	e.do(RunStarted{Analysis: a, Name: e.s.Name + "-" + a.Name, Args: args})
}

// Started records in a decided status that the AnalysisRun of an analysis exists. The reconciler calls it after it has
// applied RunStarted.
func Started(status *argov1.ExperimentStatus, analysis, run string) []release.Event {
	status.AnalysisRuns = append(status.AnalysisRuns, argov1.ExperimentAnalysisRunStatus{Name: analysis, AnalysisRun: run})
	return []release.Event{phased(&status.AnalysisRuns[len(status.AnalysisRuns)-1], argov1.AnalysisPhasePending, "")}
}

// Refused records in a decided status that the AnalysisRun of an analysis cannot be created as requested, for example
// because a template does not exist.
func Refused(status *argov1.ExperimentStatus, analysis, why string) []release.Event {
	status.AnalysisRuns = append(status.AnalysisRuns, argov1.ExperimentAnalysisRunStatus{Name: analysis})
	why = fmt.Sprintf("Failed to create AnalysisRun for analysis '%s': %s", analysis, why)
	return []release.Event{phased(&status.AnalysisRuns[len(status.AnalysisRuns)-1], argov1.AnalysisPhaseError, why)}
}

// follow records the phase of a run, and terminates a run that is no longer needed.
func (e *edit) follow(status *argov1.ExperimentAnalysisRunStatus) {
	run := e.s.Runs[status.AnalysisRun]
	switch {
	case !run.Found:
		e.d.Events = append(e.d.Events, phased(status, argov1.AnalysisPhaseError, fmt.Sprintf("AnalysisRun '%s' is gone", status.AnalysisRun)))
		e.d.Wake = e.s.Now
		return
	case run.Phase != "" && run.Phase != status.Phase:
		e.d.Events = append(e.d.Events, phased(status, run.Phase, run.Message))
		e.d.Wake = e.s.Now
	default:
		status.Message = run.Message
	}
	if !status.Phase.Completed() {
		e.gate(release.WaitsFor("analysis/"+status.Name, release.ByCluster, string(status.Phase)))
	}
	if e.ending && !status.Phase.Completed() && !run.Terminated {
		e.do(RunTerminated{status.AnalysisRun})
		e.tell(release.Normal, "AnalysisRunTerminating", fmt.Sprintf("Terminating AnalysisRun '%s'", status.AnalysisRun))
	}
}

// phased sets another phase of the run of an analysis, and returns the event about it.
func phased(status *argov1.ExperimentAnalysisRunStatus, now argov1.AnalysisPhase, why string) release.Event {
	kind := release.Normal
	if bad(now) {
		kind = release.Warning
	}
	text := fmt.Sprintf("AnalysisRun '%s' transitioned from %s -> %s", status.Name, status.Phase, now)
	if why != "" {
		text += ": " + why
	}
	status.Phase, status.Message = now, why
	return release.Event{Type: kind, Reason: "AnalysisRun" + string(now), Message: text}
}

// gravity lists phases by severity. The most severe phase of the analyses is that of all of them together.
var gravity = []argov1.AnalysisPhase{
	argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseRunning, argov1.AnalysisPhasePending,
	argov1.AnalysisPhaseInconclusive, argov1.AnalysisPhaseError, argov1.AnalysisPhaseFailed,
}

// judged returns the phase of all analyses together, and its message: Successful if all are, or if there are none, and
// Running while some are not complete.
func (e *edit) judged() (argov1.AnalysisPhase, string) {
	worst, why := argov1.AnalysisPhaseSuccessful, ""
	for _, a := range e.s.Spec.Analyses {
		phase, message := argov1.AnalysisPhaseRunning, ""
		if status := find(&e.d.Status, a.Name); status != nil {
			phase, message = status.Phase, status.Message
		}
		if slices.Index(gravity, phase) > slices.Index(gravity, worst) {
			worst, why = phase, message
		}
	}
	if worst == argov1.AnalysisPhasePending {
		worst = argov1.AnalysisPhaseRunning
	}
	return worst, why
}

func (e *edit) anyRequired() bool {
	return slices.ContainsFunc(e.s.Spec.Analyses, func(a argov1.ExperimentAnalysisTemplateRef) bool { return a.RequiredForCompletion })
}

// requiredPassed reports whether there are analyses that are required for completion, and all of them are successful.
func (e *edit) requiredPassed() bool {
	for _, a := range e.s.Spec.Analyses {
		if !a.RequiredForCompletion {
			continue
		}
		if status := find(&e.d.Status, a.Name); status == nil || status.Phase != argov1.AnalysisPhaseSuccessful {
			return false
		}
	}
	return e.anyRequired()
}

// tag matches a reference to a value of the Experiment, such as {{experiment.availableAt}}.
var tag = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// arguments returns the arguments of an analysis, with references replaced by values of the Experiment: the hashes and
// the names of its ReplicaSets, and when it begins and ends.
func (e *edit) arguments(args []argov1.Argument) ([]argov1.Argument, error) {
	values := map[string]string{"experiment.availableAt": e.s.Status.AvailableAt.UTC().Format(time.RFC3339)}
	if end, ok := e.end(); ok {
		values["experiment.finishedAt"] = end.UTC().Format(time.RFC3339)
	}
	for name, side := range e.s.Sides {
		values["templates."+name+".podTemplateHash"] = side.Hash
		values["templates."+name+".replicaset.name"] = side.ReplicaSet
	}
	out := slices.Clone(args)
	for i, arg := range args {
		if arg.Value == nil {
			continue
		}
		var missing error
		text := tag.ReplaceAllStringFunc(*arg.Value, func(found string) string {
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
