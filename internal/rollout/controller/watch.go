package controller

import (
	"context"
	"errors"
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
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// Options of the controller.
type Options struct {
	// Workers is the number of concurrent reconciliations; zero means ten.
	Workers int
	// Cache of the watched objects.
	Cache cache.Cache
	// Leases is true if those of another controller can be watched.
	Leases bool
	// ClusterTemplates is true if ClusterAnalysisTemplates can be watched.
	ClusterTemplates bool
	// Groups are the clusters of API groups whose objects are not in the cluster of the Rollouts, by name.
	Groups map[string]cluster.Cluster
}

// Add adds the reconciler to a manager. queue must be the one that receives the answers to queries.
func (r *Reconciler) Add(mgr manager.Manager, queue *reconciler.Queue, o Options) error {
	workers := o.Workers
	if workers <= 0 {
		workers = 10
	}
	c, err := controller.New("rollout", mgr, reconciler.Options(r, workers))
	if err != nil {
		return fmt.Errorf("create the controller of Rollouts: %w", err)
	}
	if err := c.Watch(queue); err != nil {
		return fmt.Errorf("watch the answers about Rollouts: %w", err)
	}
	rollouts := QueueKind(r.Client, true)
	rollouts.Wake = queue.Add
	r.Queue.Register(rollouts)
	w := &watching.Watches{Controller: c, Cache: o.Cache, Mapper: mgr.GetRESTMapper(), AffectedReleases: r.AffectedReleases}
	groups := map[string]*watching.Watches{}
	for group, other := range o.Groups {
		groups[group] = &watching.Watches{Controller: c, Cache: other.GetCache(), Mapper: other.GetRESTMapper(), AffectedReleases: r.AffectedReleases}
	}
	r.Watch = func(kinds []schema.GroupVersionKind) error {
		for _, kind := range kinds {
			watches := groups[kind.Group]
			if watches == nil {
				watches = w
			}
			if err := watches.StartInstalled([]schema.GroupVersionKind{kind}); err != nil {
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
	if err := r.Watch(r.MarkedKinds); err != nil {
		return fmt.Errorf("watch the kinds that Rollouts mark: %w", err)
	}
	return watchOtherController(r.OtherController, w, o.Leases)
}

// watchOtherController watches the Deployment and the Lease of another controller.
func watchOtherController(detector *watching.OtherController, w *watching.Watches, leases bool) error {
	if detector == nil {
		return nil
	}
	deployment := &unstructured.Unstructured{}
	deployment.SetGroupVersionKind(deploymentKind)
	if err := w.Start(deployment, deploymentKind.GroupKind()); err != nil || !leases {
		return err
	}
	return w.Start(&coordinationv1.Lease{}, schema.GroupKind{Group: coordinationv1.GroupName, Kind: "Lease"})
}

// watchedObjects returns one object of each kind that is watched from the start. endpointSlices is true if they can be read.
func watchedObjects(o Options, endpointSlices bool) []client.Object {
	all := []client.Object{&argov1.Rollout{}, &appsv1.ReplicaSet{}, &argov1.AnalysisRun{}, &argov1.Experiment{}, &argov1.AnalysisTemplate{}, newService()}
	if o.ClusterTemplates {
		all = append(all, &argov1.ClusterAnalysisTemplate{})
	}
	if endpointSlices {
		all = append(all, &discoveryv1.EndpointSlice{})
	}
	return all
}

// AffectedReleases returns the Rollouts to reconcile because of a change of an object. before is nil for a new object, after
// for a deleted one.
func (r *Reconciler) AffectedReleases(ctx context.Context, kind schema.GroupKind, before, after client.Object) []reconcile.Request {
	if r.OtherController.IsRelevantChange(kind, before, after) {
		managers, err := r.managersOfMarked(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "Could not requeue all Rollouts that manage objects")
		}
		return append(releases.Requests(ctx, r.Client), managers...)
	}
	return r.observed.Drop(r.affectedReleases(ctx, kind, before, after), kind, after)
}

// affectedReleases returns the Rollouts that an object concerns, whether they have observed the change or not.
func (r *Reconciler) affectedReleases(ctx context.Context, kind schema.GroupKind, before, after client.Object) []reconcile.Request {
	object := after
	if object == nil {
		object = before
	}
	switch object := object.(type) {
	case *argov1.Rollout:
		if deleted, ok := before.(*argov1.Rollout); ok && after == nil {
			r.memory.recordDeleted(deleted) // no later reconciliation would observe it
		}
		releases.WakeNext(ctx, r.Queue, before, after)
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
	case *appsv1.ReplicaSet:
		return rolloutsOf(ctx, r.Client, object)
	case *argov1.AnalysisRun:
		if run, ok := before.(*argov1.AnalysisRun); ok && after != nil && sameRun(run, object) {
			return nil
		}
		return ownerRequest(object)
	case *argov1.Experiment:
		if experiment, ok := before.(*argov1.Experiment); ok && after != nil && sameVersion(experiment, object) {
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
		for _, manager := range managerRequests(before, after) {
			if !slices.Contains(requests, manager) {
				requests = append(requests, manager)
			}
		}
		return requests
	}
}

// RequeueShard requeues the Rollouts in the namespaces of a shard, and those whose marks objects carry, whether they exist or not.
func (r *Reconciler) RequeueShard(queue *reconciler.Queue) sharding.Requeue {
	return func(ctx context.Context, inShard func(namespace string) bool) error {
		if err := releases.RequeueShard(ctx, r.Client, queue, inShard); err != nil {
			return err
		}
		managers, err := r.managersOfMarked(ctx)
		for _, request := range managers {
			if inShard(request.Namespace) {
				queue.Add(request.NamespacedName)
			}
		}
		return err
	}
}

// managersOfMarked returns the Rollouts whose marks objects carry, whether they exist or not, also if it returns an error.
func (r *Reconciler) managersOfMarked(ctx context.Context) ([]reconcile.Request, error) {
	var requests []reconcile.Request
	for _, kind := range append([]schema.GroupVersionKind{serviceKind}, r.MarkedKinds...) {
		marked, err := r.Applier.Marked(ctx, kind, "")
		switch {
		case reconciler.NeedsUser(err), errors.Is(err, traffic.ErrUnreachable):
			continue // their API server cannot be read; the watch of the kind notifies when it can
		case err != nil:
			return requests, err
		}
		for _, object := range marked {
			requests = append(requests, managerRequests(object)...)
		}
	}
	return requests, nil
}

// sameRun reports whether two versions of an AnalysisRun lead to the same decision: most only add a measurement.
func sameRun(a, b *argov1.AnalysisRun) bool {
	return a.Status.Phase == b.Status.Phase && a.Status.Message == b.Status.Message && a.Spec.Terminate == b.Spec.Terminate && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil)
}

// sameVersion reports whether an update of an Experiment is only a resync.
func sameVersion(a, b *argov1.Experiment) bool { return a.ResourceVersion == b.ResourceVersion }

// ownerRequest returns a request for the Rollout that controls an object.
func ownerRequest(object client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != argov1.RolloutKind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}}
}

// rolloutsOf returns the Rollout that controls a ReplicaSet, or those that may adopt it. It does not wait until caches show the
// writes of this process: the event that it handles may be the one that shows them.
func rolloutsOf(ctx context.Context, reader client.Reader, rs *appsv1.ReplicaSet) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(rs) != nil {
		return ownerRequest(rs)
	}
	var all argov1.RolloutList
	if err := reader.List(ctx, &all, client.InNamespace(rs.Namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the Rollouts that may adopt a ReplicaSet", "replicaSet", rs.Name+"."+rs.Namespace)
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
