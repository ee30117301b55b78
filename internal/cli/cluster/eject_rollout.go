package cluster

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/eject"
)

// ejectedAnnotation on a Deployment that was created for a Rollout contains the UID of the Rollout and its stable revision.
const ejectedAnnotation = "serin.dev/ejected-from"

func (e *Ejection) observeRollout(ctx context.Context, reader *cachedReader, object *argov1.Rollout, controllers controllers) (*eject.Rollout, error) {
	s := e.session
	observed, err := s.observeRollout(ctx, reader, object, e.flags)
	if err != nil {
		return nil, err
	}
	if len(observed.Assumed) > 0 {
		return nil, e.accessDenied(observed.Unread)
	}
	now := s.Clock.Now()
	out := &eject.Rollout{Rollout: *observed, Controller: controllers.summary([]client.Object{object}, now), ControllerSpecified: controllers.flagsSpecified}
	out.OtherController = controllers.otherControllerFor(ctx, object, nil, now)
	if err := e.observeDeployment(ctx, out); err != nil {
		return nil, e.describe("read the Deployment of", err)
	}
	if err := e.observeServices(ctx, reader, out); err != nil {
		return nil, e.describe("read the endpoints of", err)
	}
	var scalers autoscalingv2.HorizontalPodAutoscalerList
	if err := s.Client.List(ctx, &scalers, client.InNamespace(object.Namespace)); err != nil && !isForbidden(err) {
		return nil, e.describe("list the autoscalers of", err)
	}
	for _, scaler := range scalers.Items {
		if ref := scaler.Spec.ScaleTargetRef; ref.Kind == argov1.RolloutKind && ref.Name == object.Name {
			out.Scalers = append(out.Scalers, scaler.Name)
		}
	}
	return out, nil
}

// observeDeployment observes the Deployment that is to serve: the referenced one, or one with the name of the Rollout.
func (e *Ejection) observeDeployment(ctx context.Context, r *eject.Rollout) error {
	ref := r.Object.Spec.WorkloadRef
	r.Deployment.Name = r.Object.Name
	r.Deployment.PodLabels = labels.Merge(r.Snapshot.Spec.Template.Labels, servingMetadata(r.Object).Labels)
	if ref != nil {
		r.Deployment.Name = ref.Name
	}
	var d appsv1.Deployment
	err := e.session.Client.Get(ctx, client.ObjectKey{Namespace: r.Object.Namespace, Name: r.Deployment.Name}, &d)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	status := d.Status
	r.Deployment.PodLabels = d.Spec.Template.Labels
	r.Deployment.Found, r.Deployment.Replicas, r.Deployment.Available = true, replicas, status.AvailableReplicas
	r.Deployment.Foreign = ref == nil && d.Annotations[ejectedAnnotation] != ejectedFrom(r)
	r.Deployment.Ready = status.ObservedGeneration >= d.Generation && status.UpdatedReplicas == replicas && status.AvailableReplicas == replicas && status.Replicas == replicas
	return nil
}

// ejectedFrom identifies the stable revision of a Rollout.
func ejectedFrom(r *eject.Rollout) string {
	return string(r.Object.UID) + "/" + r.Snapshot.Status.StableRS
}

// servingMetadata returns the metadata that the pods of the stable revision have because of their role.
func servingMetadata(r *argov1.Rollout) argov1.PodTemplateMetadata {
	var metadata *argov1.PodTemplateMetadata
	switch strategy := r.Spec.Strategy; {
	case strategy.Canary != nil:
		metadata = strategy.Canary.StableMetadata
	case strategy.BlueGreen != nil:
		metadata = strategy.BlueGreen.ActiveMetadata
	}
	return ptr.Deref(metadata, argov1.PodTemplateMetadata{})
}

// stablePodLabels returns the labels of the stable pods: with those of their role, which pods retain when the strategy no longer
// specifies them, and without the hash, by which the Services that Serin manages select them until it restores these Services.
func stablePodLabels(ctx context.Context, reader *cachedReader, r *eject.Rollout) (labels.Set, error) {
	out := labels.Merge(r.Snapshot.Spec.Template.Labels, servingMetadata(r.Object).Labels)
	sets, err := replicaSetsOf(ctx, reader, r.Object)
	for i := range sets {
		if sets[i].Labels[argov1.PodTemplateHashLabel] == r.Snapshot.Status.StableRS {
			out = labels.Merge(out, sets[i].Spec.Template.Labels)
		}
	}
	delete(out, argov1.PodTemplateHashLabel)
	return out, err
}

// observeServices observes the Services that select the stable pods: those that do not select the pods of the Deployment, and the
// first of the others that does not have all of these pods as endpoints.
func (e *Ejection) observeServices(ctx context.Context, reader *cachedReader, r *eject.Rollout) error {
	podLabels, err := stablePodLabels(ctx, reader, r)
	if err != nil {
		return err
	}
	var services corev1.ServiceList
	if err := e.session.Client.List(ctx, &services, client.InNamespace(r.Object.Namespace)); err != nil {
		return err
	}
	for _, service := range services.Items {
		selector := labels.SelectorFromSet(service.Spec.Selector)
		switch {
		case len(service.Spec.Selector) == 0 || !selector.Matches(podLabels):
		case !selector.Matches(labels.Set(r.Deployment.PodLabels)):
			r.LostServices = append(r.LostServices, service.Name)
		case r.MissingEndpoints == "":
			if r.MissingEndpoints, err = e.missingEndpoints(ctx, r, service.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// missingEndpoints describes a Service that does not have all pods of the Rollout and of the Deployment as endpoints; empty: it has.
func (e *Ejection) missingEndpoints(ctx context.Context, r *eject.Rollout, service string) (string, error) {
	wanted := int(r.Deployment.Available)
	for _, rs := range r.Snapshot.ReplicaSets {
		wanted += int(rs.Available)
	}
	var slices discoveryv1.EndpointSliceList
	if err := e.session.Client.List(ctx, &slices, client.InNamespace(r.Object.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return "", err
	}
	if ready := readyEndpoints(slices.Items); ready < wanted {
		return fmt.Sprintf("Service %s has %d of %d", service, ready, wanted), nil
	}
	return "", nil
}

// readyEndpoints counts the ready endpoints. A Service with two address families has each of them twice.
func readyEndpoints(all []discoveryv1.EndpointSlice) int {
	counts := map[discoveryv1.AddressType]int{}
	for _, slice := range all {
		for _, endpoint := range slice.Endpoints {
			if ready := endpoint.Conditions.Ready; ready == nil || *ready {
				counts[slice.AddressType]++
			}
		}
	}
	most := 0
	for _, count := range counts {
		most = max(most, count)
	}
	return most
}

func (e *Ejection) performForRollout(ctx context.Context, step eject.Step) error {
	object, ok := e.observed.(*argov1.Rollout)
	if !ok || step.Waits {
		return nil
	}
	patch := func(spec map[string]any) error {
		return e.session.applyChanges(ctx, object, changes{object: map[string]any{"spec": spec}})
	}
	switch step.Action {
	case eject.KeepWorkload:
		return patch(map[string]any{"workloadRef": map[string]any{"scaleDown": string(argov1.ScaleDownNever)}})
	case eject.CreateDeployment:
		return e.createDeployment(ctx, object)
	case eject.ScaleDeployment:
		return e.scaleDeployment(ctx, object)
	case eject.ReleaseServices:
		stored, err := e.storedRollout(ctx)
		if err != nil {
			return err
		}
		strategy, _, _ := unstructured.NestedMap(stored.Object, "spec", "strategy")
		change := eject.StrategyWithoutServices(strategy)
		if change == nil {
			return nil // it has changed since
		}
		return patch(map[string]any{"strategy": change})
	default:
		return nil
	}
}

// storedRollout reads the Rollout with all its fields, including those that this version does not know.
func (e *Ejection) storedRollout(ctx context.Context) (*unstructured.Unstructured, error) {
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind))
	return stored, e.session.Client.Get(ctx, e.name, stored)
}

// createDeployment creates a Deployment with the template, selector and replicas of the Rollout. Its pods also have the metadata of
// the stable ones, because Services may select them by it.
func (e *Ejection) createDeployment(ctx context.Context, object *argov1.Rollout) error {
	stored, err := e.storedRollout(ctx)
	if err != nil {
		return err
	}
	if stored.GetResourceVersion() != object.GetResourceVersion() {
		return nil // it may have another template now
	}
	deployment := &unstructured.Unstructured{Object: map[string]any{}}
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	deployment.SetNamespace(e.name.Namespace)
	deployment.SetName(e.name.Name)
	podLabels := stored.GetLabels()
	delete(podLabels, argov1.InstanceIDLabel)
	deployment.SetLabels(podLabels)
	status, _, _ := unstructured.NestedString(stored.Object, "status", "stableRS")
	deployment.SetAnnotations(map[string]string{ejectedAnnotation: string(e.uid) + "/" + status})
	from, _, _ := unstructured.NestedMap(stored.Object, "spec")
	spec := map[string]any{}
	for field, value := range from {
		if slices.Contains([]string{"replicas", "selector", "template", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"}, field) {
			spec[field] = value
		}
	}
	role := servingMetadata(object)
	for field, values := range map[string]map[string]string{"labels": role.Labels, "annotations": role.Annotations} {
		for key, value := range values {
			if err := unstructured.SetNestedField(spec, value, "template", "metadata", field, key); err != nil {
				return err
			}
		}
	}
	deployment.Object["spec"] = spec
	if err := e.session.Client.Create(ctx, deployment); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func (e *Ejection) scaleDeployment(ctx context.Context, object *argov1.Rollout) error {
	name := object.Name
	if ref := object.Spec.WorkloadRef; ref != nil {
		name = ref.Name
	}
	var d appsv1.Deployment
	if err := e.session.Client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: name}, &d); err != nil {
		return err
	}
	replicas := int32(1)
	if object.Spec.Replicas != nil {
		replicas = *object.Spec.Replicas
	}
	return e.session.applyChanges(ctx, &d, changes{object: map[string]any{"spec": map[string]any{"replicas": replicas}}})
}
