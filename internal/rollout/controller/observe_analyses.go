package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/rollout"
)

// observeAnalysisRuns lists the AnalysisRuns of the Rollout, oldest first.
func (o *Observer) observeAnalysisRuns(ctx context.Context, s *observation) error {
	var runs argov1.AnalysisRunList
	if err := o.Client.List(ctx, &runs, OwnedBy(s.object)...); err != nil {
		return fmt.Errorf("list the AnalysisRuns of Rollout %s: %w", s.key(), err)
	}
	for i := range runs.Items {
		s.snapshot.AnalysisRuns = append(s.snapshot.AnalysisRuns, analysisRunOf(&runs.Items[i]))
	}
	slices.SortFunc(s.snapshot.AnalysisRuns, func(a, b rollout.AnalysisRun) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return nil
}

// observeExperiments lists the Experiments of the Rollout, oldest first.
func (o *Observer) observeExperiments(ctx context.Context, s *observation) error {
	var experiments argov1.ExperimentList
	if err := o.Client.List(ctx, &experiments, OwnedBy(s.object)...); err != nil {
		return fmt.Errorf("list the Experiments of Rollout %s: %w", s.key(), err)
	}
	for i := range experiments.Items {
		s.snapshot.Experiments = append(s.snapshot.Experiments, experimentOf(&experiments.Items[i], currentExperimentStep(s)))
	}
	slices.SortFunc(s.snapshot.Experiments, func(a, b rollout.Experiment) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return nil
}

// currentExperimentStep returns the experiment of the current step; nil: it has none.
func currentExperimentStep(s *observation) *argov1.RolloutExperimentStep {
	c, at := s.spec.Strategy.Canary, s.object.Status.CurrentStepIndex
	if c == nil || at == nil || *at < 0 || int(*at) >= len(c.Steps) {
		return nil
	}
	return c.Steps[*at].Experiment
}

func analysisRunOf(run *argov1.AnalysisRun) rollout.AnalysisRun {
	v := rollout.AnalysisRun{
		Name: run.Name, Hash: run.Labels[argov1.PodTemplateHashLabel], Type: run.Labels[argov1.RolloutTypeLabel],
		Created: run.CreationTimestamp.Time, Phase: run.Status.Phase, Message: run.Status.Message,
		Terminated: run.Spec.Terminate, Deleting: run.DeletionTimestamp != nil, Metric: decidingMetric(run),
	}
	if index, err := strconv.ParseInt(run.Labels[argov1.StepIndexLabel], 10, 32); err == nil {
		v.Step = new(int32(index))
	}
	return v
}

// decidingMetric returns the metric that decides an AnalysisRun: the first that was not successful, or the only one.
func decidingMetric(run *argov1.AnalysisRun) rollout.Metric {
	for _, result := range run.Status.MetricResults {
		undesired := result.Phase.Completed() && result.Phase != argov1.AnalysisPhaseSuccessful && !result.DryRun
		i := slices.IndexFunc(run.Spec.Metrics, func(m argov1.Metric) bool { return analysis.ResolveMetricName(m.Name, run.Spec.Args) == result.Name })
		if i < 0 || !undesired && len(run.Spec.Metrics) > 1 {
			continue
		}
		out := rollout.Metric{Limit: analysis.Limit(run.Spec.Metrics[i]), Query: analysis.ResolvedQuery(result)}
		if n := len(result.Measurements); n > 0 {
			out.Value = result.Measurements[n-1].Value
		}
		return out
	}
	return rollout.Metric{}
}

// experimentOf returns an Experiment in the form of a snapshot. step is the current one.
func experimentOf(experiment *argov1.Experiment, step *argov1.RolloutExperimentStep) rollout.Experiment {
	v := rollout.Experiment{
		Name: experiment.Name, Hash: experiment.Labels[argov1.PodTemplateHashLabel], Created: experiment.CreationTimestamp.Time,
		Phase: experiment.Status.Phase, Message: experiment.Status.Message,
		Terminated: experiment.Spec.Terminate, Deleting: experiment.DeletionTimestamp != nil,
	}
	if v.Phase != argov1.AnalysisPhaseRunning || step == nil {
		return v
	}
	for _, template := range step.Templates {
		for _, status := range experiment.Status.TemplateStatuses {
			if template.Weight != nil && template.Name == status.Name && status.ServiceName != "" {
				v.Destinations = append(v.Destinations, rollout.Destination{Service: status.ServiceName, Hash: status.PodTemplateHash, Weight: *template.Weight})
			}
		}
	}
	return v
}
