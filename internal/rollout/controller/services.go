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

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/watching"
)

var serviceKind = corev1.SchemeGroupVersion.WithKind("Service")

// byManager is the index of Services by the Rollout that writes their selector.
const byManager = "managed-by"

func service() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(serviceKind)
	return object
}

// IndexServices lets caches find the Services that a Rollout manages without looking at all.
func IndexServices(ctx context.Context, indexer client.FieldIndexer) error {
	return indexManaged(ctx, indexer, service())
}

// indexManaged indexes objects by the Rollout whose mark they carry.
func indexManaged(ctx context.Context, indexer client.FieldIndexer, kind *unstructured.Unstructured) error {
	err := indexer.IndexField(ctx, kind, byManager, func(object client.Object) []string {
		if by := object.GetAnnotations()[argov1.ManagedByAnnotation]; by != "" {
			return []string{by}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index objects of kind %s by their Rollout: %w", kind.GetKind(), err)
	}
	return nil
}

// managedServices are those that say that the Rollout manages them, by name. They must not be changed.
func (r *Reconciler) managedServices(ctx context.Context, of types.NamespacedName) ([]*unstructured.Unstructured, error) {
	return r.managed(ctx, serviceKind, of)
}

// managed are the objects of an indexed kind that carry the mark of a Rollout, by name. They must not be changed.
func (r *Reconciler) managed(ctx context.Context, kind schema.GroupVersionKind, of types.NamespacedName) ([]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := r.Client.List(ctx, list, client.InNamespace(of.Namespace), client.MatchingFields{byManager: of.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the objects of kind %s that Rollout %s manages: %w", kind.Kind, of, err)
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

// lookAtServices finds those that the strategy names and those that say that the Rollout manages them.
func (r *Reconciler) lookAtServices(ctx context.Context, s *seen) error {
	managed, err := r.managedServices(ctx, s.key())
	if err != nil {
		return err
	}
	if err := r.lookForFormer(s, managed); err != nil {
		return err
	}
	record, names := s.record(), namesOf(managed)
	for _, name := range rollout.ServiceNames(s.spec.Strategy) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	s.snapshot.Services = map[string]rollout.Service{}
	for _, name := range names {
		s.things = append(s.things, watching.Object{Kind: serviceKind.GroupKind(), Namespace: s.object.Namespace, Name: name})
		found, err := r.getService(ctx, s.object.Namespace, name)
		if err != nil {
			return err
		}
		if found == nil {
			s.snapshot.Services[name] = rollout.Service{}
			continue
		}
		selector, _, _ := unstructured.NestedStringMap(found.Object, "spec", "selector")
		annotations := found.GetAnnotations()
		s.snapshot.Services[name] = rollout.Service{
			Found: true, Selector: selector, ManagedBy: annotations[argov1.ManagedByAnnotation], RecordOutdated: annotations[argov1.RoutedByAnnotation] != record,
		}
	}
	return nil
}

// getService reads one; nil where there is none.
func (r *Reconciler) getService(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	object := service()
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Service %s.%s: %w", name, namespace, err)
	default:
		return object, nil
	}
}

// selects makes a Service select the pods of one revision.
func (r *Reconciler) selects(ctx context.Context, s *seen, e rollout.ServiceSelects) (bool, error) {
	before, err := r.getService(ctx, s.object.Namespace, e.Service)
	if err != nil {
		return false, err
	}
	if before == nil {
		return false, fmt.Errorf("switch Service %s.%s: %w", e.Service, s.object.Namespace, reconciler.ErrChanged)
	}
	after := before.DeepCopy()
	if err := unstructured.SetNestedField(after.Object, e.Hash, "spec", "selector", argov1.PodTemplateHashLabel); err != nil {
		return false, fmt.Errorf("switch Service %s.%s: %w", e.Service, s.object.Namespace, err)
	}
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[argov1.ManagedByAnnotation] = s.object.Name
	if record := s.record(); record != "" {
		annotations[argov1.RoutedByAnnotation] = record
	} else {
		delete(annotations, argov1.RoutedByAnnotation)
	}
	after.SetAnnotations(annotations)
	return r.change(ctx, before, after)
}

// releaseService takes out of a Service what was put into it. One that is gone, or that another Rollout manages, is left.
func (r *Reconciler) releaseService(ctx context.Context, namespace, manager, name string) (bool, error) {
	before, err := r.getService(ctx, namespace, name)
	if err != nil || before == nil || before.GetAnnotations()[argov1.ManagedByAnnotation] != manager {
		return false, err
	}
	after := before.DeepCopy()
	unstructured.RemoveNestedField(after.Object, "spec", "selector", argov1.PodTemplateHashLabel)
	annotations := after.GetAnnotations()
	delete(annotations, argov1.ManagedByAnnotation)
	delete(annotations, argov1.RoutedByAnnotation)
	after.SetAnnotations(annotations)
	return r.change(ctx, before, after)
}
