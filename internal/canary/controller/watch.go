package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// passTimeout bounds one pass: nothing in it waits for anything but the API server.
const passTimeout = time.Minute

// Options of the controller.
type Options struct {
	// Workers is how many passes may run at once; zero means ten.
	Workers int
	// Routes is the cluster that has the route objects; nil means the manager's.
	Routes cluster.Cluster
}

// Queue lets others bring a release back. It is nobody's until the controller has started, and then takes keys.
type Queue struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Add brings a release back at once. Before the start it does nothing: the first pass comes by itself.
func (q *Queue) Add(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue != nil {
		q.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// Start takes the controller's queue. It implements source.Source.
func (q *Queue) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = queue
	return nil
}

// Add makes the manager run the reconciler. queue must be the one that the prober's answers go to.
func (r *Reconciler) Add(mgr manager.Manager, queue *Queue, o Options) error {
	workers := o.Workers
	if workers <= 0 {
		workers = 10
	}
	c, err := controller.New("canary", mgr, controller.Options{
		Reconciler: r, MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout,
	})
	if err != nil {
		return fmt.Errorf("make the controller of Canaries: %w", err)
	}
	w := &watches{controller: c, cache: mgr.GetCache(), mapper: mgr.GetRESTMapper(), affected: r.Affected, known: map[schema.GroupKind]bool{}}
	r.Watch = w.routes
	if o.Routes != nil {
		r.Watch = (&watches{
			controller: c, cache: o.Routes.GetCache(), mapper: o.Routes.GetRESTMapper(), affected: r.Affected, known: map[schema.GroupKind]bool{},
		}).routes
	}
	if err := c.Watch(queue); err != nil {
		return fmt.Errorf("watch answers: %w", err)
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), &flaggerv1.Canary{}, handler.TypedEnqueueRequestsFromMapFunc(r.Concerned))); err != nil {
		return fmt.Errorf("watch Canaries: %w", err)
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), &flaggerv1.MetricTemplate{}, handler.TypedEnqueueRequestsFromMapFunc(
		func(_ context.Context, t *flaggerv1.MetricTemplate) []reconcile.Request {
			return r.Affected(schema.GroupKind{Group: flaggerv1.GroupName, Kind: flaggerv1.MetricTemplateKind}, client.ObjectKeyFromObject(t))
		}))); err != nil {
		return fmt.Errorf("watch MetricTemplates: %w", err)
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Version: "v1", Kind: "Service"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	} {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(gvk)
		if err := w.start(object, gvk.GroupKind()); err != nil {
			return err
		}
	}
	if r.EndpointsUnread == "" {
		if err := c.Watch(source.Kind(mgr.GetCache(), &discoveryv1.EndpointSlice{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, e *discoveryv1.EndpointSlice) []reconcile.Request {
				return r.Affected(EndpointsKind, types.NamespacedName{Namespace: e.Namespace, Name: serviceOf(e)})
			}), publishedOthers)); err != nil {
			return fmt.Errorf("watch EndpointSlices: %w", err)
		}
	}
	for _, kind := range []string{"ConfigMap", "Secret"} {
		// Metadata only: content is read when it changed, and not kept.
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
		if err := w.start(object, schema.GroupKind{Kind: kind}); err != nil {
			return err
		}
	}
	return nil
}

// Concerned are the releases to look at when a Canary changed: itself and every other with its target, because when one
// goes, another may act.
func (r *Reconciler) Concerned(ctx context.Context, c *flaggerv1.Canary) []reconcile.Request {
	requests := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(c)}}
	if c.DeletionTimestamp == nil && c.Status.Phase != "" {
		return requests
	}
	others, err := r.rivals(ctx, c)
	if err != nil {
		log.FromContext(ctx).Error(err, "Looked for Canaries with the same target", "canary", c.Name+"."+c.Namespace)
		return requests
	}
	for i := range others {
		if others[i].Name != c.Name {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&others[i])})
		}
	}
	return requests
}

// Affected are the releases to look at when an object of another kind changed, in the order of their names.
func (r *Reconciler) Affected(kind schema.GroupKind, object types.NamespacedName) []reconcile.Request {
	keys := r.dependents.of(thing{kind, object.Namespace, object.Name})
	requests := make([]reconcile.Request, 0, len(keys))
	for _, key := range keys {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// watches starts a watch for each kind that releases depend on, once. Kinds of routes are watched from the first release
// that uses them on, so that no mesh has to be installed that nobody uses.
type watches struct {
	controller controller.Controller
	cache      cache.Cache
	mapper     meta.RESTMapper
	affected   func(schema.GroupKind, types.NamespacedName) []reconcile.Request

	mu    sync.Mutex
	known map[schema.GroupKind]bool
}

func (w *watches) routes(_ context.Context, refs []traffic.Ref) error {
	for _, ref := range refs {
		if w.watched(ref.GVK.GroupKind()) {
			continue
		}
		if _, err := w.mapper.RESTMapping(ref.GVK.GroupKind(), ref.GVK.Version); err != nil {
			return nil //nolint:nilerr // not installed: the observation says so, and the next pass tries again
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(ref.GVK)
		if err := w.start(object, ref.GVK.GroupKind()); err != nil {
			return err
		}
	}
	return nil
}

func (w *watches) watched(kind schema.GroupKind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[kind]
}

func (w *watches) start(object client.Object, kind schema.GroupKind) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known[kind] {
		return nil
	}
	err := w.controller.Watch(source.Kind(w.cache, object, handler.TypedEnqueueRequestsFromMapFunc(
		func(_ context.Context, o client.Object) []reconcile.Request {
			return w.affected(kind, client.ObjectKeyFromObject(o))
		}), predicate.TypedFuncs[client.Object]{UpdateFunc: worthALook}))
	if err != nil {
		return fmt.Errorf("watch %s: %w", kind, err)
	}
	w.known[kind] = true
	return nil
}

// worthALook leaves out versions of objects that no pass would find anything new in.
func worthALook(e event.TypedUpdateEvent[client.Object]) bool {
	before, known := e.ObjectOld.(*unstructured.Unstructured)
	after, ok := e.ObjectNew.(*unstructured.Unstructured)
	return !known || !ok || workload.Changed(before, after)
}
