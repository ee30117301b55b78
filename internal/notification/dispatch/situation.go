package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/release"
)

// variables are the names of objects in expressions and templates. That of a Rollout is always set.
var variables = map[string]string{argov1.AnalysisRunKind: "analysisRun", argov1.ExperimentKind: "experiment"}

// newSituation returns the state against which triggers and templates are evaluated.
func newSituation(ctx context.Context, about About, event release.Event, now time.Time) (notification.Situation, error) {
	kind := about.key().kind
	object := about.copy().Object
	object.GetObjectKind().SetGroupVersionKind(argov1.SchemeGroupVersion.WithKind(kind))
	rollout, isRollout := object.(*argov1.Rollout)
	if isRollout && about.Spec != nil {
		about.Spec.DeepCopyInto(&rollout.Spec)
	}
	decoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return notification.Situation{}, fmt.Errorf("read %s: %w", about.key(), err)
	}
	out := notification.Situation{Rollout: decoded, Variable: variables[kind], Event: event, Now: now}
	if !isRollout || about.Runs == nil {
		return out, nil
	}
	runs, err := about.Runs(ctx)
	if err != nil {
		return notification.Situation{}, fmt.Errorf("list the AnalysisRuns of %s: %w", about.key(), err)
	}
	for _, run := range runsOfRevision(rollout, runs) {
		decoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&run)
		if err != nil {
			return notification.Situation{}, fmt.Errorf("read AnalysisRun %s: %w", run.Name, err)
		}
		out.Runs = append(out.Runs, decoded)
	}
	return out, nil
}

// runsOfRevision returns the runs of the Rollout's current revision, the newest first.
func runsOfRevision(object *argov1.Rollout, runs []argov1.AnalysisRun) []argov1.AnalysisRun {
	var matching []argov1.AnalysisRun
	for _, run := range runs {
		if run.Labels[argov1.PodTemplateHashLabel] == object.Status.CurrentPodHash && run.Annotations[argov1.RevisionAnnotation] == object.Annotations[argov1.RevisionAnnotation] {
			matching = append(matching, run)
		}
	}
	slices.SortStableFunc(matching, func(a, b argov1.AnalysisRun) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	return matching
}
