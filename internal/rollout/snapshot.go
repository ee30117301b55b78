package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot contains everything that is known about a Rollout at one time.
type Snapshot struct {
	Now             time.Time
	Namespace, Name string
	UID             types.UID
	Generation      int64
	// RevisionAnnotation and WorkloadGenerationAnnotation are the values of its annotations; empty where they are missing.
	RevisionAnnotation, WorkloadGenerationAnnotation string
	// Spec of it, with the template and the selector of the workload that it refers to.
	Spec argov1.RolloutSpec
	// Status as it is stored, with what users patched into it.
	Status argov1.RolloutStatus
	// ValidationError is the first error that prevents the Rollout from being carried out; empty: none.
	ValidationError string
	// UnreadableFields are JSON pointers to stored fields that were left out because they cannot be read.
	UnreadableFields []string
	// ReplicaSets are all ReplicaSets that it owns, the oldest first, without those of Experiments.
	ReplicaSets []ReplicaSet
	// Hash is the label of the ReplicaSet of the template: of the existing one, or of the one to be created.
	Hash string
	// StepHash is that of the steps; empty for blue-green.
	StepHash string
	// Selector as an autoscaler reads it: the formatted spec.selector.
	Selector string
	// Services that the strategy names, and those that still record that this Rollout manages them.
	Services map[string]Service
	// AnalysisRuns are all AnalysisRuns that it owns, Experiments all Experiments.
	AnalysisRuns []AnalysisRun
	Experiments  []Experiment
	// Pods of all ReplicaSets, where a restart is due (see IsRestartDue); else none.
	Pods []Pod
	// Router is what was observed of the route, where the strategy has one.
	Router Router
	// DisabledPlugins are the step plugins that are configured not to be called.
	DisabledPlugins []string
	// Workload is the one that spec.workloadRef names; nil: none.
	Workload *WorkloadScale
	// FormerWorkloads are Deployments that this Rollout has scaled down and does not refer to anymore.
	FormerWorkloads []string
	// QueueSlot is whether this release may start beside those in progress; nil where their number is not limited.
	QueueSlot *release.QueueState
	// Pruned is true where the status is known to be stored without a place in the queue.
	Pruned bool
}

// ReplicaSet is one that the Rollout owns.
type ReplicaSet struct {
	Name, Hash string
	Created    time.Time
	Revision   int64
	// Spec is the number of desired pods; Replicas, Ready and Available are those that exist.
	Spec, Replicas, Ready, Available int32
	// Desired is spec.replicas of the Rollout when it was scaled last; nil: unknown.
	Desired *int32
	// Failure is why pods cannot be created; empty: they can.
	Failure string
	// ScaleDownDeadline is the time from which its pods may be removed; zero: none.
	ScaleDownDeadline time.Time
	// Deleting is true while it is being deleted; Settled when its status was written for its current spec.
	Deleting, StatusCurrent bool
	// AvoidedHash is the hash in the anti-affinity term that Serin put into its template.
	AvoidedHash string
}

// HasScaleDownDeadline reports whether its pods wait for the end of a delay before they are removed.
func (rs ReplicaSet) HasScaleDownDeadline() bool { return !rs.ScaleDownDeadline.IsZero() }

// AnalysisRun is an AnalysisRun that the Rollout owns.
type AnalysisRun struct {
	Name, Hash string
	// Type is the value of its label rollout-type, Step that of step-index; nil: none.
	Type    string
	Step    *int32
	Created time.Time
	Phase   argov1.AnalysisPhase
	Message string
	// Terminated is true if spec.terminate is set.
	Terminated bool
	// Deleting is true while it is being deleted.
	Deleting bool
	// Metric is the one that decides it, as far as it is known.
	Metric Metric
}

// Metric is what an AnalysisRun measured last of one metric.
type Metric struct {
	// Value is the measured value, Limit the condition that it has to meet, Query the query with its arguments resolved.
	Value, Limit, Query string
}

// Experiment is one that the Rollout owns.
type Experiment struct {
	Name, Hash string
	Created    time.Time
	Phase      argov1.AnalysisPhase
	Message    string
	// Terminated is true if spec.terminate is set; Deleting while it is being deleted.
	Terminated, Deleting bool
	// Destinations are the Services of its templates that have a weight, while it runs.
	Destinations []Destination
}

// Destination receives traffic beside the two revisions.
type Destination struct {
	Service, Hash string
	Weight        int32
}

// Pod of one of the ReplicaSets.
type Pod struct {
	Name       string
	ReplicaSet string
	Created    time.Time
	// Ready is true while it serves; Deleting while it is being deleted.
	Ready, Deleting bool
}

// Router is what was observed of the route of a Rollout.
type Router struct {
	// Confirmed is true if the routers serve the configured weights, and load balancers outside the cluster have confirmed
	// what Outside returns; nil: routers cannot report it, or were not queried.
	Confirmed *bool
	// UnconfirmedReason explains why Confirmed is false.
	UnconfirmedReason string
	// HasCanaryWeight is true while a route has weight for the side of the new revision, whichever controller wrote it.
	HasCanaryWeight bool
	// ManagedRoutes are the names of the managed routes that exist.
	ManagedRoutes []string
	// ExternalLoadBalancer is true if a load balancer outside the cluster is queried.
	ExternalLoadBalancer bool
	// LoadBalancers are the load balancers that were found; none if there was no search.
	LoadBalancers []argov1.ALBStatus
	// HasStaleRouters is true while objects of routers that the strategy no longer names still contain what was written for this
	// Rollout.
	HasStaleRouters bool
	// CanaryHash and StableHash are the hashes of the pods that both sides of the route select where no Service does:
	// subsets of a DestinationRule.
	CanaryHash, StableHash string
}

// WorkloadScale are those of the workload that spec.workloadRef names.
type WorkloadScale struct {
	// Generation of it, as a text.
	Generation string
	// Scalable is true for a Deployment: nothing else is scaled down. Spec is the number of desired pods.
	Scalable    bool
	Spec, Ready int32
}

// Decision is what follows from a snapshot.
type Decision = release.Decision[argov1.RolloutStatus]
