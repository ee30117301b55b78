package v1alpha1

// Labels of the objects that belong to a Rollout.
const (
	// PodTemplateHashLabel has the revision to which a ReplicaSet, a pod, an AnalysisRun or an Experiment of a Rollout
	// belongs.
	PodTemplateHashLabel = "rollouts-pod-template-hash"
	// InstanceIDLabel divides a cluster between controllers: each reconciles only the objects with its own value.
	InstanceIDLabel = "argo-rollouts.argoproj.io/controller-instance-id"
	// RolloutTypeLabel has the purpose of an AnalysisRun.
	RolloutTypeLabel = "rollout-type"
	// StepIndexLabel has the index of the step, from 0, for which an AnalysisRun was created.
	StepIndexLabel = "step-index"
)

// Values of RolloutTypeLabel.
const (
	TypeStep          = "Step"
	TypeBackground    = "Background"
	TypePrePromotion  = "PrePromotion"
	TypePostPromotion = "PostPromotion"
)

// Annotations of a Rollout and of the objects that belong to it.
const (
	// ManagedByAnnotation names the Rollout that writes the selector of a Service, or a route.
	ManagedByAnnotation = "argo-rollouts.argoproj.io/managed-by-rollouts"
	// RoutedByAnnotation has, as JSON, the UID of the Rollout that routes with such an object and the configuration of its
	// routers, so that its routes can be restored when it is deleted while no process watches. Only Serin sets it.
	RoutedByAnnotation = "serin.dev/routed-by"
	// ReplicasBeforeAnnotation is the largest number of replicas that a Deployment had before a Rollout with a workloadRef to
	// it scaled it down. Only Serin sets it.
	ReplicasBeforeAnnotation = "serin.dev/replicas-before"
	// ScaleDownDeadlineAnnotation is the time from which a ReplicaSet may be scaled to zero, in RFC 3339 and UTC.
	ScaleDownDeadlineAnnotation = "scale-down-deadline"
	// AbandonedAnnotation is "true" on a ReplicaSet with a scale-down deadline whose release ended without a promotion.
	AbandonedAnnotation = "serin.dev/abandoned"
	// RevisionAnnotation counts the templates of a Rollout, from 1.
	RevisionAnnotation = "rollout.argoproj.io/revision"
	// RevisionHistoryAnnotation lists the earlier revision numbers of a ReplicaSet to which the Rollout was rolled back.
	RevisionHistoryAnnotation = "rollout.argoproj.io/revision-history"
	// DesiredReplicasAnnotation is spec.replicas of the Rollout when the ReplicaSet was last scaled.
	DesiredReplicasAnnotation = "rollout.argoproj.io/desired-replicas"
	// WorkloadGenerationAnnotation is the generation of the workload that spec.workloadRef names.
	WorkloadGenerationAnnotation = "rollout.argoproj.io/workload-generation"
	// EphemeralMetadataAnnotation has, as JSON, the metadata that was added to the pods of a ReplicaSet for its role.
	EphemeralMetadataAnnotation = "rollout.argoproj.io/ephemeral-metadata"
	// ExperimentNameAnnotation and ExperimentTemplateAnnotation name the Experiment and the template of a ReplicaSet or a
	// Service.
	ExperimentNameAnnotation     = "experiment.argoproj.io/name"
	ExperimentTemplateAnnotation = "experiment.argoproj.io/template-name"
)
