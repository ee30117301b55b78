package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/experiment"
	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// observation is an observed Experiment with its objects.
type observation struct {
	object      *argov1.Experiment
	snapshot    experiment.Snapshot
	replicaSets map[string]*appsv1.ReplicaSet // existing ones, or those to be created, by template
	services    map[string]*corev1.Service    // existing ones, by name
}

// observe reads the objects of an Experiment, and returns them with the snapshot.
func (r *Reconciler) observe(ctx context.Context, e *argov1.Experiment) (*observation, error) {
	s := &observation{
		object: e, replicaSets: map[string]*appsv1.ReplicaSet{}, services: map[string]*corev1.Service{},
		snapshot: experiment.Snapshot{
			Now: r.Clock.Now(), Name: e.Name, Spec: e.Spec, Status: e.Status,
			Templates: map[string]experiment.TemplateState{}, AnalysisRuns: map[string]experiment.AnalysisRunState{},
		},
	}
	for i := range e.Spec.Templates {
		t := &e.Spec.Templates[i]
		state, err := r.observeTemplate(ctx, s, t)
		if err != nil {
			return nil, err
		}
		s.snapshot.Templates[t.Name] = state
	}
	for _, a := range e.Status.AnalysisRuns {
		run := &argov1.AnalysisRun{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: a.AnalysisRun}, run)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get AnalysisRun %s.%s: %w", a.AnalysisRun, e.Namespace, err)
		}
		if err == nil {
			s.snapshot.AnalysisRuns[a.AnalysisRun] = experiment.AnalysisRunState{
				Found: true, Phase: run.Status.Phase, Message: run.Status.Message, Terminated: run.Spec.Terminate,
			}
		}
	}
	return s, nil
}

// observeTemplate returns the observed objects of a template.
func (r *Reconciler) observeTemplate(ctx context.Context, s *observation, t *argov1.TemplateSpec) (experiment.TemplateState, error) {
	desired, err := newReplicaSet(s.object, t)
	if err != nil {
		return experiment.TemplateState{}, err
	}
	s.replicaSets[t.Name] = desired
	state := experiment.TemplateState{ReplicaSet: desired.Name, Hash: desired.Labels[argov1.PodTemplateHashLabel]}
	replicaSet := &appsv1.ReplicaSet{}
	switch err := r.Client.Get(ctx, client.ObjectKeyFromObject(desired), replicaSet); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return state, fmt.Errorf("get ReplicaSet %s.%s: %w", desired.Name, desired.Namespace, err)
	case !metav1.IsControlledBy(replicaSet, s.object):
		state.Problem = fmt.Sprintf("ReplicaSet %s exists and does not belong to this Experiment: delete it, or rename template '%s'", replicaSet.Name, t.Name)
	default:
		s.replicaSets[t.Name] = replicaSet
		state.Found, state.Hash = true, replicaSet.Labels[argov1.PodTemplateHashLabel]
		state.Desired = 1
		if replicaSet.Spec.Replicas != nil {
			state.Desired = *replicaSet.Spec.Replicas
		}
		state.Total, state.Ready, state.Available = replicaSet.Status.Replicas, replicaSet.Status.ReadyReplicas, replicaSet.Status.AvailableReplicas
		if replicaSet.Status.ObservedGeneration < replicaSet.Generation {
			state.Available = min(state.Available, state.Total) // the status precedes the last change of the spec; an event reports the next one
		}
		// The annotation may have been written by a user: an invalid time counts as none.
		state.ScaleDownDeadline, _ = time.Parse(time.RFC3339, replicaSet.Annotations[argov1.ScaleDownDeadlineAnnotation])
	}
	return state, r.observeService(ctx, s, t, &state)
}

// observeService finds the Service of a template.
func (r *Reconciler) observeService(ctx context.Context, s *observation, t *argov1.TemplateSpec, state *experiment.TemplateState) error {
	if t.Service == nil {
		return nil
	}
	if r.watchServices != nil {
		if err := r.watchServices(); err != nil {
			return fmt.Errorf("watch Services for Experiments: %w", err)
		}
	}
	name := t.Service.Name
	if name == "" {
		name = state.ReplicaSet
	}
	service := &corev1.Service{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, service)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Service %s.%s: %w", name, s.object.Namespace, err)
	case !metav1.IsControlledBy(service, s.object):
		state.Problem = fmt.Sprintf("Service %s exists and does not belong to this Experiment: delete it, or set another name in template '%s'", name, t.Name)
		return nil
	}
	s.services[name] = service
	state.Service = name
	return nil
}

// newReplicaSet returns the ReplicaSet of a template, without pods. The hash label of a template that was copied from a
// Rollout is replaced.
func newReplicaSet(e *argov1.Experiment, t *argov1.TemplateSpec) (*appsv1.ReplicaSet, error) {
	template := t.Template.DeepCopy()
	delete(template.Labels, argov1.PodTemplateHashLabel)
	var collisions *int32
	for _, status := range e.Status.TemplateStatuses {
		if status.Name == t.Name {
			collisions = status.CollisionCount
		}
	}
	hash, err := rollout.PodHash(*template, collisions)
	if err != nil {
		return nil, err
	}
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	template.Labels[argov1.PodTemplateHashLabel] = hash
	selector := t.Selector.DeepCopy()
	if selector == nil {
		selector = &metav1.LabelSelector{}
	}
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[argov1.PodTemplateHashLabel] = hash
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: e.Name + "-" + t.Name, Labels: maps.Clone(template.Labels),
			Annotations: experimentAnnotations(e, t.Name), OwnerReferences: []metav1.OwnerReference{ownerReference(e)},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), MinReadySeconds: t.MinReadySeconds, Selector: selector, Template: *template},
	}, nil
}

func experimentAnnotations(e *argov1.Experiment, template string) map[string]string {
	return map[string]string{argov1.ExperimentNameAnnotation: e.Name, argov1.ExperimentTemplateAnnotation: template}
}

func ownerReference(e *argov1.Experiment) metav1.OwnerReference {
	return *metav1.NewControllerRef(e, argov1.SchemeGroupVersion.WithKind(argov1.ExperimentKind))
}

func (r *Reconciler) createReplicaSet(ctx context.Context, s *observation, template string) error {
	return r.Client.Create(ctx, s.replicaSets[template].DeepCopy())
}

func (r *Reconciler) scaleReplicaSet(ctx context.Context, s *observation, template string, replicas int32) ([]release.Event, error) {
	rs := s.replicaSets[template]
	err := r.patch(ctx, rs, &appsv1.ReplicaSet{}, map[string]any{"spec": map[string]any{"replicas": replicas}})
	if err == nil || reconciler.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, err // a concurrent change is not worth an event
	}
	return []release.Event{experiment.ScalingFailedEvent(rs.Name, s.snapshot.Templates[template].Desired, replicas, err)}, err
}

func (r *Reconciler) setScaleDownDeadline(ctx context.Context, s *observation, template string, at time.Time) error {
	annotations := map[string]any{argov1.ScaleDownDeadlineAnnotation: at.UTC().Format(time.RFC3339)}
	return r.patch(ctx, s.replicaSets[template], &appsv1.ReplicaSet{}, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// patch changes an object if it still has the resource version that was read. into receives the response.
func (r *Reconciler) patch(ctx context.Context, read, into client.Object, change map[string]any) error {
	text, err := json.Marshal(jsontree.PinResourceVersion(change, read.GetResourceVersion()))
	if err != nil {
		return err
	}
	into.SetNamespace(read.GetNamespace())
	into.SetName(read.GetName())
	if err := r.Client.Patch(ctx, into, client.RawPatch(types.MergePatchType, text)); err != nil {
		return err
	}
	read.SetResourceVersion(into.GetResourceVersion())
	return nil
}

func (r *Reconciler) createService(ctx context.Context, s *observation, template, name string) error {
	for i := range s.object.Spec.Templates {
		if t := &s.object.Spec.Templates[i]; t.Name == template {
			return r.Client.Create(ctx, newService(s.object, t, name, s.replicaSets[template].Labels))
		}
	}
	return errors.New("template not found")
}

// newService returns the Service of the pods of a template, with all ports that they declare.
func newService(e *argov1.Experiment, t *argov1.TemplateSpec, name string, selector map[string]string) *corev1.Service {
	out := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: name, Annotations: experimentAnnotations(e, t.Name), OwnerReferences: []metav1.OwnerReference{ownerReference(e)},
		},
		Spec: corev1.ServiceSpec{Selector: maps.Clone(selector)},
	}
	for _, c := range t.Template.Spec.Containers {
		for _, port := range c.Ports {
			out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{
				Name: port.Name, Protocol: port.Protocol, Port: port.ContainerPort, TargetPort: intstr.FromInt32(port.ContainerPort),
			})
		}
	}
	return out
}

func (r *Reconciler) deleteService(ctx context.Context, s *observation, name string) error {
	service := s.services[name]
	return client.IgnoreNotFound(r.Client.Delete(ctx, service, client.Preconditions{UID: &service.UID}))
}

// startRun creates the AnalysisRun of an analysis. An error that needs the user is the result of the analysis. All others are
// retried: an Experiment that failed because a connection was lost would abort the Rollout of a healthy revision.
func (r *Reconciler) startRun(ctx context.Context, s *observation, effect experiment.AnalysisRunStarted, status *argov1.ExperimentStatus) ([]release.Event, error) {
	request := analysis.RunRequest{
		Namespace: s.object.Namespace, Name: effect.Name,
		Templates:  []argov1.AnalysisTemplateRef{{TemplateName: effect.Analysis.TemplateName, ClusterScope: effect.Analysis.ClusterScope}},
		RunOptions: analysis.RunOptions{Args: effect.Args, DryRun: s.object.Spec.DryRun, MeasurementRetention: s.object.Spec.MeasurementRetention},
		Owner:      ownerReference(s.object),
	}
	if m := s.object.Spec.AnalysisRunMetadata; m != nil {
		request.Labels, request.Annotations = maps.Clone(m.Labels), maps.Clone(m.Annotations)
	}
	run, err := r.Launcher.StartRun(ctx, request)
	switch {
	case err == nil:
		return experiment.RecordRunStarted(status, effect.Analysis.Name, run.Name), nil
	case launch.NeedsUser(err):
		return experiment.RecordRunRejected(status, effect.Analysis.Name, err.Error()), nil
	case apierrors.IsForbidden(err): // retried, as no watch notifies of a permission
		return experiment.RecordRunForbidden(status, effect.Analysis.Name, reconciler.Message(err)), err
	default:
		return nil, err
	}
}

func (r *Reconciler) terminateRun(ctx context.Context, s *observation, name string) error {
	run := &argov1.AnalysisRun{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, run); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(r.patch(ctx, run, &argov1.AnalysisRun{}, map[string]any{"spec": map[string]any{"terminate": true}}))
}
