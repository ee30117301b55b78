package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Experiment runs pods of several templates at the same time, and analyses them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=experiments,singular=experiment,shortName=exp,scope=Namespaced
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.phase",description="What the experiment has come to"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Experiment struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec defines the pods and their analyses.
	Spec ExperimentSpec `json:"spec"`
	// Status is the observed state of the experiment.
	// +optional
	Status ExperimentStatus `json:"status,omitzero"`
}

// ExperimentList is a list of Experiments.
//
// +kubebuilder:object:root=true
type ExperimentList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Experiment `json:"items"`
}

// ExperimentSpec defines the pods of an experiment and their analyses.
type ExperimentSpec struct {
	// Templates of the pods that are compared.
	// +listType=atomic
	Templates []TemplateSpec `json:"templates"`
	// Duration for which the pods run once all are available. If omitted, the experiment ends with its analyses, or when it
	// is terminated.
	// +optional
	Duration DurationString `json:"duration,omitempty"`
	// ProgressDeadlineSeconds is how long the pods may take to become available, in seconds. Defaults to 600.
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
	// Terminate ends the experiment.
	// +optional
	Terminate bool `json:"terminate,omitempty"`
	// Analyses of the pods.
	// +listType=atomic
	// +optional
	Analyses []ExperimentAnalysisTemplateRef `json:"analyses,omitempty"`
	// ScaleDownDelaySeconds is how long the pods keep running after the experiment, in seconds. Defaults to 30.
	// +optional
	ScaleDownDelaySeconds *int32 `json:"scaleDownDelaySeconds,omitempty"`
	// DryRun selects metrics whose results are recorded, but do not affect the result of the experiment.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// MeasurementRetention sets how many measurements of a metric are kept.
	// +listType=atomic
	// +optional
	MeasurementRetention []MeasurementRetention `json:"measurementRetention,omitempty"`
	// AnalysisRunMetadata is added to the AnalysisRuns.
	// +optional
	AnalysisRunMetadata *AnalysisRunMetadata `json:"analysisRunMetadata,omitempty"`
}

// TemplateSpec describes the pods of one template.
type TemplateSpec struct {
	// Name of the template.
	Name string `json:"name"`
	// Replicas is the number of pods. Defaults to 1.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// MinReadySeconds is how long a pod must have been ready to count as available, in seconds. Defaults to 0.
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Selector of the pods.
	Selector *metav1.LabelSelector `json:"selector"`
	// Template of the pods.
	Template corev1.PodTemplateSpec `json:"template"`
	// Service requests a Service for these pods.
	// +optional
	Service *TemplateService `json:"service,omitempty"`
}

// ExperimentAnalysisTemplateRef names an analysis of the experiment.
type ExperimentAnalysisTemplateRef struct {
	// Name of the analysis.
	Name string `json:"name"`
	// TemplateName is the name of its template.
	TemplateName string `json:"templateName"`
	// ClusterScope is true for a ClusterAnalysisTemplate.
	// +optional
	ClusterScope *bool `json:"clusterScope,omitempty"`
	// Args for the template.
	// +listType=atomic
	// +optional
	Args []Argument `json:"args,omitempty"`
	// RequiredForCompletion completes the experiment as soon as all analyses with this setting are successful.
	// +optional
	RequiredForCompletion bool `json:"requiredForCompletion,omitempty"`
}

// TemplateStatusCode is the state of one template.
type TemplateStatusCode string

// The states of a template.
const (
	TemplateStatusProgressing TemplateStatusCode = "Progressing"
	TemplateStatusRunning     TemplateStatusCode = "Running"
	TemplateStatusSuccessful  TemplateStatusCode = "Successful"
	TemplateStatusFailed      TemplateStatusCode = "Failed"
	TemplateStatusError       TemplateStatusCode = "Error"
)

// ExperimentStatus is the observed state of an experiment.
type ExperimentStatus struct {
	// Phase of the experiment.
	// +optional
	Phase AnalysisPhase `json:"phase,omitempty"`
	// Message is the reason for the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// AvailableAt is the time since which the pods of all templates have been available.
	// +optional
	AvailableAt *metav1.Time `json:"availableAt,omitempty"`
	// Conditions of the experiment.
	// +listType=atomic
	// +optional
	Conditions []ExperimentCondition `json:"conditions,omitempty"`
	// TemplateStatuses are the states of the templates.
	// +listType=atomic
	// +optional
	TemplateStatuses []TemplateStatus `json:"templateStatuses,omitempty"`
	// AnalysisRuns of the experiment.
	// +listType=atomic
	// +optional
	AnalysisRuns []ExperimentAnalysisRunStatus `json:"analysisRuns,omitempty"`
}

// ExperimentConditionType is the type of a condition.
type ExperimentConditionType string

// The conditions of an Experiment.
const (
	ExperimentInvalidSpec    ExperimentConditionType = "InvalidSpec"
	ExperimentCompleted      ExperimentConditionType = "Completed"
	ExperimentProgressing    ExperimentConditionType = "Progressing"
	ExperimentRunning        ExperimentConditionType = "Running"
	ExperimentReplicaFailure ExperimentConditionType = "ReplicaFailure"
)

// ExperimentCondition is one condition of an Experiment.
type ExperimentCondition struct {
	// Type of the condition.
	Type ExperimentConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// LastUpdateTime is the time of the last update of the condition.
	LastUpdateTime metav1.Time `json:"lastUpdateTime"`
	// LastTransitionTime is the time of the last change of the status.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// Reason for the status, in CamelCase.
	Reason string `json:"reason"`
	// Message describes the reason.
	Message string `json:"message"`
}

// TemplateStatus is the observed state of one template.
type TemplateStatus struct {
	// Name of the template.
	Name string `json:"name"`
	// Replicas is the number of pods.
	Replicas int32 `json:"replicas"`
	// UpdatedReplicas is the number of pods of the current template.
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// ReadyReplicas is the number of ready pods.
	ReadyReplicas int32 `json:"readyReplicas"`
	// AvailableReplicas is the number of available pods.
	AvailableReplicas int32 `json:"availableReplicas"`
	// CollisionCount is the number of times that the name of the ReplicaSet was already in use.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Status is Progressing, Running, Successful, Failed or Error.
	// +optional
	Status TemplateStatusCode `json:"status,omitempty"`
	// Message is the reason for the status.
	// +optional
	Message string `json:"message,omitempty"`
	// LastTransitionTime is the time of the last change of the status.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// ServiceName is the name of the Service for these pods.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
	// PodTemplateHash is the hash of the template.
	// +optional
	PodTemplateHash string `json:"podTemplateHash,omitempty"`
}

// ExperimentAnalysisRunStatus is the state of an AnalysisRun of an Experiment.
type ExperimentAnalysisRunStatus struct {
	// Name of the analysis.
	Name string `json:"name"`
	// AnalysisRun is the name of the run.
	AnalysisRun string `json:"analysisRun"`
	// Phase of the run.
	Phase AnalysisPhase `json:"phase"`
	// Message of the run.
	// +optional
	Message string `json:"message,omitempty"`
}
