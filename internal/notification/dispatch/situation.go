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

// newSituation returns the state against which triggers and templates are evaluated.
func newSituation(ctx context.Context, about About, event release.Event, now time.Time) (notification.Situation, error) {
	object := about.Object.DeepCopy()
	object.APIVersion, object.Kind = argov1.SchemeGroupVersion.String(), argov1.RolloutKind
	if about.Spec != nil {
		about.Spec.DeepCopyInto(&object.Spec)
	}
	decoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return notification.Situation{}, fmt.Errorf("read Rollout %s: %w", about.key(), err)
	}
	out := notification.Situation{Rollout: decoded, Event: event, Now: now}
	if about.Runs == nil {
		return out, nil
	}
	runs, err := about.Runs(ctx)
	if err != nil {
		return notification.Situation{}, fmt.Errorf("list the AnalysisRuns of Rollout %s: %w", about.key(), err)
	}
	for _, run := range runsOfRevision(about.Object, runs) {
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
