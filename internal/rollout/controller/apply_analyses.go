package controller

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/rollout"
)

func ownerReference(object *argov1.Rollout) metav1.OwnerReference {
	return *metav1.NewControllerRef(object, argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind))
}

// analysisApplier writes the AnalysisRuns and the Experiments of Rollouts.
type analysisApplier struct {
	client client.Client
	// apiReader reads from the API server.
	apiReader  client.Reader
	runs       *launch.Launcher
	instanceID string
}

// startRun creates an AnalysisRun from templates.
func (a analysisApplier) startRun(ctx context.Context, s *observation, e rollout.AnalysisRunExists) (bool, error) {
	tree, err := toJSONTree(s.object)
	if err != nil {
		return false, err
	}
	args, err := analysis.ResolveRolloutArguments(e.Analysis.Args, tree, e.StableHash, e.LatestHash)
	if err != nil {
		return false, fmt.Errorf("create AnalysisRun %s: %w", e.Name, err)
	}
	labels := map[string]string{argov1.PodTemplateHashLabel: e.Hash}
	if e.Type != "" {
		labels[argov1.RolloutTypeLabel] = e.Type
	}
	if e.Step != nil {
		labels[argov1.StepIndexLabel] = strconv.Itoa(int(*e.Step))
	}
	annotations := map[string]string{argov1.RevisionAnnotation: strconv.FormatInt(e.Revision, 10)}
	if metadata := e.Analysis.AnalysisRunMetadata; metadata != nil {
		maps.Copy(labels, metadata.Labels)
		maps.Copy(annotations, metadata.Annotations)
	}
	if s.spec.Selector != nil {
		maps.Copy(labels, s.spec.Selector.MatchLabels)
	}
	_, err = a.runs.StartRun(ctx, analysis.RunRequest{
		Namespace: s.object.Namespace, Name: e.Name, Templates: e.Analysis.Templates, Labels: labels, Annotations: annotations, Owner: ownerReference(s.object),
		RunOptions: analysis.RunOptions{Args: args, DryRun: e.Analysis.DryRun, MeasurementRetention: e.Analysis.MeasurementRetention},
	})
	return err == nil, err
}

// terminateRun requests the end of an AnalysisRun.
func (a analysisApplier) terminateRun(ctx context.Context, s *observation, name string) (bool, error) {
	run := &argov1.AnalysisRun{}
	if found, err := a.getOwned(ctx, s, name, run); !found || run.Spec.Terminate {
		return false, err
	}
	after := run.DeepCopy()
	after.Spec.Terminate = true
	return writeChanges(ctx, a.client, run, after)
}

// terminateExperiment requests the end of an Experiment.
func (a analysisApplier) terminateExperiment(ctx context.Context, s *observation, name string) (bool, error) {
	experiment := &argov1.Experiment{}
	if found, err := a.getOwned(ctx, s, name, experiment); !found || experiment.Spec.Terminate {
		return false, err
	}
	after := experiment.DeepCopy()
	after.Spec.Terminate = true
	return writeChanges(ctx, a.client, experiment, after)
}

// deleteOwned deletes an AnalysisRun or an Experiment of the Rollout.
func (a analysisApplier) deleteOwned(ctx context.Context, s *observation, name string, object client.Object) (bool, error) {
	if found, err := a.getOwned(ctx, s, name, object); !found {
		return false, err
	}
	return deleteObserved(ctx, a.client, object)
}

// getOwned reads an object that the Rollout controls. An object that was deleted, or that has another controller now, is not
// found.
func (a analysisApplier) getOwned(ctx context.Context, s *observation, name string, into client.Object) (bool, error) {
	err := a.client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %T %s.%s: %w", into, name, s.object.Namespace, err)
	}
	return metav1.IsControlledBy(into, s.object), nil
}
