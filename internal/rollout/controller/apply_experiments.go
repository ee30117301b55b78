package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
)

// startExperiment creates the Experiment of a step. If another object has its name, or if an Experiment of that name has ended,
// it appends a number to the name.
func (a analysisApplier) startExperiment(ctx context.Context, s *observation, e rollout.ExperimentExists) (bool, error) {
	canary, err := s.replicaSet(e.Canary)
	if err != nil {
		return false, err
	}
	stable, err := s.replicaSet(e.Stable)
	if err != nil {
		return false, err
	}
	tree, err := toJSONTree(s.object)
	if err != nil {
		return false, err
	}
	desired, err := newExperiment(s, e, tree, canary, stable)
	if err != nil {
		return false, err
	}
	if a.instanceID != "" {
		desired.Labels[argov1.InstanceIDLabel] = a.instanceID
	}
	for n := 1; ; n++ {
		err := a.client.Create(ctx, desired.DeepCopy())
		switch {
		case err == nil:
			return true, nil
		case !apierrors.IsAlreadyExists(err):
			return false, fmt.Errorf("create Experiment %s.%s: %w", desired.Name, desired.Namespace, err)
		}
		existing := &argov1.Experiment{}
		if err := a.apiReader.Get(ctx, client.ObjectKeyFromObject(desired), existing); err != nil {
			return false, fmt.Errorf("get Experiment %s.%s: %w", desired.Name, desired.Namespace, err)
		}
		if metav1.IsControlledBy(existing, s.object) && !existing.Status.Phase.Completed() && existing.DeletionTimestamp == nil && equality.Semantic.DeepEqual(existing.Spec, desired.Spec) {
			return false, nil
		}
		desired.Name = fmt.Sprintf("%s-%d", e.Name, n)
	}
}

// newExperiment returns the Experiment of a step, with the pod templates of the two revisions.
func newExperiment(s *observation, e rollout.ExperimentExists, tree map[string]any, canary, stable *appsv1.ReplicaSet) (*argov1.Experiment, error) {
	labels := maps.Clone(s.object.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[argov1.PodTemplateHashLabel] = e.Hash
	experiment := &argov1.Experiment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.object.Namespace, Name: e.Name, Labels: labels, OwnerReferences: []metav1.OwnerReference{ownerReference(s.object)},
			Annotations: map[string]string{argov1.RevisionAnnotation: strconv.FormatInt(e.Revision, 10)},
		},
		Spec: argov1.ExperimentSpec{
			Duration: e.Step.Duration, ProgressDeadlineSeconds: s.spec.ProgressDeadlineSeconds, ScaleDownDelaySeconds: e.Step.ScaleDownDelaySeconds,
			DryRun: e.Step.DryRun,
		},
	}
	if m := e.Step.AnalysisRunMetadata; len(m.Labels) > 0 || len(m.Annotations) > 0 {
		experiment.Spec.AnalysisRunMetadata = &m
	}
	for _, template := range e.Step.Templates {
		replicaSet := canary
		switch template.SpecRef {
		case argov1.CanarySpecRef:
		case argov1.StableSpecRef:
			replicaSet = stable
		default:
			return nil, fmt.Errorf("create Experiment %s: template %s has specRef %q, which is neither canary nor stable: %w", e.Name, template.Name, template.SpecRef, errInvalid)
		}
		experiment.Spec.Templates = append(experiment.Spec.Templates, experimentTemplate(template, replicaSet))
	}
	for _, a := range e.Step.Analyses {
		args, err := analysis.ResolveRolloutArguments(a.Args, tree, replicaset.PodTemplateHash(stable), replicaset.PodTemplateHash(canary))
		if err != nil {
			return nil, fmt.Errorf("create Experiment %s: %w", e.Name, err)
		}
		experiment.Spec.Analyses = append(experiment.Spec.Analyses, argov1.ExperimentAnalysisTemplateRef{
			Name: a.Name, TemplateName: a.TemplateName, ClusterScope: a.ClusterScope, Args: args, RequiredForCompletion: a.RequiredForCompletion,
		})
	}
	return experiment, nil
}

// errInvalid marks an error that the user must correct.
var errInvalid = errors.New("the spec is not valid")

// experimentTemplate returns one side of an Experiment: the pod template of a ReplicaSet with its own labels.
func experimentTemplate(template argov1.RolloutExperimentTemplate, replicaSet *appsv1.ReplicaSet) argov1.TemplateSpec {
	side := argov1.TemplateSpec{
		Name: template.Name, Replicas: template.Replicas, MinReadySeconds: replicaSet.Spec.MinReadySeconds, Template: *replicaSet.Spec.Template.DeepCopy(),
		Selector: replicaSet.Spec.Selector.DeepCopy(), Service: template.Service,
	}
	if template.Selector != nil {
		side.Selector = template.Selector.DeepCopy()
	}
	if template.Weight != nil && side.Service == nil {
		side.Service = &argov1.TemplateService{}
	}
	side.Template.Labels = mergeMaps(side.Template.Labels, template.Metadata.Labels)
	side.Template.Annotations = mergeMaps(side.Template.Annotations, template.Metadata.Annotations)
	if side.Selector != nil && len(template.Metadata.Labels) > 0 {
		side.Selector.MatchLabels = mergeMaps(side.Selector.MatchLabels, template.Metadata.Labels)
	}
	return side
}

// mergeMaps returns labels or annotations with more of them; it modifies neither.
func mergeMaps(base, additions map[string]string) map[string]string {
	if len(additions) == 0 {
		return base
	}
	out := maps.Clone(base)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, additions)
	return out
}
