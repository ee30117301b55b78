// Package experiment decides about Experiments: which pods run at the same time and for how long, which analyses
// evaluate them, and the phase of the Experiment. It is a pure state machine.
//
// Next consists of stages, each of which takes the observed facts and the status so far, and returns the next status and
// its outcome: effects, events, gates and a wake time. To add an effect, declare it in snapshot.go and apply it in
// experiment/controller.
//
// The package knows ReplicaSets, Services and AnalysisRuns as values. It must not know clients, clocks, how a
// ReplicaSet is created, or what an analysis measures.
package experiment

import (
	"fmt"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is the observed state of an Experiment at one time.
type Snapshot struct {
	Now    time.Time
	Name   string
	Spec   argov1.ExperimentSpec
	Status argov1.ExperimentStatus
	// Templates are the observed objects of each template, by its name.
	Templates map[string]TemplateState
	// AnalysisRuns are the AnalysisRuns that the status names, by the name of the run.
	AnalysisRuns map[string]AnalysisRunState
}

// TemplateState contains the observed objects of a template.
type TemplateState struct {
	// Found is true if the ReplicaSet exists.
	Found bool
	// ReplicaSet is the name of the ReplicaSet, also before it exists. Hash is the hash of its pods.
	ReplicaSet, Hash string
	// Desired is the desired number of pods; Total, Ready and Available are the numbers of existing pods.
	Desired, Total, Ready, Available int32
	// ScaleDownDeadline is the time from which the ReplicaSet may be scaled to zero; zero: none is set.
	ScaleDownDeadline time.Time
	// Service is the name of the Service; empty: it has none.
	Service string
	// Problem is a message about objects of others that prevent the template from running; empty: there are none.
	Problem string
}

// AnalysisRunState is the observed state of an AnalysisRun.
type AnalysisRunState struct {
	Found      bool
	Phase      argov1.AnalysisPhase
	Message    string
	Terminated bool
}

// Decision is the result of Next: the status, effects, gates and events.
type Decision = release.Decision[argov1.ExperimentStatus]

// ReplicaSetExists is an effect: the template has a ReplicaSet. It is created without pods.
type ReplicaSetExists struct{ Template string }

// ReplicaSetScaled is an effect: the ReplicaSet of the template has this number of desired pods.
type ReplicaSetScaled struct {
	Template string
	Replicas int32
}

// ScaleDownDeadlineSet is an effect: the ReplicaSet of the template has an annotation with the time at which it is scaled
// to zero.
type ScaleDownDeadlineSet struct {
	Template string
	Deadline time.Time
}

// ServiceExists is an effect: the template has a Service with this name.
type ServiceExists struct{ Template, Name string }

// ServiceDeleted is an effect: the Service of the template is deleted.
type ServiceDeleted struct{ Template, Name string }

// AnalysisRunStarted is an effect: the analysis has an AnalysisRun. The reconciler records the result with RecordRunStarted
// or RecordRunRejected.
type AnalysisRunStarted struct {
	Analysis argov1.ExperimentAnalysisTemplateRef
	// Name of the run, unless another run has it, and the values of its arguments.
	Name string
	Args []argov1.Argument
}

// AnalysisRunTerminated is an effect: the AnalysisRun with this name is terminated.
type AnalysisRunTerminated struct{ Name string }

func (e ReplicaSetExists) String() string { return "ReplicaSet of " + e.Template + " exists" }
func (e ReplicaSetScaled) String() string {
	return fmt.Sprintf("ReplicaSet of %s scaled to %d", e.Template, e.Replicas)
}

func (e ScaleDownDeadlineSet) String() string {
	return fmt.Sprintf("scale-down deadline of %s is %s", e.Template, e.Deadline.UTC().Format(time.RFC3339))
}

func (e ServiceExists) String() string {
	return fmt.Sprintf("Service %s of %s exists", e.Name, e.Template)
}

func (e ServiceDeleted) String() string {
	return fmt.Sprintf("Service %s of %s deleted", e.Name, e.Template)
}

func (e AnalysisRunStarted) String() string    { return "AnalysisRun of " + e.Analysis.Name + " exists" }
func (e AnalysisRunTerminated) String() string { return "AnalysisRun " + e.Name + " terminated" }
