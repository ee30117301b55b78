package cluster

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/plan"
	"github.com/serin-dev/serin/internal/plugin"
	"github.com/serin-dev/serin/internal/release"
)

// PlanController returns a controller with these flags, for releases that may not be in any cluster.
func PlanController(controllerFlags []string) plan.Controller {
	f := parseFlags(controllerFlags)
	settings := func(object *flaggerv1.Canary) canary.Settings { return planSettings(f, object) }
	return plan.Controller{Settings: settings, Routers: f.Routers(), Plugins: planPlugins(f)}
}

func planPlugins(f flags) plan.Plugins {
	return plan.Plugins{External: f.Routers().ExternalPlugins, Off: f.known && !f.AllowPlugins}
}

// readPlugins returns the plugins of a controller, with their configuration if the user may read it.
func (s *Session) readPlugins(ctx context.Context, f flags) plan.Plugins {
	out := planPlugins(f)
	if out.Off || f.Argo.OwnNamespace == "" {
		return out
	}
	source := &corev1.ConfigMap{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: f.Argo.OwnNamespace, Name: plugin.ConfigMapName}, source)
	if err == nil || apierrors.IsNotFound(err) {
		out.Config = new(plugin.ParseConfig(source.Data))
	}
	return out
}

func planSettings(f flags, object *flaggerv1.Canary) canary.Settings {
	settings, _ := f.settingsFor(object)
	settings.Features = features(f.Routers(), object)
	return settings
}

// PlanInput returns the input of the plan of a release in the cluster. Errors: ErrNotFound, ErrAmbiguous, ErrUnreachable, and a
// plan.InvalidError if the controller would reject its spec.
func (s *Session) PlanInput(ctx context.Context, namespace string, name Name) (plan.Input, error) {
	object, err := s.getObject(ctx, namespace, name)
	if err != nil {
		return plan.Input{}, err
	}
	controllers := s.findControllers(ctx, []client.Object{object})
	reader, err := newCachedReader(ctx, s.Client)
	if err != nil {
		return plan.Input{}, err
	}
	switch object := object.(type) {
	case *flaggerv1.Canary:
		return s.canaryPlanInput(ctx, reader, object, controllers.flags)
	case *argov1.Rollout:
		return s.rolloutPlanInput(ctx, reader, object, controllers.flags)
	default:
		return plan.Input{}, nil // there is no other kind
	}
}

func (s *Session) canaryPlanInput(ctx context.Context, reader *cachedReader, object *flaggerv1.Canary, f flags) (plan.Input, error) {
	observed, err := s.observeCanary(ctx, reader, object, f)
	if err != nil {
		return plan.Input{}, err
	}
	snapshot := observed.Snapshot
	in := plan.Input{Canary: object, Settings: planSettings(f, object), Routers: f.Routers()}
	in.Problems = slices.Concat(observed.Unread, snapshot.MissingReferences, snapshot.MissingAlertProviders)
	for _, problem := range []string{snapshot.Workload.Problem, snapshot.Workload.ScalerProblem, snapshot.TargetConflict} {
		if problem != "" {
			in.Problems = append(in.Problems, problem)
		}
	}
	if !slices.Contains(observed.Assumed, release.WorkloadPart) && snapshot.Workload.Problem == "" {
		target := object.Spec.TargetRef
		replicas := max(snapshot.Workload.Target.Replicas, snapshot.Workload.Primary.Replicas, 1)
		in.Workload = &plan.Workload{Source: "cluster, " + target.Kind + " " + target.Name, Replicas: &replicas}
	}
	templates := map[types.NamespacedName]flaggerv1.MetricTemplateSpec{}
	for _, check := range snapshot.Plan.Checks {
		if check.Source != canary.Template {
			continue
		}
		key := types.NamespacedName{Namespace: check.Metric.TemplateRef.Namespace, Name: check.Metric.TemplateRef.Name}
		if key.Namespace == "" {
			key.Namespace = object.Namespace
		}
		var template flaggerv1.MetricTemplate
		if err := s.Client.Get(ctx, key, &template); err == nil { // the plan names a template that is unknown
			templates[key] = template.Spec
		}
	}
	in.MetricTemplate = func(namespace, name string) (flaggerv1.MetricTemplateSpec, bool) {
		template, found := templates[types.NamespacedName{Namespace: namespace, Name: name}]
		return template, found
	}
	return in, nil
}

func (s *Session) rolloutPlanInput(ctx context.Context, reader *cachedReader, object *argov1.Rollout, f flags) (plan.Input, error) {
	observed, err := s.observeRollout(ctx, reader, object, f)
	if err != nil {
		return plan.Input{}, err
	}
	if problem := observed.Snapshot.ValidationError; problem != "" {
		return plan.Input{}, &plan.InvalidError{Release: argov1.RolloutKind + " " + object.Name + "." + object.Namespace, Problems: []string{problem}}
	}
	in := plan.Input{Rollout: object, Routers: f.Routers(), Problems: observed.Unread, Plugins: s.readPlugins(ctx, f)}
	if ref := object.Spec.WorkloadRef; ref != nil && len(observed.Assumed) == 0 {
		in.Workload = &plan.Workload{
			Source: "cluster, " + ref.Kind + " " + ref.Name, Template: observed.Snapshot.Spec.Template, Selector: observed.Snapshot.Spec.Selector,
		}
	}
	in.AnalysisTemplate = rolloutObserver(ctx, reader, object, f).Runs.NewTemplateLookup(ctx, object.Namespace)
	return in, nil
}
