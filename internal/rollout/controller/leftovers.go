package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/traffic"
)

// A Rollout has no finalizer, so that it may be deleted while no process runs, or while one dies or hands over. What it had is
// found by the marks on users' objects, in caches that exist anyway: each process sees all of them when it starts, and each
// change of them later.

// marked are the objects that say that a Rollout of that name manages them. They must not be changed.
func (r *Reconciler) marked(ctx context.Context, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	services, err := r.managedServices(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, kind := range r.Marked {
		more, err := r.markedOf(ctx, kind, key)
		switch {
		case reconciler.NeedsUser(err), errors.Is(err, traffic.ErrUnreachable):
			continue // whoever has these objects cannot be asked; the watch of the kind notifies once it can
		case err != nil:
			return nil, err
		}
		services = append(services, more...)
	}
	return services, nil
}

func (r *Reconciler) markedOf(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	if kind == deploymentKind {
		return r.markedWorkloads(ctx, key)
	}
	return r.Applier.MarkedFor(ctx, kind, key)
}

// recorded is what objects keep of the routers of the Rollout that manages them.
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
					return "", nil, fmt.Errorf("read which routers %s %s had: %w", object.GetKind(), object.GetName(), err)
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

// leftovers restores what a Rollout had that was deleted while nobody watched.
func (r *Reconciler) leftovers(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
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

// managers are the Rollouts that versions of an object name as the one that manages it.
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
