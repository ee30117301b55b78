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

// Observer makes snapshots.
type Observer struct {
	// Client reads caches; of what is unstructured, never older than what it wrote.
	Client client.Client
	// Reader reads from the API server.
	Reader  client.Reader
	Runs    *launch.Launcher
	Routers traffic.Registry
	Applier *traffic.Applier
	// InstanceID of the controller; what others serve is not seen. Empty: it has none.
	InstanceID string
	// Rival is who else releases the workload that a Rollout refers to, as a sentence; empty: nobody. nil: nobody can.
	Rival func(ctx context.Context, object *argov1.Rollout) (string, error)
	// Peers looks for another controller that acts on the same objects; nil: nobody looks.
	Peers *watching.OtherController
	// Outside asks those outside the cluster about traffic.Question; nil: nobody is asked.
	Outside *queryrunner.Runner
	// Line is where releases wait while as many move as may; nil: nothing limits them. Add lets the Rollouts of the process
	// join it.
	Line *queue.Queue
	// EndpointsUnread is why endpoints cannot be observed, as a sentence; empty: they can.
	EndpointsUnread string
	// Beside is true of who looks beside the process that asks them: what was answered is what the status says.
	Beside bool
	// Resync is how often a workload is read of whose changes no watch notifies.
	Resync time.Duration
	// Marked are the kinds of users' objects, beside Services, that carry marks of Rollouts and may be watched.
	Marked []schema.GroupVersionKind

	memory *memory
}

// seen is a Rollout, what is around it, and the snapshot that was made of both.
type seen struct {
	// object as it was stored last: a write makes it newer.
	object *argov1.Rollout
	// spec of it, with the template and the selector of the workload that it refers to.
	spec     argov1.RolloutSpec
	snapshot rollout.Snapshot
	// sets are its ReplicaSets by name, as they were written last.
	sets map[string]*appsv1.ReplicaSet
	// hash that the template has, whatever the label of its ReplicaSet says.
	hash    string
	routers []traffic.Router
	// versions are those in which the route of each router was read; nil where it was not, or was written since.
	versions []traffic.Versions
	// former are routers as the spec named them before, as far as their objects still hold something; unnamed are the
	// managed routes of such, and released is true when some were given back.
	former   []argov1.RoutedStatus
	unnamed  []argov1.ManagedRoute
	released bool
	// forwards are what load balancers shall do, and heard is what they were heard to.
	forwards []traffic.Forward
	heard    []release.Event
	// workload that the spec refers to, where that is a Deployment.
	workload *workloadObject
	things   []watching.Object
	// kinds of what was looked at that may have to be watched from now on.
	kinds []schema.GroupVersionKind
	// missing is true where something is missing of which no watch tells.
	missing bool
	// again is when to look again although nothing tells of a change; zero: never.
	again time.Time
}

func (s *seen) key() types.NamespacedName { return client.ObjectKeyFromObject(s.object) }

// observe looks at everything around a Rollout.
func (o *Observer) observe(ctx context.Context, object *argov1.Rollout, now time.Time) (*seen, error) {
	// The object is a copy of the cache's, and nobody changes what is in it: the machine does not, and a write begins with a
	// copy.
	s := &seen{object: object, spec: object.Spec, sets: map[string]*appsv1.ReplicaSet{}}
	s.snapshot = rollout.Snapshot{
		Now: now, Namespace: object.Namespace, Name: object.Name, UID: object.UID, Generation: object.Generation,
		RevisionAnnotation: object.Annotations[argov1.RevisionAnnotation], WorkloadGenerationAnnotation: object.Annotations[argov1.WorkloadGenerationAnnotation],
		Status: object.Status, UnreadableFields: object.Unreadable,
	}
	for _, look := range []func(context.Context, *seen) error{
		o.observeWorkload, o.observeFormerWorkloads, o.observeReplicaSets, o.observeServices, o.observeEndpoints, o.observeAnalysisRuns, o.observeExperiments, o.observePods, o.observeRoute, o.observeLoadBalancers, o.validate, o.observeQueueSlot,
	} {
		if err := look(ctx, s); err != nil {
			return nil, err
		}
	}
	s.snapshot.Spec = s.spec
	return s, nil
}
