package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// byOwner is the index of objects by the UID of their controller; objects without a controller have the key noOwner.
const (
	byOwner = "controller"
	noOwner = "none"
)

// IndexOwners lets caches find the objects that a Rollout controls without a scan.
func IndexOwners(ctx context.Context, indexer client.FieldIndexer) error {
	for _, object := range []client.Object{&appsv1.ReplicaSet{}, &argov1.AnalysisRun{}, &argov1.Experiment{}} {
		if err := indexer.IndexField(ctx, object, byOwner, ownerOf); err != nil {
			return fmt.Errorf("index %T by owner: %w", object, err)
		}
	}
	return nil
}

func ownerOf(object client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return []string{string(owner.UID)}
	}
	return []string{noOwner}
}

// OwnedBy are the options of a list of the objects that a Rollout controls. The caller must not modify the listed objects.
func OwnedBy(object *argov1.Rollout) []client.ListOption {
	return []client.ListOption{client.InNamespace(object.Namespace), client.MatchingFields{byOwner: string(object.UID)}, client.UnsafeDisableDeepCopy}
}

// byManager is the index of Services by the Rollout that writes their selector.
const byManager = "managed-by"

// IndexServices lets caches find the Services that a Rollout manages without a scan.
func IndexServices(ctx context.Context, indexer client.FieldIndexer) error {
	return indexManaged(ctx, indexer, newService())
}

// indexManaged indexes objects by the Rollout whose mark they carry.
func indexManaged(ctx context.Context, indexer client.FieldIndexer, kind *unstructured.Unstructured) error {
	err := indexer.IndexField(ctx, kind, byManager, func(object client.Object) []string {
		if manager := object.GetAnnotations()[argov1.ManagedByAnnotation]; manager != "" {
			return []string{manager}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index objects of kind %s by their Rollout: %w", kind.GetKind(), err)
	}
	return nil
}

// byWorkload is the index of Rollouts by the workload that they refer to.
const byWorkload = "spec.workloadRef"

// IndexWorkloads lets caches find the Rollouts that refer to a workload without a scan.
func IndexWorkloads(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &argov1.Rollout{}, byWorkload, func(object client.Object) []string {
		if of, ok := object.(*argov1.Rollout); ok && of.Spec.WorkloadRef != nil {
			return []string{of.Spec.WorkloadRef.Kind + "/" + of.Spec.WorkloadRef.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Rollouts by workload: %w", err)
	}
	return nil
}

// IndexMarkedWorkloads lets caches find the Deployments that a Rollout has scaled down without a scan. It starts a watch of
// Deployments, so call it only if Observer.Marked contains their kind.
func IndexMarkedWorkloads(ctx context.Context, indexer client.FieldIndexer) error {
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(deploymentKind)
	return indexManaged(ctx, indexer, kind)
}

// RolloutsReferringTo returns the Rollouts that refer to a workload.
func RolloutsReferringTo(ctx context.Context, reader client.Reader, namespace, kind, name string) ([]argov1.Rollout, error) {
	var all argov1.RolloutList
	err := reader.List(ctx, &all, client.InNamespace(namespace), client.MatchingFields{byWorkload: kind + "/" + name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the Rollouts that refer to %s %s.%s: %w", kind, name, namespace, err)
	}
	return all.Items, nil
}
