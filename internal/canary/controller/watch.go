package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/watching"
	"github.com/serin-dev/serin/internal/workload"
)

// Options of the controller.
type Options struct {
	// Workers is the number of concurrent reconciliations; zero means ten.
	Workers int
	// Routes is the cluster that has the route objects; nil means the manager's.
	Routes cluster.Cluster
	// ConfigTracking is true if ConfigMaps and Secrets are part of a revision. Otherwise they are not watched.
	ConfigTracking bool
}

// Add adds the reconciler to the manager. queue must be the one that receives the answers of the query runner.
func (r *Reconciler) Add(mgr manager.Manager, queue *reconciler.Queue, o Options) error {
	workers := o.Workers
	if workers <= 0 {
		workers = 10
	}
	c, err := controller.New("canary", mgr, reconciler.Options(r, workers))
	if err != nil {
		return fmt.Errorf("create the controller of Canaries: %w", err)
	}
	canaries := QueueKind(r.Client, true)
	canaries.Wake = queue.Add
	r.Queue.Register(canaries)
	w := &watching.Watches{Controller: c, Cache: mgr.GetCache(), Mapper: mgr.GetRESTMapper(), AffectedReleases: r.AffectedReleases}
	routes := w
	if o.Routes != nil {
		routes = &watching.Watches{Controller: c, Cache: o.Routes.GetCache(), Mapper: o.Routes.GetRESTMapper(), AffectedReleases: r.AffectedReleases}
	}
	r.Watch = func(ofWorkloads, ofRoutes []schema.GroupVersionKind) error {
		return errors.Join(w.StartInstalled(ofWorkloads), routes.StartInstalled(ofRoutes))
	}
	if err := c.Watch(queue); err != nil {
		return fmt.Errorf("watch query results: %w", err)
	}
	for _, object := range r.watchedKinds(o.ConfigTracking) {
		gvk, err := apiutil.GVKForObject(object, mgr.GetScheme())
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		if err := w.Start(object, gvk.GroupKind()); err != nil {
			return err
		}
	}
	return nil
}

// watchedKinds are the kinds that are watched from the start.
func (r *Reconciler) watchedKinds(tracking bool) []client.Object {
	all := []client.Object{&flaggerv1.Canary{}, &flaggerv1.MetricTemplate{}, &flaggerv1.AlertProvider{}}
	for _, gvk := range []schema.GroupVersionKind{
		deploymentKind,
		{Version: "v1", Kind: "Service"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	} {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(gvk)
		all = append(all, object)
	}
	if r.OtherController != nil && r.OtherController.LeasesUnreadable == "" {
		all = append(all, &coordinationv1.Lease{})
	}
	if r.EndpointsUnread == "" {
		all = append(all, &discoveryv1.EndpointSlice{})
	}
	if !tracking {
		return all // Serin then needs no permission to list Secrets
	}
	for _, kind := range []string{"ConfigMap", "Secret"} {
		// Metadata only: content is read when it changed, and is not cached.
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
		all = append(all, object)
	}
	return all
}

// AffectedReleases returns the Canaries to reconcile because of a change of an object. before is nil for a new object, after
// for a deleted one.
func (r *Reconciler) AffectedReleases(ctx context.Context, kind schema.GroupKind, before, after client.Object) []reconcile.Request {
	if r.OtherController.IsRelevantChange(kind, before, after) {
		return releases.Requests(ctx, r.Client)
	}
	return r.observed.Drop(r.affectedReleases(ctx, kind, before, after), kind, after)
}

// affectedReleases returns the Canaries that an object concerns, whether they have observed the change or not.
func (r *Reconciler) affectedReleases(ctx context.Context, kind schema.GroupKind, before, after client.Object) []reconcile.Request {
	object := after
	if object == nil {
		object = before
	}
	switch object := object.(type) {
	case *flaggerv1.Canary:
		releases.WakeNext(ctx, r.Queue, before, after)
		return r.requestsForTargets(ctx, before, after)
	case *discoveryv1.EndpointSlice:
		if !endpoints.Changed(before, after) {
			return nil
		}
		return r.requestsFor(endpoints.Of(object.Namespace, endpoints.ServiceOf(object)))
	default:
		if before != nil && after != nil && !isRelevantChange(before, after) {
			return nil
		}
		return r.requestsFor(watching.Object{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()})
	}
}

// isRelevantChange reports whether a reconciliation could find anything new in the new version of an object.
func isRelevantChange(before, after client.Object) bool {
	old, known := before.(*unstructured.Unstructured)
	current, ok := after.(*unstructured.Unstructured)
	return !known || !ok || workload.Changed(old, current)
}

// requestsForTargets returns requests for the Canary itself and, if its change may let another Canary act or prevent it from acting,
// for the Canaries with its previous or its current targets.
func (r *Reconciler) requestsForTargets(ctx context.Context, before, after client.Object) []reconcile.Request {
	old, _ := before.(*flaggerv1.Canary)
	current, _ := after.(*flaggerv1.Canary)
	keepsTarget := old != nil && current != nil && current.DeletionTimestamp == nil && current.Status.Phase != "" && slices.Equal(targetKeys(old), targetKeys(current))
	var requests []reconcile.Request
	for _, c := range []*flaggerv1.Canary{old, current} {
		if c == nil {
			continue
		}
		affected := []flaggerv1.Canary{*c}
		if !keepsTarget {
			for _, key := range targetKeys(c) {
				others, err := r.canariesOfTarget(ctx, c.Namespace, key)
				if err != nil {
					log.FromContext(ctx).Error(err, "Could not list the Canaries with the same target", "canary", c.Name+"."+c.Namespace)
				}
				affected = append(affected, others...)
			}
		}
		for i := range affected {
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&affected[i])}
			if !slices.Contains(requests, request) {
				requests = append(requests, request)
			}
		}
	}
	return requests
}

// requestsFor returns a request for each Canary that depends on an object.
func (r *Reconciler) requestsFor(t watching.Object) []reconcile.Request {
	return reconciler.Requests(r.dependents.ReleasesFor(t))
}
