package controller

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// Observer observes Rollouts, with caches or, for a command, with the permissions of its user.
type Observer struct {
	// Client reads from caches. It returns unstructured objects in the version of its last write, or a newer one.
	Client client.Client
	// Reader reads from the API server.
	Reader  client.Reader
	Runs    *launch.Launcher
	Routers traffic.Registry
	Applier *traffic.Applier
	// InstanceID of the controller: objects of other instances are ignored. Empty: it has none.
	InstanceID string
	// Rival returns a message about another object that releases the workload of a Rollout; empty: there is none. nil: there can be
	// none.
	Rival func(ctx context.Context, object *argov1.Rollout) (string, error)
	// Peers detects another controller that acts on the same objects; nil: it is not detected.
	OtherController *watching.OtherController
	// Outside sends queries of type traffic.Question about load balancers outside the cluster; nil: there are no queries.
	Queries *queryrunner.Runner
	// Line is the queue of releases that exceed the concurrency limit; nil: there is no limit. Add registers the Rollouts of this
	// process in it.
	Queue *queue.Queue
	// EndpointsUnread is a message about why endpoints cannot be observed; empty: they can.
	EndpointsUnread string
	// Beside is true for an observer beside the process that sends the queries: it takes the answers from the status.
	Beside bool
	// Resync is the interval in which a workload is read that is not watched.
	Resync time.Duration
	// Marked are the kinds of users' objects, beside Services, that carry marks of Rollouts and may be watched.
	Marked []schema.GroupVersionKind

	// memory is that of the reconciler; see New.
	memory *memory
}

// seen is what a reconciliation observes: a Rollout, the objects around it, and the snapshot of both.
type seen struct {
	// object in its last stored version, also after a write.
	object *argov1.Rollout
	// spec of the object, with the template and the selector of the workload that it refers to.
	spec     argov1.RolloutSpec
	snapshot rollout.Snapshot
	// sets are its ReplicaSets by name, as they were last written.
	sets map[string]*appsv1.ReplicaSet
	// hash of the template, which the label of an adopted ReplicaSet may not contain.
	hash    string
	routers []traffic.Router
	// versions are those of the objects of each router when its route was read; nil if it was not read, or was written since.
	versions []traffic.Versions
	// former are the routers of former specs whose objects are not restored yet, with their managed routes. released is true
	// if some were restored in this reconciliation.
	former              []argov1.RoutedStatus
	formerManagedRoutes []argov1.ManagedRoute
	released            bool
	// forwards are the desired rules of load balancers, and balancerEvents the events about their actual ones.
	forwards       []traffic.Forward
	balancerEvents []release.Event
	// workload that the spec refers to; nil: it refers to none.
	workload *workloadObject
	// things are the objects whose changes requeue the Rollout.
	things []watching.Object
	// kinds of observed objects that may have to be watched from now on.
	kinds []schema.GroupVersionKind
	// missing is true if an object or a kind is missing and no watch notifies of its creation.
	missing bool
	// again is when to reconcile again without a notification; zero: never.
	again time.Time
}

func (s *seen) key() types.NamespacedName { return client.ObjectKeyFromObject(s.object) }

// observe reads the objects around a Rollout, and returns the snapshot.
func (o *Observer) observe(ctx context.Context, object *argov1.Rollout, now time.Time) (*seen, error) {
	// The object is a copy of that in the cache, and nothing modifies it: the state machine does not, and a write begins with
	// another copy.
	s := &seen{object: object, spec: object.Spec, sets: map[string]*appsv1.ReplicaSet{}}
	s.snapshot = rollout.Snapshot{
		Now: now, Namespace: object.Namespace, Name: object.Name, UID: object.UID, Generation: object.Generation,
		RevisionAnnotation: object.Annotations[argov1.RevisionAnnotation], WorkloadGenerationAnnotation: object.Annotations[argov1.WorkloadGenerationAnnotation],
		Status: object.Status, UnreadableFields: object.Unreadable,
	}
	for _, observe := range []func(context.Context, *seen) error{
		o.observeWorkload, o.observeFormerWorkloads, o.observeReplicaSets, o.observeServices, o.observeEndpoints,
		o.observeAnalysisRuns, o.observeExperiments, o.observePods, o.observeRoute, o.observeLoadBalancers,
		o.validate, o.observeQueueSlot,
	} {
		if err := observe(ctx, s); err != nil {
			return nil, err
		}
	}
	s.snapshot.Spec = s.spec
	return s, nil
}
