package controller

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/watching"
)

// Options of the controller.
type Options struct {
	// Workers is the number of concurrent reconciliations; zero means ten.
	Workers int
	// Cache of what is watched.
	Cache cache.Cache
	// Leases is true where those of a peer can be watched.
	Leases bool
	// ClusterTemplates is true where templates of the cluster can be watched.
	ClusterTemplates bool
	// Groups are the clusters of API groups whose objects are not in the cluster of the Rollouts, by name.
	Groups map[string]cluster.Cluster
}

// Add makes the manager run the reconciler. queue must be the one that answers from outside the cluster go to.
func (r *Reconciler) Add(mgr manager.Manager, queue *reconciler.Queue, o Options) error {
	workers := o.Workers
	if workers <= 0 {
		workers = 10
	}
	c, err := controller.New("rollout", mgr, reconciler.Options(r, workers))
	if err != nil {
		return fmt.Errorf("make the controller of Rollouts: %w", err)
	}
	if err := c.Watch(queue); err != nil {
		return fmt.Errorf("take in answers about Rollouts: %w", err)
	}
	joined := Queued(r.Client, true)
	joined.Wake = queue.Add
	r.Line.Register(joined)
	w := &watching.Watches{Controller: c, Cache: o.Cache, Mapper: mgr.GetRESTMapper(), AffectedReleases: r.Touched}
	groups := map[string]*watching.Watches{}
	for group, other := range o.Groups {
		groups[group] = &watching.Watches{Controller: c, Cache: other.GetCache(), Mapper: other.GetRESTMapper(), AffectedReleases: r.Touched}
	}
	r.Watch = func(kinds []schema.GroupVersionKind) error {
		for _, kind := range kinds {
			of := groups[kind.Group]
			if of == nil {
				of = w
			}
			if err := of.StartInstalled([]schema.GroupVersionKind{kind}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, object := range watchedObjects(o, r.EndpointsUnread == "") {
		gvk, err := apiutil.GVKForObject(object, mgr.GetScheme())
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		if err := w.Start(object, gvk.GroupKind()); err != nil {
			return err
		}
	}
	if err := r.Watch(r.Marked); err != nil {
		return fmt.Errorf("watch what Rollouts mark: %w", err)
	}
	return watchOtherController(r.Peers, w, o.Leases)
}

// watchOtherController watches the signs of another controller.
func watchOtherController(peers *watching.OtherController, w *watching.Watches, leases bool) error {
	if peers == nil {
		return nil
	}
	deployment := &unstructured.Unstructured{}
	deployment.SetGroupVersionKind(deploymentKind)
	if err := w.Start(deployment, deploymentKind.GroupKind()); err != nil || !leases {
		return err
	}
	return w.Start(&coordinationv1.Lease{}, schema.GroupKind{Group: coordinationv1.GroupName, Kind: "Lease"})
}

// watchedObjects are of the kinds that are watched from the start. endpointSlices is true where these can be read.
func watchedObjects(o Options, endpointSlices bool) []client.Object {
	all := []client.Object{&argov1.Rollout{}, &appsv1.ReplicaSet{}, &argov1.AnalysisRun{}, &argov1.Experiment{}, &argov1.AnalysisTemplate{}, service()}
	if o.ClusterTemplates {
		all = append(all, &argov1.ClusterAnalysisTemplate{})
	}
	if endpointSlices {
		all = append(all, &discoveryv1.EndpointSlice{})
	}
	return all
}

// Touched returns the Rollouts to reconcile because of a change of an object. before is nil for a new object, after for a deleted
// one.
func (r *Reconciler) Touched(ctx context.Context, kind schema.GroupKind, before, after client.Object) []reconcile.Request {
	object := after
	if object == nil {
		object = before
	}
	if r.Peers.IsRelevantChange(kind, before, after) {
		return append(releases.Requests(ctx, r.Client), managersOfServices(ctx, r.Client)...)
	}
	switch object := object.(type) {
	case *argov1.Rollout:
		if deleted, ok := before.(*argov1.Rollout); ok && after == nil {
			r.memory.ends(deleted) // no later reconciliation would observe it
		}
		releases.Changed(ctx, r.Line, before, after)
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
	case *appsv1.ReplicaSet:
		return rolloutsOf(ctx, r.Client, object)
	case *argov1.AnalysisRun:
		if run, ok := before.(*argov1.AnalysisRun); ok && after != nil && sameRun(run, object) {
			return nil
		}
		return ownerRequest(object)
	case *argov1.Experiment:
		if experiment, ok := before.(*argov1.Experiment); ok && after != nil && sameLook(experiment, object) {
			return nil
		}
		return ownerRequest(object)
	case *discoveryv1.EndpointSlice:
		if !endpoints.Changed(before, after) {
			return nil
		}
		return reconciler.Requests(r.dependents.ReleasesFor(endpoints.Of(object.Namespace, endpoints.ServiceOf(object))))
	default:
		requests := reconciler.Requests(r.dependents.ReleasesFor(watching.Object{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}))
		for _, manager := range managers(before, after) {
			if !slices.Contains(requests, manager) {
				requests = append(requests, manager)
			}
		}
		return requests
	}
}

// sameRun is true for versions of a run that no pass would find anything new in: most only have one more measurement.
func sameRun(a, b *argov1.AnalysisRun) bool {
	return a.Status.Phase == b.Status.Phase && a.Status.Message == b.Status.Message && a.Spec.Terminate == b.Spec.Terminate && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil)
}

// sameLook is true for versions of an Experiment that are the same but for their names of versions.
func sameLook(a, b *argov1.Experiment) bool { return a.ResourceVersion == b.ResourceVersion }

// ownerRequest is the Rollout that an object belongs to.
func ownerRequest(object client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != argov1.RolloutKind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}}
}

// rolloutsOf are the Rollout that a ReplicaSet belongs to, or those that may take it in. It waits for no write of the process:
// the event that it works at may be what shows it.
func rolloutsOf(ctx context.Context, reader client.Reader, rs *appsv1.ReplicaSet) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(rs) != nil {
		return ownerRequest(rs)
	}
	var all argov1.RolloutList
	if err := reader.List(ctx, &all, client.InNamespace(rs.Namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		log.FromContext(ctx).Error(err, "Looked for the Rollout of a ReplicaSet", "replicaSet", rs.Name+"."+rs.Namespace)
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		selector, err := metav1.LabelSelectorAsSelector(all.Items[i].Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(rs.Labels)) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// managersOfServices are the Rollouts that Services name, whether they exist or not.
func managersOfServices(ctx context.Context, reader client.Reader) []reconcile.Request {
	services := &unstructured.UnstructuredList{}
	services.SetGroupVersionKind(serviceKind.GroupVersion().WithKind("ServiceList"))
	if err := reader.List(ctx, services, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Looked for the Rollouts that Services name")
		return nil
	}
	var requests []reconcile.Request
	for i := range services.Items {
		requests = append(requests, managers(&services.Items[i])...)
	}
	return requests
}
