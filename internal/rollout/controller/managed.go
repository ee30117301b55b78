package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var serviceKind = corev1.SchemeGroupVersion.WithKind("Service")

func newService() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(serviceKind)
	return object
}

// managedObjects reads and writes the Services and the Deployments of users that carry the mark of the Rollout that manages them.
type managedObjects struct {
	client client.Client
}

// managedServices returns the Services with the mark of a Rollout, sorted by name. The caller must not modify them.
func (m managedObjects) managedServices(ctx context.Context, rollout types.NamespacedName) ([]*unstructured.Unstructured, error) {
	return m.managed(ctx, serviceKind, rollout)
}

// managed returns the objects of an indexed kind with the mark of a Rollout, sorted by name. The caller must not modify them.
func (m managedObjects) managed(ctx context.Context, kind schema.GroupVersionKind, rollout types.NamespacedName) ([]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := m.client.List(ctx, list, client.InNamespace(rollout.Namespace), client.MatchingFields{byManager: rollout.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the objects of kind %s that Rollout %s manages: %w", kind.Kind, rollout, err)
	}
	var objects []*unstructured.Unstructured
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects, nil
}

func namesOf(objects []*unstructured.Unstructured) []string {
	var names []string
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	return names
}

// getService returns a Service; nil if it does not exist.
func (m managedObjects) getService(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	object := newService()
	err := m.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Service %s.%s: %w", name, namespace, err)
	default:
		return object, nil
	}
}

// markedWorkloads returns the Deployments that a Rollout of that name has scaled down. The caller must not modify them.
func (m managedObjects) markedWorkloads(ctx context.Context, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	return m.managed(ctx, deploymentKind, key)
}
