package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
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
func (r *Reconciler) observe(ctx context.Context, object *argov1.Rollout, now time.Time) (*seen, error) {
	// The object is a copy of the cache's, and nobody changes what is in it: the machine does not, and a write begins with a
	// copy.
	s := &seen{object: object, spec: object.Spec, sets: map[string]*appsv1.ReplicaSet{}}
	s.snapshot = rollout.Snapshot{
		Now: now, Namespace: object.Namespace, Name: object.Name, UID: object.UID, Generation: object.Generation,
		RevisionAnnotation: object.Annotations[argov1.RevisionAnnotation], WorkloadGenerationAnnotation: object.Annotations[argov1.WorkloadGenerationAnnotation],
		Status: object.Status, UnreadableFields: object.Unreadable,
	}
	for _, look := range []func(context.Context, *seen) error{
		r.lookAtWorkload, r.lookForFormerWorkloads, r.lookAtSets, r.lookAtServices, r.lookAtEndpoints, r.lookAtRuns, r.lookAtExperiments, r.lookAtPods, r.lookAtRoute, r.lookOutside, r.lookForProblems, r.lookForTurn,
	} {
		if err := look(ctx, s); err != nil {
			return nil, err
		}
	}
	s.snapshot.Spec = s.spec
	return s, nil
}

// lookAtSets finds its ReplicaSets, and the one of the template among them.
func (r *Reconciler) lookAtSets(ctx context.Context, s *seen) error {
	sets, err := r.owned(ctx, s)
	if err != nil {
		return err
	}
	replicaset.SortByAge(sets)
	for _, rs := range sets {
		s.sets[rs.Name] = rs
		s.snapshot.ReplicaSets = append(s.snapshot.ReplicaSets, replicaset.Observe(rs))
	}
	if s.spec.Selector != nil {
		s.snapshot.Selector = metav1.FormatLabelSelector(s.spec.Selector)
	}
	if c := s.spec.Strategy.Canary; c != nil {
		if s.snapshot.StepHash, err = rollout.StepHash(c.Steps); err != nil {
			return fmt.Errorf("name the steps of Rollout %s: %w", s.key(), err)
		}
	}
	workload := ""
	if s.snapshot.Workload != nil {
		workload = s.snapshot.Workload.Generation
	}
	found, hash, err := replicaset.FindByTemplate(sets, replicaset.FindCriteria{
		Template: s.spec.Template, CollisionCount: s.object.Status.CollisionCount,
		ObservedHash: replicaset.ObservedTemplateHash(s.object.Status, s.object.Generation, workload),
	})
	if err != nil {
		return fmt.Errorf("find the ReplicaSet of Rollout %s: %w", s.key(), err)
	}
	s.hash, s.snapshot.Hash = hash, hash
	if found != nil {
		s.snapshot.Hash = replicaset.PodTemplateHash(found)
	}
	return nil
}

// lookAtRuns finds its AnalysisRuns.
func (r *Reconciler) lookAtRuns(ctx context.Context, s *seen) error {
	var runs argov1.AnalysisRunList
	if err := r.Client.List(ctx, &runs, OwnedBy(s.object)...); err != nil {
		return fmt.Errorf("list the AnalysisRuns of Rollout %s: %w", s.key(), err)
	}
	for i := range runs.Items {
		s.snapshot.AnalysisRuns = append(s.snapshot.AnalysisRuns, runValue(&runs.Items[i]))
	}
	slices.SortFunc(s.snapshot.AnalysisRuns, func(a, b rollout.AnalysisRun) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return nil
}

// lookAtExperiments finds its Experiments.
func (r *Reconciler) lookAtExperiments(ctx context.Context, s *seen) error {
	var experiments argov1.ExperimentList
	if err := r.Client.List(ctx, &experiments, OwnedBy(s.object)...); err != nil {
		return fmt.Errorf("list the Experiments of Rollout %s: %w", s.key(), err)
	}
	for i := range experiments.Items {
		s.snapshot.Experiments = append(s.snapshot.Experiments, experimentValue(&experiments.Items[i], currentStep(s)))
	}
	slices.SortFunc(s.snapshot.Experiments, func(a, b rollout.Experiment) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return nil
}

// currentStep is the experiment of the step that is carried out; nil: it has none.
func currentStep(s *seen) *argov1.RolloutExperimentStep {
	c, at := s.spec.Strategy.Canary, s.object.Status.CurrentStepIndex
	if c == nil || at == nil || *at < 0 || int(*at) >= len(c.Steps) {
		return nil
	}
	return c.Steps[*at].Experiment
}
