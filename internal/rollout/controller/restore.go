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
)

// A Rollout has no finalizer, so it may be deleted while no process runs, or while a process crashes or loses its leadership. The objects
// that it managed are found by their marks, in caches that exist anyway: a process reads all marked objects when it starts, and is
// notified of each change later.

// restorer restores the objects of users after the deletion of the Rollout that managed them.
type restorer struct {
	*Observer
	managedObjects

	Clock    clock.PassiveClock
	reporter reporter
	// forget drops everything about a Rollout.
	forget func(types.NamespacedName)
	// otherController returns the sign of another controller that acts on a release.
	otherController func(context.Context, types.NamespacedName, time.Time) (othercontroller.Sign, error)
}

// reconcileGone restores the objects of a Rollout that does not exist anymore.
func (r *restorer) reconcileGone(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	if err := r.gone(ctx, key, ""); err != nil {
		return reconcile.Result{}, err
	}
	return r.leftovers(ctx, key)
}

// gone restores the objects of a Rollout that this process has seen deleted: Services select the pods of all revisions again, and routes
// are those of their users. now is the UID of the Rollout that has the name now; empty: there is none.
func (r *restorer) gone(ctx context.Context, key types.NamespacedName, now types.UID) error {
	was := r.memory.deleted(key)
	if was == nil {
		if now == "" {
			r.forget(key)
		}
		return nil
	}
	stored, err := r.storedUID(ctx, key)
	if err != nil {
		return err
	}
	if was.UID == now || was.UID == stored {
		r.memory.settled(key) // it was not deleted: only the selector of this process no longer matches it
		if now == "" {
			r.forget(key) // another controller serves it
		}
		return nil
	}
	if stored == "" { // a new Rollout of the name continues with these objects, even if the cache does not have it yet
		if err := r.giveBack(ctx, was); err != nil {
			return fmt.Errorf("restore the objects of Rollout %s: %w", key, err)
		}
	}
	r.reporter.record(ctx, was, removed(was))
	r.memory.settled(key)
	r.forget(key)
	return nil
}

// storedUID returns the UID of the Rollout that the API server has under a name, and "" if it has none: a Rollout that is
// missing in the cache may only be outside the selector of this process, or may have been recreated a moment ago.
func (r *restorer) storedUID(ctx context.Context, key types.NamespacedName) (types.UID, error) {
	stored := &argov1.Rollout{}
	if err := r.Reader.Get(ctx, key, stored); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read Rollout %s from the API server: %w", key, err)
	}
	return stored.UID, nil
}

// leftovers restores the objects of a Rollout that was deleted while no process ran.
func (r *restorer) leftovers(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	marked, err := r.marked(ctx, key)
	if err != nil || len(marked) == 0 {
		return reconcile.Result{}, err
	}
	defer r.forget(key)
	switch err := r.Reader.Get(ctx, key, &argov1.Rollout{}); {
	case err == nil:
		return reconcile.Result{}, nil // another controller serves it, or the cache does not have it yet
	case !apierrors.IsNotFound(err):
		return reconcile.Result{}, fmt.Errorf("look for Rollout %s, which manages %s %s: %w", key, marked[0].GetKind(), marked[0].GetName(), err)
	}
	began := r.Clock.Now()
	sign, err := r.otherController(ctx, key, began)
	if err != nil || sign.Text != "" {
		return reconcile.Result{RequeueAfter: reconciler.WakeIn(began, sign.Until)}, err
	}
	was := &argov1.Rollout{}
	was.Namespace, was.Name, was.Status.Serin = key.Namespace, key.Name, &argov1.SerinStatus{}
	if was.UID, was.Status.Serin.Routed, err = recorded(marked); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.giveBack(ctx, was); err != nil {
		return reconcile.Result{}, fmt.Errorf("restore what Rollout %s had, which does not exist any more: %w", key, err)
	}
	log.FromContext(ctx).Info("Restored the Services and routes of a Rollout that does not exist any more")
	return reconcile.Result{}, nil
}

// giveBack restores the routes, the workloads and the Services of a deleted Rollout. Services come last: if this process crashes, their
// marks let another one continue.
func (r *restorer) giveBack(ctx context.Context, was *argov1.Rollout) error {
	managed, err := r.managedServices(ctx, client.ObjectKeyFromObject(was))
	if err != nil {
		return err
	}
	former, err := r.formerOf(was, managed) // their objects may not have been given back yet
	if err != nil {
		return err
	}
	for _, named := range former {
		if err := r.restore(ctx, as(was, named)); err != nil {
			return err
		}
	}
	if err := r.restore(ctx, was); err != nil {
		return err
	}
	if slices.Contains(r.Marked, deploymentKind) {
		workloads, err := r.markedWorkloads(ctx, client.ObjectKeyFromObject(was))
		if err != nil {
			return err
		}
		for _, name := range namesOf(workloads) {
			if _, err := r.releaseWorkload(ctx, was, name); err != nil {
				return err
			}
		}
	}
	services := namesOf(managed)
	for _, name := range rollout.ServiceNames(was.Spec.Strategy) { // an old list may not have them yet
		if !slices.Contains(services, name) {
			services = append(services, name)
		}
	}
	for _, name := range services {
		if _, err := r.releaseService(ctx, was.Namespace, was.Name, name); err != nil {
			return err
		}
	}
	return nil
}

// restore restores the users' routes of a Rollout.
func (r *restorer) restore(ctx context.Context, was *argov1.Rollout) error {
	routers, err := r.routersOf(was)
	if err != nil {
		return nil //nolint:nilerr // an unsupported router has no objects of Serin
	}
	for _, router := range routers {
		if err := r.Applier.Restore(ctx, router.Renderer, router.Target(was, "", "")); err != nil && !errors.Is(err, traffic.ErrNotInstalled) {
			return err
		}
	}
	return nil
}

// marked returns the objects with the mark of a Rollout of that name. The caller must not modify them.
func (r *restorer) marked(ctx context.Context, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	services, err := r.managedServices(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, kind := range r.Marked {
		more, err := r.markedOf(ctx, kind, key)
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

func (r *restorer) markedOf(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	if kind == deploymentKind {
		return r.markedWorkloads(ctx, key)
	}
	return r.Applier.MarkedFor(ctx, kind, key)
}

// recorded returns the UID and the routers of the Rollout that marked objects record.
func recorded(marked []*unstructured.Unstructured) (uid types.UID, routed []argov1.RoutedStatus, err error) {
	for _, object := range marked {
		record, ok := traffic.ReadRecord(object.GetAnnotations())
		if !ok {
			continue
		}
		uid = record.UID
		for i := range record.Routed {
			known := false
			for j := range routed {
				same, err := sameRouting(routed[j], &record.Routed[i])
				if err != nil {
					return "", nil, fmt.Errorf("read the routers that %s %s records: %w", object.GetKind(), object.GetName(), err)
				}
				known = known || same
			}
			if !known {
				routed = append(routed, record.Routed[i])
			}
		}
	}
	return uid, routed, nil
}

// managers returns requests for the Rollouts whose mark versions of an object carry.
func managers(versions ...client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, object := range versions {
		if object == nil {
			continue
		}
		by := object.GetAnnotations()[argov1.ManagedByAnnotation]
		request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: by}}
		if by != "" && !slices.Contains(out, request) {
			out = append(out, request)
		}
	}
	return out
}
