package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/similar"
)

// This file contains the commands for a single AnalysisRun or Experiment, and their lists.

// Terminate ends a running AnalysisRun or Experiment.
const Terminate Command = "terminate"

// AnalysisKinds are the kinds of the objects that measure a release.
var AnalysisKinds = []explain.Kind{explain.KindAnalysisRun, explain.KindExperiment}

// PlanTerminate plans the end of a running AnalysisRun or Experiment. An empty kind of the name is any of them. Errors: those of
// PlanCommand.
func (s *Session) PlanTerminate(ctx context.Context, namespace string, name Name) (*PlannedCommand, error) {
	p, err := s.planForAnalysis(ctx, Terminate, namespace, name)
	if err != nil {
		return nil, err
	}
	switch phase, terminated := analysisState(p.object); {
	case phase.Completed():
		return nil, p.newError(ErrNoEffect, "is %s: it has already ended", phase)
	case terminated:
		return nil, p.newError(ErrNoEffect, "is already being terminated")
	}
	p.Effect = "will be terminated"
	// The UID instead of the version: the status changes with every measurement, and another object with the name is not terminated.
	return p, p.patchWorkload(p.object, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": p.object.GetUID()}, "spec": map[string]any{"terminate": true},
	})
}

// PlanRetryExperiment plans to run an Experiment again that has ended. Errors: those of PlanCommand.
func (s *Session) PlanRetryExperiment(ctx context.Context, namespace, name string) (*PlannedCommand, error) {
	p, err := s.planForAnalysis(ctx, Retry, namespace, Name{explain.KindExperiment, name})
	if err != nil {
		return nil, err
	}
	phase, terminated := analysisState(p.object)
	if !phase.Completed() {
		return nil, p.newError(ErrNoEffect, "is %s: it has not ended", phaseOrNew(string(phase)))
	}
	change := map[string]any{"metadata": map[string]any{"resourceVersion": p.object.GetResourceVersion()}, "status": nil}
	if terminated {
		change["spec"] = map[string]any{"terminate": false} // it would end at once
	}
	p.Effect = "will run again"
	return p, p.patchWorkload(p.object, types.MergePatchType, change)
}

func (s *Session) planForAnalysis(ctx context.Context, command Command, namespace string, name Name) (*PlannedCommand, error) {
	object, kind, err := s.getAnalysis(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &PlannedCommand{Command: command, Key: explain.Key{Kind: kind, Namespace: namespace, Name: name.Name}, object: object}, nil
}

// analysisState returns the phase of an AnalysisRun or an Experiment, and whether its end was requested.
func analysisState(object client.Object) (phase argov1.AnalysisPhase, terminated bool) {
	switch object := object.(type) {
	case *argov1.AnalysisRun:
		return object.Status.Phase, object.Spec.Terminate
	case *argov1.Experiment:
		return object.Status.Phase, object.Spec.Terminate
	default:
		return "", false
	}
}

// getAnalysis reads an AnalysisRun or an Experiment by its name. A kind that the cluster does not know is no error if the other one
// exists.
func (s *Session) getAnalysis(ctx context.Context, namespace string, name Name) (client.Object, explain.Kind, error) {
	wanted := AnalysisKinds
	if name.Kind != "" {
		wanted = []explain.Kind{name.Kind}
	}
	var existing []client.Object
	var existingKind explain.Kind
	var failures []error
	for _, kind := range wanted {
		var object client.Object = &argov1.AnalysisRun{}
		if kind == explain.KindExperiment {
			object = &argov1.Experiment{}
		}
		err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name.Name}, object)
		switch {
		case err == nil:
			existing, existingKind = append(existing, object), kind
		case !apierrors.IsNotFound(err):
			failures = append(failures, describeError("get "+string(kind)+" "+name.Name+inNamespace(namespace), err, kind))
		}
	}
	switch {
	case len(existing) > 1:
		return nil, "", failure{ErrAmbiguous, nil, fmt.Sprintf("%s%s is an AnalysisRun and an Experiment: use analysisrun/%s or experiment/%s", name.Name, inNamespace(namespace), name.Name, name.Name)}
	case len(existing) == 1:
		return existing[0], existingKind, nil
	case len(failures) > 0:
		return nil, "", failures[0]
	default:
		return nil, "", s.analysisNotFoundError(ctx, namespace, name)
	}
}

// analysisNotFoundError describes a name that no AnalysisRun and no Experiment has. It suggests those of a Rollout with that name,
// or else one with a similar name.
func (s *Session) analysisNotFoundError(ctx context.Context, namespace string, name Name) error {
	wanted := "AnalysisRun or Experiment"
	if name.Kind != "" {
		wanted = string(name.Kind)
	}
	text := fmt.Sprintf("there is no %s %s%s", wanted, name.Name, inNamespace(namespace))
	all, _ := s.Analyses(ctx, namespace, AnalysisKinds) // without permission to list there is no suggestion
	var running, names []string
	for _, one := range all {
		if name.Kind != "" && one.Kind != name.Kind {
			continue
		}
		names = append(names, one.Name)
		if one.Rollout == name.Name && !one.Phase.Completed() {
			running = append(running, one.Argument())
		}
	}
	switch nearest := similar.To(name.Name, names); {
	case len(running) > 0:
		return failure{ErrNotFound, nil, fmt.Sprintf("%s: Rollout %s is measured by %s", text, name.Name, strings.Join(running, ", "))}
	case nearest != "":
		return failure{ErrNotFound, nil, text + ": did you mean " + nearest + "?"}
	default:
		return failure{ErrNotFound, nil, text + ": list all with: kubectl get analysisruns,experiments -n " + namespace}
	}
}

// Analysis is the name of an AnalysisRun or an Experiment, with its state.
type Analysis struct {
	Kind  explain.Kind
	Name  string
	Phase argov1.AnalysisPhase
	// Rollout is the name of the Rollout that it belongs to; empty: none.
	Rollout string
}

// Argument returns the name as an argument of commands.
func (a Analysis) Argument() string { return strings.ToLower(string(a.Kind)) + "/" + a.Name }

// Analyses returns the AnalysisRuns and Experiments of a namespace that the user has permission to list, sorted by kind and name. It
// is an error if none can be listed.
func (s *Session) Analyses(ctx context.Context, namespace string, kinds []explain.Kind) ([]Analysis, error) {
	var out []Analysis
	var failures []error
	for _, kind := range kinds {
		found, err := s.listAnalyses(ctx, namespace, kind)
		if err != nil {
			failures = append(failures, describeError("list "+plural(string(kind))+inNamespace(namespace), err, kind))
		}
		out = append(out, found...)
	}
	if len(failures) == len(kinds) {
		return nil, errors.Join(failures...)
	}
	return out, nil
}

func (s *Session) listAnalyses(ctx context.Context, namespace string, kind explain.Kind) ([]Analysis, error) {
	var objects []client.Object
	if kind == explain.KindExperiment {
		var list argov1.ExperimentList
		if err := s.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	} else {
		var list argov1.AnalysisRunList
		if err := s.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
	out := make([]Analysis, 0, len(objects))
	for _, object := range objects {
		phase, _ := analysisState(object)
		out = append(out, Analysis{Kind: kind, Name: object.GetName(), Phase: phase, Rollout: explain.RolloutOf(object)})
	}
	slices.SortFunc(out, func(a, b Analysis) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Experiments describes the selected Experiments. Names and kinds of the selection are ignored. Errors: ErrNotFound if the cluster
// does not know the kind, ErrUnreachable.
func (s *Session) Experiments(ctx context.Context, sel Selection) (explain.Experiments, error) {
	options := []client.ListOption{client.InNamespace(sel.Namespace)}
	if sel.Labels != nil {
		options = append(options, client.MatchingLabelsSelector{Selector: sel.Labels})
	}
	var list argov1.ExperimentList
	if err := s.Client.List(ctx, &list, options...); err != nil {
		return explain.Experiments{}, describeError("list Experiments"+inNamespace(sel.Namespace), err, explain.KindExperiment)
	}
	return explain.NewExperiments(list.Items), nil
}
