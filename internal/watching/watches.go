package watching

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Watches starts one watch for each kind that releases depend on. A kind that not every release uses is watched from the first
// release that uses it, so that users need not install the CRDs of providers that they do not use.
type Watches struct {
	Controller controller.Controller
	Cache      cache.Cache
	Mapper     meta.RESTMapper
	// AffectedReleases returns the releases to requeue because of a change. before is nil for a new object, after for a deleted one.
	AffectedReleases func(ctx context.Context, kind schema.GroupKind, before, after client.Object) []reconcile.Request

	mu      sync.Mutex
	started map[schema.GroupKind]bool
}

// StartInstalled starts a watch for each of the kinds that is installed.
func (w *Watches) StartInstalled(kinds []schema.GroupVersionKind) error {
	for _, kind := range kinds {
		if w.isStarted(kind.GroupKind()) {
			continue
		}
		if _, err := w.Mapper.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			continue // not installed: the observation reports it, and the next reconciliation tries again
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		if err := w.Start(object, kind.GroupKind()); err != nil {
			return err
		}
	}
	return nil
}

func (w *Watches) isStarted(kind schema.GroupKind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.started[kind]
}

// Start starts the watch of a kind unless it is started already.
func (w *Watches) Start(object client.Object, kind schema.GroupKind) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started[kind] {
		return nil
	}
	if err := w.Controller.Watch(source.Kind(w.Cache, object, w.newHandler(kind))); err != nil {
		return fmt.Errorf("watch %s: %w", kind, err)
	}
	if w.started == nil {
		w.started = map[schema.GroupKind]bool{}
	}
	w.started[kind] = true
	return nil
}

// newHandler returns a handler that requeues the releases that a change affects.
func (w *Watches) newHandler(kind schema.GroupKind) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, before, after client.Object, q queue) {
		for _, request := range w.AffectedReleases(ctx, kind, before, after) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, nil, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, nil, q) },
	}
}
