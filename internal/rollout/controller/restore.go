package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// A Rollout has no finalizer, so it may be deleted while no process runs, or while a process crashes or loses its leadership.
// The objects that it managed are found by their marks, in caches that exist anyway: a process reads all marked objects when it
// starts, and is notified of each change later.

// restorer restores the objects of users after the deletion of the Rollout that managed them.
type restorer struct {
	*Observer
	managedObjects

	Clock    clock.PassiveClock
	reporter reporter
	// forget drops the state of a Rollout.
	forget func(types.NamespacedName)
	// otherController returns the sign of another controller that acts on a release.
	otherController func(context.Context, types.NamespacedName, time.Time) (othercontroller.Sign, error)
}

// reconcileGone restores the objects of a Rollout that no longer exists.
func (r *restorer) reconcileGone(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	if err := r.restoreDeleted(ctx, key, ""); err != nil {
		return reconcile.Result{}, err
	}
	return r.restoreLeftovers(ctx, key)
}

// restoreDeleted restores the objects of a Rollout whose deletion this process observed: Services select the pods of all
// revisions again, and routes are those of their users. currentUID is the UID of the Rollout that has the name now; empty:
// there is none.
func (r *restorer) restoreDeleted(ctx context.Context, key types.NamespacedName, currentUID types.UID) error {
	deleted := r.memory.deletedRollout(key)
	if deleted == nil {
		if currentUID == "" {
			r.forget(key)
		}
		return nil
	}
	stored, err := r.storedUID(ctx, key)
	if err != nil {
		return err
	}
	if deleted.UID == currentUID || deleted.UID == stored {
		r.memory.forgetDeleted(key) // it was not deleted: only the selector of this process no longer matches it
		if currentUID == "" {
			r.forget(key) // another controller serves it
		}
		return nil
	}
	if stored == "" { // a new Rollout of the name continues with these objects, even if the cache does not have it yet
		if err := r.restoreObjects(ctx, deleted); err != nil {
			return fmt.Errorf("restore the objects of Rollout %s: %w", key, err)
		}
	}
	r.reporter.record(ctx, deleted, deletedEvent(deleted))
	r.memory.forgetDeleted(key)
	r.forget(key)
	return nil
}

// storedUID returns the UID of the Rollout that the API server has under a name, and "" if it has none: a Rollout that is
// missing in the cache may only be outside the selector of this process, or may have been recreated a moment ago.
func (r *restorer) storedUID(ctx context.Context, key types.NamespacedName) (types.UID, error) {
	stored := &argov1.Rollout{}
	if err := r.APIReader.Get(ctx, key, stored); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read Rollout %s from the API server: %w", key, err)
	}
	return stored.UID, nil
}

// restoreLeftovers restores the objects of a Rollout that was deleted while no process ran.
func (r *restorer) restoreLeftovers(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	marked, err := r.markedObjects(ctx, key)
	if err != nil || len(marked) == 0 {
		return reconcile.Result{}, err
	}
	defer r.forget(key)
	switch err := r.APIReader.Get(ctx, key, &argov1.Rollout{}); {
	case err == nil:
		return reconcile.Result{}, nil // another controller serves it, or the cache does not have it yet
	case !apierrors.IsNotFound(err):
		return reconcile.Result{}, fmt.Errorf("get Rollout %s, which manages %s %s: %w", key, marked[0].GetKind(), marked[0].GetName(), err)
	}
	began := r.Clock.Now()
	sign, err := r.otherController(ctx, key, began)
	if err != nil {
		return reconcile.Result{}, err
	}
	if sign.Text != "" {
		return reconcile.Result{RequeueAfter: reconciler.RequeueDelay(began, watching.NextCheck(sign, key, began))}, nil
	}
	deleted := &argov1.Rollout{}
	deleted.Namespace, deleted.Name, deleted.Status.Serin = key.Namespace, key.Name, &argov1.SerinStatus{}
	if deleted.UID, deleted.Status.Serin.Routed, err = readRecords(marked); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.restoreObjects(ctx, deleted); err != nil {
		return reconcile.Result{}, fmt.Errorf("restore the objects of Rollout %s, which no longer exists: %w", key, err)
	}
	log.FromContext(ctx).Info("Restored the Services and routes of a Rollout that no longer exists")
	return reconcile.Result{}, nil
}

// restoreObjects restores the routes, the workloads and the Services of a deleted Rollout. Services come last: if this process
// crashes, their marks let another one continue.
func (r *restorer) restoreObjects(ctx context.Context, deleted *argov1.Rollout) error {
	managed, err := r.managedServices(ctx, client.ObjectKeyFromObject(deleted))
	if err != nil {
		return err
	}
	former, err := r.formerRoutersOf(deleted, managed) // their objects may not be restored yet
	if err != nil {
		return err
	}
	for _, named := range former {
		if err := r.restoreRoutes(ctx, withFormerStrategy(deleted, named)); err != nil {
			return err
		}
	}
	if err := r.restoreRoutes(ctx, deleted); err != nil {
		return err
	}
	if slices.Contains(r.MarkedKinds, deploymentKind) {
		workloads, err := r.markedWorkloads(ctx, client.ObjectKeyFromObject(deleted))
		if err != nil {
			return err
		}
		for _, name := range namesOf(workloads) {
			if _, err := r.restoreWorkload(ctx, deleted, name); err != nil {
				return err
			}
		}
	}
	services := namesOf(managed)
	for _, name := range rollout.ServiceNames(deleted.Spec.Strategy) { // an old list may not have them yet
		if !slices.Contains(services, name) {
			services = append(services, name)
		}
	}
	for _, name := range services {
		if _, err := r.restoreService(ctx, deleted.Namespace, deleted.Name, name); err != nil {
			return err
		}
	}
	return nil
}

// restoreRoutes restores the users' routes of a Rollout.
func (r *restorer) restoreRoutes(ctx context.Context, deleted *argov1.Rollout) error {
	routers, err := r.routersOf(deleted)
	if err != nil {
		return nil //nolint:nilerr // an unsupported router has no objects of Serin
	}
	for _, router := range routers {
		err := r.Applier.Restore(ctx, router.Renderer, router.Target(deleted, "", ""))
		if err != nil && !errors.Is(err, traffic.ErrNotInstalled) && !errors.Is(err, traffic.ErrCrossNamespace) {
			return err
		}
	}
	return nil
}

// markedObjects returns the objects with the mark of a Rollout of that name. The caller must not modify them.
func (r *restorer) markedObjects(ctx context.Context, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	services, err := r.managedServices(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, kind := range r.MarkedKinds {
		more, err := r.markedObjectsOfKind(ctx, kind, key)
		switch {
		case reconciler.NeedsUser(err), errors.Is(err, traffic.ErrUnreachable):
			continue // their API server cannot be read; the watch of the kind notifies when it can
		case err != nil:
			return nil, err
		}
		services = append(services, more...)
	}
	return services, nil
}

func (r *restorer) markedObjectsOfKind(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	if kind == deploymentKind {
		return r.markedWorkloads(ctx, key)
	}
	return r.Applier.MarkedFor(ctx, kind, key)
}

// readRecords returns the UID and the routers of the Rollout that marked objects record.
func readRecords(marked []*unstructured.Unstructured) (uid types.UID, routed []argov1.RoutedStatus, err error) {
	for _, object := range marked {
		record, ok := traffic.ReadRecord(object.GetAnnotations())
		if !ok {
			continue
		}
		uid = record.UID
		for i := range record.Routed {
			found := false
			for j := range routed {
				same, err := sameRouting(routed[j], &record.Routed[i])
				if err != nil {
					return "", nil, fmt.Errorf("read the routers that %s %s records: %w", object.GetKind(), object.GetName(), err)
				}
				found = found || same
			}
			if !found {
				routed = append(routed, record.Routed[i])
			}
		}
	}
	return uid, routed, nil
}

// managerRequests returns requests for the Rollouts whose marks the versions of an object carry.
func managerRequests(versions ...client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, object := range versions {
		if object == nil {
			continue
		}
		manager := object.GetAnnotations()[argov1.ManagedByAnnotation]
		request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: manager}}
		if manager != "" && !slices.Contains(out, request) {
			out = append(out, request)
		}
	}
	return out
}
