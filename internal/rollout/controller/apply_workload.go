package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
)

// scaleWorkload sets the replicas of the Deployment that the Rollout refers to.
func (m managedObjects) scaleWorkload(ctx context.Context, s *observation, e rollout.WorkloadScaled) (bool, error) {
	if s.workload == nil || s.workload.object == nil || s.workload.object.GroupVersionKind() != deploymentKind {
		return false, fmt.Errorf("scale the workload of Rollout %s: %w", s.key(), reconciler.ErrObjectChanged)
	}
	after := s.workload.object.DeepCopy()
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	// A user may have scaled it up since it was scaled down first; fewer replicas may be the result of a part of the scale-down.
	if current := int64(s.snapshot.Workload.SpecReplicas); current > recordedReplicas(annotations) {
		annotations[argov1.ReplicasBeforeAnnotation] = strconv.FormatInt(current, 10)
	}
	annotations[argov1.ManagedByAnnotation] = s.object.Name
	after.SetAnnotations(annotations)
	if err := unstructured.SetNestedField(after.Object, int64(e.Pods), "spec", "replicas"); err != nil {
		return false, errors.Join(reconciler.ErrObjectChanged, err)
	}
	changed, err := writeChanges(ctx, m.client, s.workload.object, after)
	if err == nil {
		s.workload.object = after
	}
	return changed, err
}

// recordedReplicas returns the replicas that a Deployment had before it was scaled down; 0: none are recorded.
func recordedReplicas(annotations map[string]string) int64 {
	replicas, err := strconv.ParseInt(annotations[argov1.ReplicasBeforeAnnotation], 10, 32)
	if err != nil {
		return 0
	}
	return replicas
}

// restoreWorkload restores the replicas of a Deployment: those that it had, or those of the Rollout if these are more. If a
// user has scaled it up further, it is not scaled down.
func (m managedObjects) restoreWorkload(ctx context.Context, owner *argov1.Rollout, name string) (bool, error) {
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(deploymentKind)
	switch err := m.client.Get(ctx, client.ObjectKey{Namespace: owner.Namespace, Name: name}, before); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get Deployment %s.%s: %w", name, owner.Namespace, err)
	}
	annotations := before.GetAnnotations()
	if annotations[argov1.ManagedByAnnotation] != owner.Name {
		return false, nil
	}
	after := before.DeepCopy()
	replicas := recordedReplicas(annotations)
	if owner.Spec.Replicas != nil {
		replicas = max(replicas, int64(*owner.Spec.Replicas))
	}
	if current, found, _ := unstructured.NestedInt64(before.Object, "spec", "replicas"); found && current < replicas {
		if err := unstructured.SetNestedField(after.Object, replicas, "spec", "replicas"); err != nil {
			return false, errors.Join(reconciler.ErrObjectChanged, err)
		}
	}
	traffic.RemoveAnnotations(after, argov1.ManagedByAnnotation, argov1.ReplicasBeforeAnnotation)
	return writeChanges(ctx, m.client, before, after)
}
