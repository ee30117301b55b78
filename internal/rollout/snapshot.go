package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is all that is known of a Rollout at one moment.
type Snapshot struct {
	Now             time.Time
	Namespace, Name string
	UID             types.UID
	Generation      int64
	// Revision and WorkloadGeneration are what its annotations say; empty where they are not there.
	Revision, WorkloadGeneration string
	// Spec of it, with the template and the selector of the workload that it refers to.
	Spec argov1.RolloutSpec
	// Status as it is stored, with what people patched into it.
	Status argov1.RolloutStatus
	// Problem is the first thing that makes the Rollout impossible to carry out; empty: nothing does.
	Problem string
	// Unreadable are JSON pointers to what is stored and was left out, because it cannot be read.
	Unreadable []string
	// Sets are all ReplicaSets that it owns, the oldest first, without those of Experiments.
	Sets []ReplicaSet
	// Hash is the label of the ReplicaSet of the template: of the one that there is, or of the one to be made.
	Hash string
	// StepHash is that of the steps; empty for blue-green.
	StepHash string
	// Selector as an autoscaler reads it: the formatted spec.selector.
	Selector string
	// Services that the strategy names, and those that still say that this Rollout manages them.
	Services map[string]Service
	// Runs are all AnalysisRuns that it owns, Experiments all Experiments.
	Runs        []Run
	Experiments []Experiment
	// Pods of all ReplicaSets, where a restart is due (see RestartDue); else none.
	Pods []Pod
	// Router is what is known of the route, where the strategy has one.
	Router Router
	// DisabledPlugins are the step plugins that are configured not to be called.
	DisabledPlugins []string
	// Workload is the one that spec.workloadRef names; nil without.
	Workload *WorkloadPods
	// FormerWorkloads are Deployments that this Rollout has scaled down, and does not refer to any more.
	FormerWorkloads []string
	// Turn is whether this release may start beside those that move; nil where their number is not limited.
	Turn *release.Turn
	// Pruned is true where the status is known to come back without a place in the line.
	Pruned bool
}

// ReplicaSet is one that the Rollout owns.
type ReplicaSet struct {
	Name, Hash string
	Created    time.Time
	Revision   int64
	// Spec is how many pods are asked for; Replicas, Ready and Available are there.
	Spec, Replicas, Ready, Available int32
	// Desired is spec.replicas of the Rollout when it was scaled last; nil: nobody noted it.
	Desired *int32
	// Failure is why pods cannot be made; empty: they can.
	Failure string
	// Deadline is the moment from which it may go; zero: it waits for none.
	Deadline time.Time
	// Deleting is true of one that is going; Settled when its status speaks of its spec as it is.
	Deleting, Settled bool
	// Avoids is the hash whose pods its own keep away from, of the term that Serin put into its template.
	Avoids string
}

// Delayed is true while it waits out a delay before its pods go.
func (rs ReplicaSet) Delayed() bool { return !rs.Deadline.IsZero() }

// Run is an AnalysisRun that the Rollout owns.
type Run struct {
	Name, Hash string
	// Type is the value of its label rollout-type, Step of step-index; nil: none.
	Type    string
	Step    *int32
	Created time.Time
	Phase   argov1.AnalysisPhase
	Message string
	// Terminated is true when it was told to end.
	Terminated bool
	// Deleting is true of one that is going.
	Deleting bool
}

// Experiment is one that the Rollout owns.
type Experiment struct {
	Name, Hash string
	Created    time.Time
	Phase      argov1.AnalysisPhase
	Message    string
	// Terminated is true when it was told to end; Deleting of one that is going.
	Terminated, Deleting bool
	// Destinations are the Services of its templates that have a weight, while it runs.
	Destinations []Destination
}

// Destination is a receiver of traffic beside the two revisions.
type Destination struct {
	Service, Hash string
	Weight        int32
}

// Pod of one of the ReplicaSets.
type Pod struct {
	Name       string
	ReplicaSet string
	Created    time.Time
	// Ready is true of one that serves; Deleting of one that is going.
	Ready, Deleting bool
}

// Router is what is known of the route of a Rollout.
type Router struct {
	// Confirmed is whether the routers serve what they were told, and those outside the cluster what Outside asks for; nil:
	// they cannot tell, or are not asked.
	Confirmed *bool
	// Reason says for people why they do not.
	Reason string
	// Carries is true while a route has weight for the side of the new revision, whoever wrote it.
	Carries bool
	// Managed are the names of the managed routes that there are.
	Managed []string
	// Outside is true where somebody outside the cluster is asked.
	Outside bool
	// Balancers are the load balancers that were found; none where nobody looked.
	Balancers []argov1.ALBStatus
	// Left is true while objects of routers still hold what was written there, and the strategy does not name them any more.
	Left bool
	// Referenced are the hashes that objects of routers name beside the Services: subsets.
	Referenced []string
}

// WorkloadPods are those of the workload that spec.workloadRef names.
type WorkloadPods struct {
	// Generation of it, as a text.
	Generation string
	// Scalable is true of a Deployment: of nothing else the pods are taken away. Spec of them are asked for.
	Scalable    bool
	Spec, Ready int32
}

// Decision is what follows from a snapshot.
type Decision = release.Decision[argov1.RolloutStatus]
