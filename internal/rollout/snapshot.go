package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is the observed state of a Rollout at one time.
type Snapshot struct {
	Now             time.Time
	Namespace, Name string
	UID             types.UID
	Generation      int64
	// RevisionAnnotation and WorkloadGenerationAnnotation are the values of its annotations; empty if they do not
	// exist.
	RevisionAnnotation, WorkloadGenerationAnnotation string
	// Spec of the Rollout, with the template and the selector of the workload that it refers to.
	Spec argov1.RolloutSpec
	// Status as it is stored, including patches by users.
	Status argov1.RolloutStatus
	// ValidationError is the first error in the spec; empty: none.
	ValidationError string
	// UnreadableTemplate is the reason why a template of the analyses may not be read; empty: all may.
	UnreadableTemplate string
	// UnreadableFields are JSON pointers to stored fields that were ignored because they cannot be decoded.
	UnreadableFields []string
	// ReplicaSets are all ReplicaSets that it owns, the oldest first, without those of Experiments.
	ReplicaSets []ReplicaSet
	// Hash is the hash of the ReplicaSet of the template: of the existing one, or of the one to be created.
	Hash string
	// StepHash is the hash of the steps; empty for blue-green.
	StepHash string
	// Selector in the form that autoscalers read: the formatted spec.selector.
	Selector string
	// Services are the Services that the strategy names, and those that still record that this Rollout manages them.
	Services map[string]Service
	// AnalysisRuns and Experiments are those that the Rollout owns.
	AnalysisRuns []AnalysisRun
	Experiments  []Experiment
	// Pods are the pods of all ReplicaSets if a restart is due (see IsRestartDue); otherwise none.
	Pods []Pod
	// Route is the observed state of the route, if the strategy has one.
	Route Route
	// StepPlugins are the configured step plugins that the steps name, RouterPlugins the router plugins that trafficRouting
	// names and that are not built in. Answers are the answers to calls of both.
	StepPlugins   map[string]StepPlugin
	RouterPlugins map[string]RouterPlugin
	Answers       release.Answers
	// Workload is the workload that spec.workloadRef names; nil: none.
	Workload *WorkloadScale
	// FormerWorkloads are Deployments that this Rollout has scaled down and no longer refers to.
	FormerWorkloads []string
	// QueueSlot contains whether the release may start; nil if the number of concurrent releases is not limited.
	QueueSlot *release.QueueState
	// QueuePlacePruned is true if the status is known to be stored without a place in the queue.
	QueuePlacePruned bool
}

// ReplicaSet is a ReplicaSet that the Rollout owns.
type ReplicaSet struct {
	Name, Hash string
	Created    time.Time
	Revision   int64
	// SpecReplicas is the desired number of pods; Replicas, Ready and Available are the numbers of existing ones.
	SpecReplicas, Replicas, Ready, Available int32
	// RolloutReplicas is spec.replicas of the Rollout when the ReplicaSet was last scaled; nil: unknown.
	RolloutReplicas *int32
	// Failure is the reason why pods cannot be created; empty: none.
	Failure string
	// ScaleDownDeadline is the time from which its pods may be removed; zero: none. Abandoned is true if it has one because its
	// release ended without a promotion.
	ScaleDownDeadline time.Time
	Abandoned         bool
	// Deleting is true while it is being deleted. StatusCurrent is true if its status was written for its current spec.
	Deleting, StatusCurrent bool
	// AvoidedHash is the hash in the anti-affinity term that Serin added to its template.
	AvoidedHash string
}

// HasScaleDownDeadline reports whether its pods are removed after a delay.
func (rs ReplicaSet) HasScaleDownDeadline() bool { return !rs.ScaleDownDeadline.IsZero() }

// AnalysisRun is an AnalysisRun that the Rollout owns.
type AnalysisRun struct {
	Name, Hash string
	// Type is the value of the label rollout-type, Step that of step-index; nil: none.
	Type    string
	Step    *int32
	Created time.Time
	Phase   argov1.AnalysisPhase
	Message string
	// Terminated is true if spec.terminate is set.
	Terminated bool
	// Deleting is true while it is being deleted.
	Deleting bool
	// Metric is the metric that decides the run, if it is known.
	Metric Metric
}

// Metric is the last measurement of one metric of an AnalysisRun.
type Metric struct {
	// Value is the measured value, Limit the condition that it has to meet, Query the query with its arguments
	// resolved.
	Value, Limit, Query string
}

// Experiment is an Experiment that the Rollout owns.
type Experiment struct {
	Name, Hash string
	Created    time.Time
	Phase      argov1.AnalysisPhase
	Message    string
	// Terminated is true if spec.terminate is set; Deleting while it is being deleted.
	Terminated, Deleting bool
	// Destinations are the Services of its templates that have a weight while it runs.
	Destinations []Destination
}

// Destination receives traffic in addition to the two revisions.
type Destination struct {
	Service, Hash string
	Weight        int32
}

// Pod is a pod of one of the ReplicaSets.
type Pod struct {
	Name       string
	ReplicaSet string
	Created    time.Time
	// Ready is true while it serves requests; Deleting while it is being deleted.
	Ready, Deleting bool
	// EvictionRefusal is the last refusal of its eviction, as far as this process remembers.
	EvictionRefusal EvictionRefusal
}

// EvictionRefusal is the refusal of an eviction by a disruption budget. The zero value means that there was none.
type EvictionRefusal struct {
	At time.Time
	// ReadyPods is the number of pods of the Rollout that were ready: a budget permits more evictions when more pods are.
	ReadyPods int
}

// Route is the observed state of the route of a Rollout.
type Route struct {
	// Confirmed is true if the routers have applied the weights, and external load balancers have confirmed the weights
	// and targets that ExternalConfirmations returns; nil: routers cannot report it, or were not queried.
	Confirmed *bool
	// UnconfirmedReason explains why Confirmed is false.
	UnconfirmedReason string
	// Unreported is the message about a Gateway about which no controller has reported: the steps wait for the report; empty: there is
	// none.
	Unreported string
	// HasCanaryWeight is true if a route has a weight for the side of the new revision, whichever controller set it.
	HasCanaryWeight bool
	// ManagedRoutes are the names of the existing managed routes.
	ManagedRoutes []string
	// ExternalLoadBalancer is true if an external load balancer is queried.
	ExternalLoadBalancer bool
	// LoadBalancers are the load balancers that were found; none if no search took place.
	LoadBalancers []argov1.ALBStatus
	// HasStaleRouters is true if objects of routers that the strategy no longer names still contain changes for this
	// Rollout.
	HasStaleRouters bool
	// CanaryHash and StableHash are the hashes of the pods that both sides of the route select where no Service does:
	// subsets of a DestinationRule.
	CanaryHash, StableHash string
}

// WorkloadScale is the scale of the workload that spec.workloadRef names.
type WorkloadScale struct {
	// Generation of the workload, as text.
	Generation string
	// Scalable is true for a Deployment: no other workload is scaled down. SpecReplicas is the desired number of pods.
	Scalable            bool
	SpecReplicas, Ready int32
}

// Decision is the result of Next: the status, effects, gates and events.
type Decision = release.Decision[argov1.RolloutStatus]
