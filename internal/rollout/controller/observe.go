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
	// APIReader reads from the API server.
	APIReader client.Reader
	Runs      *launch.Launcher
	Routers   traffic.Registry
	Applier   *traffic.Applier
	// InstanceID of the controller: objects of other instances are ignored. Empty: it has none.
	InstanceID string
	// FindConflict returns a message about another object that releases the workload of a Rollout; empty: there is none. A nil function:
	// there can be none.
	FindConflict func(ctx context.Context, object *argov1.Rollout) (string, error)
	// OtherController detects another controller that acts on the same objects; nil: it is not detected.
	OtherController *watching.OtherController
	// Queries sends queries of type traffic.LoadBalancerQuery about load balancers outside the cluster; nil: there are no queries.
	Queries *queryrunner.Runner
	// StepPlugins calls step plugins; nil: they are off.
	StepPlugins *StepPlugins
	// RouterPlugins calls router plugins; nil: they are off.
	RouterPlugins *RouterPlugins
	// Queue is the queue of releases that exceed the concurrency limit; nil: there is no limit. Add registers the Rollouts of this
	// process in it.
	Queue *queue.Queue
	// EndpointsUnread is the reason why endpoints cannot be observed; empty: they can.
	EndpointsUnread string
	// AnswersFromStatus is true if another process sends the queries, so that their answers are taken from the status.
	AnswersFromStatus bool
	// Resync is the interval in which a workload is read that is not watched.
	Resync time.Duration
	// MarkedKinds are the kinds of users' objects, in addition to Services, that carry marks of Rollouts and may be watched.
	MarkedKinds []schema.GroupVersionKind

	// memory is the memory of the reconciler; see New.
	memory *memory
}

// observation is an observed Rollout: the object, its dependencies and the snapshot.
type observation struct {
	// object in its last stored version, also after a write.
	object *argov1.Rollout
	// spec of the object, with the template and the selector of the workload that it refers to.
	spec     argov1.RolloutSpec
	snapshot rollout.Snapshot
	// replicaSets are its ReplicaSets by name, in the version of the last write.
	replicaSets map[string]*appsv1.ReplicaSet
	// hash of the template, which the label of an adopted ReplicaSet may not contain.
	hash    string
	routers []traffic.Router
	// versions are those of the objects of each router when its route was read; nil if it was not read, or was written since.
	versions []traffic.Versions
	// formerRouters are the routers of former specs whose objects are not restored yet, with their managed routes. routersRestored is
	// true if some were restored in this reconciliation.
	formerRouters       []argov1.RoutedStatus
	formerManagedRoutes []argov1.ManagedRoute
	routersRestored     bool
	// forwards are the desired rules of load balancers, and loadBalancerEvents the events about their actual ones.
	forwards           []traffic.Forward
	loadBalancerEvents []release.Event
	// workload that the spec refers to; nil: it refers to none.
	workload *workloadObject
	// dependencies are the objects whose changes requeue the Rollout.
	dependencies []watching.Object
	// watchedKinds of observed objects that may have to be watched from now on.
	watchedKinds []schema.GroupVersionKind
	// needsRetry is true if an object or a kind is missing and no watch notifies of its creation.
	needsRetry bool
	// retryAt is the time of the next reconciliation without a notification; zero: never.
	retryAt time.Time
	// changed is true once an effect has changed an object.
	changed bool
	// evictedPods are the names of pods that were evicted in this reconciliation.
	evictedPods []string
}

// observedVersions returns the versions of the objects that change most often: the Rollout, its ReplicaSets and its routes.
func (s *observation) observedVersions() []watching.ObjectVersion {
	out := []watching.ObjectVersion{watching.VersionOf(argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind).GroupKind(), s.object)}
	for _, rs := range s.replicaSets {
		out = append(out, watching.VersionOf(replicaSetKind.GroupKind(), rs))
	}
	for _, route := range s.versions {
		for id, version := range route.All() {
			out = append(out, watching.ObjectVersion{Object: watching.Object{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}, Version: version})
		}
	}
	return out
}

func (s *observation) key() types.NamespacedName { return client.ObjectKeyFromObject(s.object) }

// observe reads the objects around a Rollout, and returns the snapshot.
func (o *Observer) observe(ctx context.Context, object *argov1.Rollout, now time.Time) (*observation, error) {
	// The object is a copy of that in the cache, and nothing modifies it: the state machine does not, and a write begins with
	// another copy.
	s := &observation{object: object, spec: object.Spec, replicaSets: map[string]*appsv1.ReplicaSet{}}
	s.snapshot = rollout.Snapshot{
		Now: now, Namespace: object.Namespace, Name: object.Name, UID: object.UID, Generation: object.Generation,
		RevisionAnnotation: object.Annotations[argov1.RevisionAnnotation], WorkloadGenerationAnnotation: object.Annotations[argov1.WorkloadGenerationAnnotation],
		Status: object.Status, UnreadableFields: object.Unreadable,
	}
	for _, observe := range []func(context.Context, *observation) error{
		o.observeWorkload, o.observeFormerWorkloads, o.observeReplicaSets, o.observeServices, o.observeEndpoints,
		o.observeAnalysisRuns, o.observeExperiments, o.observePods, o.observeRoute, o.observeLoadBalancers, o.observeStepPlugins, o.observeRouterPlugins,
		o.validate, o.observeQueueSlot,
	} {
		if err := observe(ctx, s); err != nil {
			return nil, err
		}
	}
	s.snapshot.Spec = s.spec
	return s, nil
}
