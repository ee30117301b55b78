package controller

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// validate finds the first problem of the spec, or of the objects that it refers to. Watches notify when a reference is fixed,
// so that no retry is needed.
func (o *Observer) validate(ctx context.Context, s *observation) error {
	spec := s.object.Spec
	spec.Selector = s.spec.Selector // that of the workload, if the Rollout has none
	problems := rollout.Validate(spec, s.workload.referencedWorkload(s.spec))
	if len(problems) == 0 && o.FindConflict != nil && spec.WorkloadRef != nil {
		conflict, err := o.FindConflict(ctx, s.object)
		if err != nil {
			return err
		}
		if conflict != "" {
			s.needsRetry = true // this controller has no watch that notifies when the other object is deleted
			problems = append(problems, field.Invalid(field.NewPath("spec", "workloadRef", "name"), spec.WorkloadRef.Name, conflict))
		}
	}
	if len(problems) == 0 {
		problems = rollout.ValidateServices(s.object.Name, s.spec.Strategy, s.spec.Template.Labels, s.snapshot.Services)
	}
	for _, validate := range []func(context.Context, *observation) (field.ErrorList, error){o.validateAnalyses, o.validateRoutes} {
		if len(problems) > 0 {
			break
		}
		var err error
		if problems, err = validate(ctx, s); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		s.snapshot.ValidationError = problems[0].Error()
	}
	return nil
}

// validateAnalyses reads the templates of all analyses, and checks that they can be merged. A template that may not be read is no
// problem of the spec: the state machine decides what waits for the permission.
func (o *Observer) validateAnalyses(ctx context.Context, s *observation) (field.ErrorList, error) {
	lookup := o.Runs.NewTemplateLookup(ctx, s.object.Namespace)
	lookupAndWatch := func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error) {
		s.dependencies = append(s.dependencies, templateObject(s.object.Namespace, name, cluster))
		return lookup(name, cluster)
	}
	for _, named := range AnalysesOf(s.spec.Strategy) {
		problem, err := named.Validate(lookupAndWatch)
		switch {
		case o.recordUnreadableTemplate(s, named.path, err):
		case err != nil:
			return nil, fmt.Errorf("read the analysis templates of Rollout %s: %w", s.key(), err)
		case problem != nil:
			return field.ErrorList{problem}, nil //nolint:nilerr // part of the snapshot
		}
	}
	for path, refs := range experimentTemplates(s.spec.Strategy) {
		_, err := analysis.CollectTemplates(refs, lookup) // all other errors are results of the Experiment
		o.recordUnreadableTemplate(s, path, err)
	}
	return nil, nil
}

// recordUnreadableTemplate reports whether a template may not be read, and records this in the snapshot. The permissions of a
// command, which reads the answers of the controller, decide nothing.
func (o *Observer) recordUnreadableTemplate(s *observation, path *field.Path, err error) bool {
	if !reconciler.IsRejected(err) || o.AnswersFromStatus {
		return false
	}
	if s.snapshot.UnreadableTemplate == "" {
		s.snapshot.UnreadableTemplate = field.Forbidden(path, reconciler.Message(err)).Error()
	}
	s.needsRetry = true // no watch notifies of a permission
	return true
}

// validateRoutes finds the problems of the user's routes.
func (o *Observer) validateRoutes(ctx context.Context, s *observation) (field.ErrorList, error) {
	if _, err := o.routersOf(s.object); err != nil {
		return field.ErrorList{field.Forbidden(traffic.RoutingPath(), err.Error())}, nil
	}
	for _, router := range s.routers {
		problems, err := o.Applier.Validate(ctx, router.Renderer, s.target(router))
		switch {
		case errors.Is(err, traffic.ErrNotInstalled):
			s.needsRetry = true // no watch notifies of a new definition
			return field.ErrorList{field.Forbidden(traffic.RoutingPath(), err.Error())}, nil
		case reconciler.NeedsUser(err):
			return field.ErrorList{field.Forbidden(traffic.RoutingPath(), err.Error())}, nil
		case err != nil:
			return nil, err
		case len(problems) > 0:
			return problems, nil
		}
	}
	return nil, nil
}

func templateObject(namespace, name string, cluster bool) watching.Object {
	kind := argov1.SchemeGroupVersion.WithKind(argov1.AnalysisTemplateKind)
	if cluster {
		kind, namespace = argov1.SchemeGroupVersion.WithKind(argov1.ClusterAnalysisTemplateKind), ""
	}
	return watching.Object{Kind: kind.GroupKind(), Namespace: namespace, Name: name}
}
