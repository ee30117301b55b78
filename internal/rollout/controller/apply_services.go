package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
)

// selectPods makes a Service select the pods of one revision.
func (m managedObjects) selectPods(ctx context.Context, s *observation, e rollout.ServiceSelects) (bool, error) {
	before, err := m.getService(ctx, s.object.Namespace, e.Service)
	if err != nil {
		return false, err
	}
	if before == nil {
		return false, fmt.Errorf("set the selector of Service %s.%s: %w", e.Service, s.object.Namespace, reconciler.ErrObjectChanged)
	}
	after := before.DeepCopy()
	if err := unstructured.SetNestedField(after.Object, e.Hash, "spec", "selector", argov1.PodTemplateHashLabel); err != nil {
		return false, fmt.Errorf("set the selector of Service %s.%s: %w", e.Service, s.object.Namespace, err)
	}
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[argov1.ManagedByAnnotation] = s.object.Name
	if record := s.serviceRecord(); record != "" {
		annotations[argov1.RoutedByAnnotation] = record
	} else {
		delete(annotations, argov1.RoutedByAnnotation)
	}
	after.SetAnnotations(annotations)
	return writeChanges(ctx, m.client, before, after)
}

// restoreService removes the fields that Serin added to a Service. A Service that another Rollout manages is not changed.
func (m managedObjects) restoreService(ctx context.Context, namespace, manager, name string) (bool, error) {
	before, err := m.getService(ctx, namespace, name)
	if err != nil || before == nil || before.GetAnnotations()[argov1.ManagedByAnnotation] != manager {
		return false, err
	}
	after := before.DeepCopy()
	unstructured.RemoveNestedField(after.Object, "spec", "selector", argov1.PodTemplateHashLabel)
	annotations := after.GetAnnotations()
	delete(annotations, argov1.ManagedByAnnotation)
	delete(annotations, argov1.RoutedByAnnotation)
	after.SetAnnotations(annotations)
	return writeChanges(ctx, m.client, before, after)
}
