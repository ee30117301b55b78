// Package experiment decides about Experiments: which pods run side by side and for how long, which analyses judge them,
// and what the Experiment comes to. All of it is pure.
//
// It knows ReplicaSets, Services and AnalysisRuns as values. It must not know clients, clocks, how a ReplicaSet is made, or
// what an analysis measures.
package experiment

import (
	"fmt"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is all that is known about an Experiment at one moment.
type Snapshot struct {
	Now    time.Time
	Name   string
	Spec   argov1.ExperimentSpec
	Status argov1.ExperimentStatus
	// Sides are what there is for the templates, by their names.
	Sides map[string]Side
	// Runs are the AnalysisRuns that the status names, by their own names.
	Runs map[string]Run
}

// Side is what there is for a template.
type Side struct {
	// Found is true once the ReplicaSet is there.
	Found bool
	// ReplicaSet is its name, also before it is there, and Hash that of its pods.
	ReplicaSet, Hash string
	// Wanted is how many pods it is to have; Total, Ready and Available how many it has.
	Wanted, Total, Ready, Available int32
	// Deadline is when it may go to zero; zero: nobody has said so.
	Deadline time.Time
	// Service is the name of its Service, if there is one.
	Service string
	// Problem says what of others stands in the way, as a sentence; empty: nothing.
	Problem string
}

// Run is an AnalysisRun.
type Run struct {
	Found      bool
	Phase      argov1.AnalysisPhase
	Message    string
	Terminated bool
}

// Decision is what follows from a snapshot of an Experiment.
type Decision = release.Decision[argov1.ExperimentStatus]

// ReplicaSetExists is an effect: the template has a ReplicaSet, without pods where it is made.
type ReplicaSetExists struct{ Template string }

// Scaled is an effect: the ReplicaSet of the template has that many pods.
type Scaled struct {
	Template string
	Replicas int32
}

// GoesAt is an effect: the ReplicaSet of the template says when it goes to zero.
type GoesAt struct {
	Template string
	At       time.Time
}

// ServiceExists is an effect: the template has a Service of that name.
type ServiceExists struct{ Template, Name string }

// ServiceGone is an effect: the template has no Service any more.
type ServiceGone struct{ Template, Name string }

// RunStarted is an effect: the analysis has an AnalysisRun. The shell says what became of it with Started or Refused.
type RunStarted struct {
	Analysis argov1.ExperimentAnalysisTemplateRef
	// Name that the run gets unless another has it, and the values of its arguments.
	Name string
	Args []argov1.Argument
}

// RunTerminated is an effect: the AnalysisRun of that name comes to its end.
type RunTerminated struct{ Name string }

func (e ReplicaSetExists) String() string { return "replica set of " + e.Template }
func (e Scaled) String() string           { return fmt.Sprintf("%d pods of %s", e.Replicas, e.Template) }

func (e GoesAt) String() string {
	return fmt.Sprintf("%s goes at %s", e.Template, e.At.UTC().Format(time.RFC3339))
}

func (e ServiceExists) String() string { return fmt.Sprintf("service %s of %s", e.Name, e.Template) }

func (e ServiceGone) String() string   { return fmt.Sprintf("no service %s of %s", e.Name, e.Template) }
func (e RunStarted) String() string    { return "analysis " + e.Analysis.Name }
func (e RunTerminated) String() string { return "analysis run " + e.Name + " terminated" }
