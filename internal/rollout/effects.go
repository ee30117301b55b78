package rollout

import (
	"fmt"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// The effects. Each describes a desired state; applying an effect whose state is already reached sends no request.
type (
	// ReplicasDefaulted writes the default of spec.replicas, so that an autoscaler can change it.
	ReplicasDefaulted struct{}

	// UnreadableQuantitiesRemoved removes the values at these JSON pointers from the stored Rollout.
	UnreadableQuantitiesRemoved struct{ Pointers []string }

	// RevisionAnnotated sets the annotation of the Rollout with its revision number.
	RevisionAnnotated struct{ Revision int64 }

	// WorkloadGenerationAnnotated sets the annotation of the Rollout with the observed generation of its workload;
	// empty removes it.
	WorkloadGenerationAnnotated struct{ Generation string }

	// ReplicaSetExists creates the ReplicaSet of the template, without pods.
	ReplicaSetExists struct {
		Name, Hash string
		Revision   int64
		// AvoidedHash is the hash of the pods that its pods avoid by anti-affinity; empty: none.
		AvoidedHash string
		// Metadata is the ephemeral metadata of its pods; nil: none.
		Metadata *argov1.PodTemplateMetadata
	}

	// ReplicaSetMaintained sets the revision number, the annotations of the Rollout, minReadySeconds and the avoided
	// hash of the newest ReplicaSet.
	ReplicaSetMaintained struct {
		Name        string
		Revision    int64
		AvoidedHash string
	}

	// ReplicaSetScaled sets the number of pods, and records the current replicas of the Rollout. If Pods equals From,
	// it only records them.
	ReplicaSetScaled struct {
		Name       string
		Revision   int64
		From, Pods int32
		// RolloutReplicas is spec.replicas of the Rollout.
		RolloutReplicas int32
		// KeepDeadline is true if the scale-down deadline remains although the ReplicaSet is scaled to zero.
		KeepDeadline bool
	}

	// ScaleDownDeadlineSet sets the time from which the pods of the ReplicaSet may be removed; zero: removes the
	// deadline. Abandoned is true if the release of the ReplicaSet ended without a promotion.
	ScaleDownDeadlineSet struct {
		Name      string
		Until     time.Time
		Abandoned bool
	}

	// EphemeralMetadataSet sets ephemeral metadata on the existing and future pods of the ReplicaSet, and removes that
	// of its previous role. Nil: none.
	EphemeralMetadataSet struct {
		Name     string
		Metadata *argov1.PodTemplateMetadata
	}

	// ReplicaSetDeleted deletes a ReplicaSet beyond the revision history limit.
	ReplicaSetDeleted struct{ Name string }

	// PodEvicted evicts a pod. A rejection by a disruption budget is not a failure.
	PodEvicted struct{ Name string }

	// ServiceSelects makes a Service select the pods of one revision, and records on it which Rollout manages it.
	ServiceSelects struct{ Service, Hash, From string }

	// ServiceRestored removes the selector and the annotations that Serin added to a Service.
	ServiceRestored struct{ Service string }

	// TrafficRouted sets the traffic split in all routers of the strategy.
	TrafficRouted struct {
		Weights argov1.TrafficWeights
		// MaxWeight is the sum of all weights.
		MaxWeight int32
		// Headers and Mirrors are the managed routes that apply, in the order in which steps set them.
		Headers []argov1.SetHeaderRoute
		Mirrors []argov1.SetMirrorRoute
		// StablePingPong determines which of the ping-pong Services is the stable one. A router that uses them even if
		// the weights name fixed Services calls routeServices.
		StablePingPong argov1.PingPongType
		// Drained is true if the canary has had no weight for so long that no request to it is in progress.
		Drained bool
	}

	// RouteRestored restores the objects of routers that the strategy no longer names. RemoveCreated is true if no
	// release is in progress, so that objects created for a release are removed too.
	RouteRestored struct{ RemoveCreated bool }

	// AnalysisRunExists creates an AnalysisRun from templates.
	AnalysisRunExists struct {
		Name, Hash string
		Revision   int64
		// Type is the value of the label rollout-type, Step that of step-index; nil: none.
		Type       string
		Step       *int32
		Analysis   argov1.RolloutAnalysis
		LatestHash string
		StableHash string
	}

	// AnalysisRunTerminated terminates an AnalysisRun.
	AnalysisRunTerminated struct{ Name string }

	// AnalysisRunDeleted deletes an AnalysisRun.
	AnalysisRunDeleted struct{ Name string }

	// ExperimentExists creates the Experiment of a step. The templates are copied from the ReplicaSets of both
	// revisions.
	ExperimentExists struct {
		Name, Hash     string
		Revision       int64
		Step           argov1.RolloutExperimentStep
		Canary, Stable string // names of the ReplicaSets
	}

	// ExperimentTerminated terminates an Experiment.
	ExperimentTerminated struct{ Name string }

	// ExperimentDeleted deletes an Experiment.
	ExperimentDeleted struct{ Name string }

	// WorkloadScaled sets the number of pods of the workload that spec.workloadRef names.
	WorkloadScaled struct{ Pods int32 }

	// WorkloadRestored restores the replicas that a Deployment had before the Rollout scaled it down.
	WorkloadRestored struct{ Name string }
)

func (ReplicasDefaulted) String() string   { return "spec.replicas set to its default" }
func (e RevisionAnnotated) String() string { return fmt.Sprintf("revision %d", e.Revision) }

func (e WorkloadGenerationAnnotated) String() string { return "workload generation " + e.Generation }

func (e ReplicaSetExists) String() string {
	return fmt.Sprintf("%s of revision %d exists", e.Name, e.Revision)
}

func (e ReplicaSetMaintained) String() string {
	return fmt.Sprintf("%s has revision %d", e.Name, e.Revision)
}

func (e ReplicaSetScaled) String() string {
	return fmt.Sprintf("%s from %d to %d", e.Name, e.From, e.Pods)
}

func (e ScaleDownDeadlineSet) String() string {
	if e.Until.IsZero() {
		return "scale-down deadline of " + e.Name + " removed"
	}
	return "scale-down deadline of " + e.Name + " is " + e.Until.UTC().Format(time.RFC3339)
}

func (e EphemeralMetadataSet) String() string { return e.Name + " has the metadata of its role" }
func (e ReplicaSetDeleted) String() string    { return e.Name + " deleted" }
func (e PodEvicted) String() string           { return "pod " + e.Name + " evicted" }
func (e ServiceSelects) String() string       { return e.Service + " selects " + e.Hash }
func (e ServiceRestored) String() string      { return e.Service + " restored" }

func (e TrafficRouted) String() string {
	parts := []string{fmt.Sprintf("canary=%d stable=%d", e.Weights.Canary.Weight, e.Weights.Stable.Weight)}
	for _, d := range e.Weights.Additional {
		parts = append(parts, fmt.Sprintf("%s=%d", d.ServiceName, d.Weight))
	}
	for _, h := range e.Headers {
		parts = append(parts, "header route "+h.Name)
	}
	for _, m := range e.Mirrors {
		parts = append(parts, "mirror route "+m.Name)
	}
	if e.Drained {
		parts = append(parts, "drained")
	}
	return strings.Join(parts, " ")
}

func (RouteRestored) String() string           { return "routes restored" }
func (e AnalysisRunExists) String() string     { return e.Name + " exists" }
func (e AnalysisRunTerminated) String() string { return e.Name + " terminated" }
func (e AnalysisRunDeleted) String() string    { return e.Name + " deleted" }
func (e ExperimentExists) String() string      { return e.Name + " exists" }
func (e ExperimentTerminated) String() string  { return e.Name + " terminated" }
func (e ExperimentDeleted) String() string     { return e.Name + " deleted" }
func (e WorkloadScaled) String() string        { return fmt.Sprintf("workload scaled to %d", e.Pods) }
func (e WorkloadRestored) String() string      { return "workload " + e.Name + " restored" }

// EffectEvent returns the event about an effect that has changed an object; false: none. The event is sent even if the
// status cannot be written afterwards.
func EffectEvent(effect release.Effect) (release.Event, bool) {
	switch e := effect.(type) {
	case UnreadableQuantitiesRemoved:
		return e.event(), true
	case RevisionAnnotated:
		return normalEvent("RolloutUpdated", "Rollout updated to revision %d", e.Revision)
	case ReplicaSetExists:
		return normalEvent(reasonCreated, "Created ReplicaSet %s (revision %d)", e.Name, e.Revision)
	case ReplicaSetScaled:
		switch {
		case e.Pods > e.From:
			return normalEvent("ScalingReplicaSet", "Scaled up ReplicaSet %s (revision %d) from %d to %d", e.Name, e.Revision, e.From, e.Pods)
		case e.Pods < e.From:
			return normalEvent("ScalingReplicaSet", "Scaled down ReplicaSet %s (revision %d) from %d to %d", e.Name, e.Revision, e.From, e.Pods)
		}
	case ServiceSelects:
		if e.From == e.Hash {
			break // only its annotation changed
		}
		return normalEvent("SwitchService", "Switched selector for service '%s' from '%s' to '%s'", e.Service, e.From, e.Hash)
	case ExperimentExists:
		return normalEvent("ExperimentCreated", "Created Experiment '%s'", e.Name)
	}
	return release.Event{}, false
}

func normalEvent(reason, format string, args ...any) (release.Event, bool) {
	return release.Event{Type: release.Normal, Reason: reason, Message: fmt.Sprintf(format, args...)}, true
}
