package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Experiment runs pods of several templates side by side for a time and judges them.
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

	// Spec is what to run.
	Spec ExperimentSpec `json:"spec"`
	// Status is what has come of it.
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

// ExperimentSpec is what to run.
type ExperimentSpec struct {
	// Templates of the pods, one for each side.
	// +listType=atomic
	Templates []TemplateSpec `json:"templates"`
	// Duration for which they run once all are available. Without it: until the analyses decide, or somebody ends it.
	// +optional
	Duration DurationString `json:"duration,omitempty"`
	// ProgressDeadlineSeconds is how long the pods may take to get available, in seconds. Without it: 600.
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
	// Terminate ends the experiment.
	// +optional
	Terminate bool `json:"terminate,omitempty"`
	// Analyses that judge the sides.
	// +listType=atomic
	// +optional
	Analyses []ExperimentAnalysisTemplateRef `json:"analyses,omitempty"`
	// ScaleDownDelaySeconds is how long the pods stay at the end, in seconds. Without it: 30.
	// +optional
	ScaleDownDelaySeconds *int32 `json:"scaleDownDelaySeconds,omitempty"`
	// DryRun names metrics whose outcome is only recorded.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// MeasurementRetention says how many measurements are kept.
	// +listType=atomic
	// +optional
	MeasurementRetention []MeasurementRetention `json:"measurementRetention,omitempty"`
	// AnalysisRunMetadata is put on the AnalysisRuns.
	// +optional
	AnalysisRunMetadata *AnalysisRunMetadata `json:"analysisRunMetadata,omitempty"`
}

// TemplateSpec describes the pods of one side.
type TemplateSpec struct {
	// Name of the side.
	Name string `json:"name"`
	// Replicas is how many pods. Without it: 1.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// MinReadySeconds is how long a pod must have been ready to count as available, in seconds. Without it: 0.
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Selector of the pods.
	Selector *metav1.LabelSelector `json:"selector"`
	// Template of the pods.
	Template corev1.PodTemplateSpec `json:"template"`
	// Service asks for a Service for these pods.
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
	// RequiredForCompletion ends the experiment when all analyses of this kind are successful.
	// +optional
	RequiredForCompletion bool `json:"requiredForCompletion,omitempty"`
}

// TemplateStatusCode is how far one side is.
type TemplateStatusCode string

// How far one side is.
const (
	TemplateStatusProgressing TemplateStatusCode = "Progressing"
	TemplateStatusRunning     TemplateStatusCode = "Running"
	TemplateStatusSuccessful  TemplateStatusCode = "Successful"
	TemplateStatusFailed      TemplateStatusCode = "Failed"
	TemplateStatusError       TemplateStatusCode = "Error"
)

// ExperimentStatus is what has come of an experiment.
type ExperimentStatus struct {
	// Phase is what it has come to.
	// +optional
	Phase AnalysisPhase `json:"phase,omitempty"`
	// Message says why.
	// +optional
	Message string `json:"message,omitempty"`
	// AvailableAt is since when all sides are available.
	// +optional
	AvailableAt *metav1.Time `json:"availableAt,omitempty"`
	// Conditions of the experiment.
	// +listType=atomic
	// +optional
	Conditions []ExperimentCondition `json:"conditions,omitempty"`
	// TemplateStatuses are how far the sides are.
	// +listType=atomic
	// +optional
	TemplateStatuses []TemplateStatus `json:"templateStatuses,omitempty"`
	// AnalysisRuns that judge the sides.
	// +listType=atomic
	// +optional
	AnalysisRuns []ExperimentAnalysisRunStatus `json:"analysisRuns,omitempty"`
}

// ExperimentConditionType names a condition.
type ExperimentConditionType string

// The conditions of an Experiment.
const (
	ExperimentInvalidSpec    ExperimentConditionType = "InvalidSpec"
	ExperimentCompleted      ExperimentConditionType = "Completed"
	ExperimentProgressing    ExperimentConditionType = "Progressing"
	ExperimentRunning        ExperimentConditionType = "Running"
	ExperimentReplicaFailure ExperimentConditionType = "ReplicaFailure"
)

// ExperimentCondition is one statement about an Experiment.
type ExperimentCondition struct {
	// Type of the condition.
	Type ExperimentConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// LastUpdateTime is when it was written last.
	LastUpdateTime metav1.Time `json:"lastUpdateTime"`
	// LastTransitionTime is when its status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// Reason in one word.
	Reason string `json:"reason"`
	// Message in a sentence.
	Message string `json:"message"`
}

// TemplateStatus is how far one side is.
type TemplateStatus struct {
	// Name of the side.
	Name string `json:"name"`
	// Replicas is how many pods there are.
	Replicas int32 `json:"replicas"`
	// UpdatedReplicas is how many pods there are of the template as it is now.
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// ReadyReplicas is how many pods are ready.
	ReadyReplicas int32 `json:"readyReplicas"`
	// AvailableReplicas is how many pods are available.
	AvailableReplicas int32 `json:"availableReplicas"`
	// CollisionCount is how often the name of the ReplicaSet was taken.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Status is Progressing, Running, Successful, Failed or Error.
	// +optional
	Status TemplateStatusCode `json:"status,omitempty"`
	// Message says why.
	// +optional
	Message string `json:"message,omitempty"`
	// LastTransitionTime is when the status changed last.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// ServiceName is the Service of the side.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
	// PodTemplateHash is the hash of the side.
	// +optional
	PodTemplateHash string `json:"podTemplateHash,omitempty"`
}

// ExperimentAnalysisRunStatus is an AnalysisRun as its Experiment sees it.
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
