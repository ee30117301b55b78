package v1alpha1

// Labels of what belongs to a Rollout.
const (
	// PodTemplateHashLabel tells the ReplicaSets of a Rollout apart, and their pods, AnalysisRuns and Experiments.
	PodTemplateHashLabel = "rollouts-pod-template-hash"
	// InstanceIDLabel shares a cluster between controllers: each sees only the objects that carry its own value.
	InstanceIDLabel = "argo-rollouts.argoproj.io/controller-instance-id"
	// RolloutTypeLabel says for what an AnalysisRun was made.
	RolloutTypeLabel = "rollout-type"
	// StepIndexLabel says for which step an AnalysisRun was made, from 0.
	StepIndexLabel = "step-index"
)

// Values of RolloutTypeLabel.
const (
	TypeStep          = "Step"
	TypeBackground    = "Background"
	TypePrePromotion  = "PrePromotion"
	TypePostPromotion = "PostPromotion"
)

// Annotations of a Rollout and of what belongs to it.
const (
	// ManagedByAnnotation names the Rollout that writes the selector of a Service, or a route.
	ManagedByAnnotation = "argo-rollouts.argoproj.io/managed-by-rollouts"
	// RoutedByAnnotation keeps on such an object, as JSON, the UID of the Rollout and what its routers are, so that its routes can
	// be restored when it is deleted while no process watches. It is Serin's own.
	RoutedByAnnotation = "serin.dev/routed-by"
	// ReplicasBeforeAnnotation is the number of replicas that a Deployment had before a Rollout that takes its template scaled it
	// down. It is Serin's own.
	ReplicasBeforeAnnotation = "serin.dev/replicas-before"
	// ScaleDownDeadlineAnnotation is the moment from which a ReplicaSet may go to zero, in RFC 3339 and UTC.
	ScaleDownDeadlineAnnotation = "scale-down-deadline"
	// RevisionAnnotation counts the templates of a Rollout, from 1.
	RevisionAnnotation = "rollout.argoproj.io/revision"
	// RevisionHistoryAnnotation lists the earlier revisions of a ReplicaSet that came back.
	RevisionHistoryAnnotation = "rollout.argoproj.io/revision-history"
	// DesiredReplicasAnnotation is spec.replicas of the Rollout when the ReplicaSet was scaled last.
	DesiredReplicasAnnotation = "rollout.argoproj.io/desired-replicas"
	// WorkloadGenerationAnnotation is the generation of the workload that spec.workloadRef names.
	WorkloadGenerationAnnotation = "rollout.argoproj.io/workload-generation"
	// EphemeralMetadataAnnotation holds the metadata that was put on the pods of a ReplicaSet for its role, as JSON.
	EphemeralMetadataAnnotation = "rollout.argoproj.io/ephemeral-metadata"
	// ExperimentNameAnnotation and ExperimentTemplateAnnotation say whose a ReplicaSet or a Service is.
	ExperimentNameAnnotation     = "experiment.argoproj.io/name"
	ExperimentTemplateAnnotation = "experiment.argoproj.io/template-name"
)
