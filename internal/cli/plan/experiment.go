package plan

import (
	"fmt"
	"slices"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/rollout"
)

// playedExperiment is an Experiment of a played release.
type playedExperiment struct {
	rollout.Experiment

	end time.Time
	// runs are the AnalysisRuns that measure it.
	runs []*playedAnalysis
}

// startExperiment returns an Experiment with its analyses. Its pods are available at once.
func (w *rolloutCluster) startExperiment(e rollout.ExperimentExists) *playedExperiment {
	x := &playedExperiment{Experiment: rollout.Experiment{Name: e.Name, Hash: e.Hash, Created: w.tick(), Phase: argov1.AnalysisPhaseRunning}}
	for _, template := range e.Step.Templates {
		if template.Weight != nil {
			x.Destinations = append(x.Destinations, rollout.Destination{Service: e.Name + "-" + template.Name, Hash: template.Name, Weight: *template.Weight})
		}
	}
	for _, a := range e.Step.Analyses {
		x.runs = append(x.runs, w.startExperimentAnalysis(e, a))
	}
	x.end = w.experimentEnd(e.Step, x.runs)
	for _, run := range x.runs {
		if run.ended = x.end; !run.unlimited && run.due.Before(x.end) {
			run.ended = run.due
		}
	}
	return x
}

// experimentEnd returns the end of an Experiment: as soon as all analyses that are required for completion are successful, or else
// after its duration.
func (w *rolloutCluster) experimentEnd(step argov1.RolloutExperimentStep, runs []*playedAnalysis) time.Time {
	duration, _ := time.ParseDuration(string(step.Duration))
	end, hasRequired := w.now, false
	for i, a := range step.Analyses {
		if !a.RequiredForCompletion {
			continue
		}
		if hasRequired = true; runs[i].unlimited {
			w.addNote(fmt.Sprintf("The Experiment waits for the %s, which does not end within %d measurements, or never if a metric has an interval and no count; the plan does not wait for it.",
				runs[i].label, maxMeasurements))
			continue
		}
		if runs[i].due.After(end) {
			end = runs[i].due
		}
	}
	switch {
	case hasRequired:
		return end
	case duration == 0:
		w.addNote("An Experiment without duration, and without an analysis that is required for completion, ends only when it is terminated; the plan ends it at once.")
	}
	return w.now.Add(duration)
}

// startExperimentAnalysis returns an AnalysisRun of an Experiment.
func (w *rolloutCluster) startExperimentAnalysis(e rollout.ExperimentExists, a argov1.RolloutExperimentStepAnalysisTemplateRef) *playedAnalysis {
	run := &playedAnalysis{started: w.now, due: w.now, label: "analysis " + a.Name + " of the experiment"}
	if index, _ := rollout.StepPosition(w.spec, w.status); index != nil {
		run.label += fmt.Sprintf(" in step %d", *index+1)
	}
	hash := func(set string) string {
		if i := slices.IndexFunc(w.sets, func(rs rollout.ReplicaSet) bool { return rs.Name == set }); i >= 0 {
			return w.sets[i].Hash
		}
		return ""
	}
	spec, err := w.runSpec(analysis.RunRequest{
		Name: e.Name + "-" + a.Name, Templates: []argov1.AnalysisTemplateRef{{TemplateName: a.TemplateName, ClusterScope: a.ClusterScope}},
		RunOptions: analysis.RunOptions{DryRun: e.Step.DryRun},
	}, a.Args, hash(e.Stable), hash(e.Canary))
	w.play(run, spec, err)
	return run
}
