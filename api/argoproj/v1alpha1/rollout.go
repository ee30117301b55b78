package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Rollout runs the pods of one template, as a Deployment does, and brings a changed template into service step by step.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rollouts,singular=rollout,shortName=ro,scope=Namespaced
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.HPAReplicas,selectorpath=.status.selector
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=".spec.replicas",description="Pods that are asked for"
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=".status.replicas",description="Pods of all revisions"
// +kubebuilder:printcolumn:name="Up-to-date",type=integer,JSONPath=".status.updatedReplicas",description="Pods of the template as it is now"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=".status.availableReplicas",description="Pods that have been ready for minReadySeconds"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Rollout struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the desired state.
	Spec RolloutSpec `json:"spec"`
	// Status is the observed state.
	// +optional
	Status RolloutStatus `json:"status,omitzero"`

	// Unreadable has JSON pointers to stored values that could not be decoded, such as an invalid quantity. The object was
	// decoded without them.
	Unreadable []string `json:"-"`
}

// RolloutList is a list of Rollouts.
//
// +kubebuilder:object:root=true
type RolloutList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Rollout `json:"items"`
}

// RolloutSpec is the desired state of a Rollout.
type RolloutSpec struct {
	// Replicas is the desired number of pods. Defaults to 1, which is written to the spec so that an autoscaler can change
	// it.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Selector selects the pods of this Rollout. It must match the labels of the template and cannot be changed. It may be
	// omitted with workloadRef: the selector of the workload is used.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message=".spec.selector is immutable"
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Template describes the pods. A change of it starts a release. It must be empty if workloadRef is set.
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitzero"`

	// WorkloadRef names another workload, whose template is used.
	// +optional
	WorkloadRef *ObjectRef `json:"workloadRef,omitempty"`

	// MinReadySeconds is how long a pod must have been ready, in seconds, to count as available. Defaults to 0.
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// RollbackWindow lets a release skip its steps if it returns to a recent revision.
	// +optional
	RollbackWindow *RollbackWindowSpec `json:"rollbackWindow,omitempty"`

	// Strategy is how a changed template is released: exactly one of canary and blueGreen.
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitzero"`

	// RevisionHistoryLimit is the number of ReplicaSets without pods that are kept, in addition to those in use. Defaults to
	// 10.
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// Paused suspends the Rollout: no pods are scaled and no step ends until it is false again.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// ProgressDeadlineSeconds is the time, in seconds, that a release may take without progress before it is degraded.
	// Pauses, analyses and experiments do not count. Defaults to 600.
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// ProgressDeadlineAbort aborts the release at that deadline.
	// +optional
	ProgressDeadlineAbort bool `json:"progressDeadlineAbort,omitempty"`

	// RestartAt requests that all pods created before this time are replaced, once it has passed.
	// +optional
	RestartAt *metav1.Time `json:"restartAt,omitempty"`

	// Analysis sets how many completed AnalysisRuns and Experiments are kept.
	// +optional
	Analysis *AnalysisRunStrategy `json:"analysis,omitempty"`
}

// ScaleDown is when the pods of a referenced workload are scaled down.
type ScaleDown string

// The ways to scale a referenced Deployment down.
const (
	ScaleDownNever         ScaleDown = "never"
	ScaleDownOnSuccess     ScaleDown = "onsuccess"
	ScaleDownProgressively ScaleDown = "progressively"
)

// ObjectRef names the workload whose template is used.
type ObjectRef struct {
	// APIVersion of the workload: apps/v1, or v1 for a PodTemplate.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the workload: Deployment, ReplicaSet or PodTemplate.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the workload, in the namespace of the Rollout.
	// +optional
	Name string `json:"name,omitempty"`
	// ScaleDown is when the pods of a referenced Deployment are scaled down: never (the default), onsuccess (once the first
	// revision of the Rollout is healthy), or progressively (as the pods of that revision become ready).
	// +optional
	ScaleDown ScaleDown `json:"scaleDown,omitempty"`
}

// RollbackWindowSpec is how recent a revision must be for a rollback without steps.
type RollbackWindowSpec struct {
	// Revisions is the number of revisions, counted back from the stable one, to which a release may return without steps. If
	// omitted, there is no window.
	// +optional
	Revisions int32 `json:"revisions,omitempty"`
}

// AnalysisRunStrategy limits the number of completed AnalysisRuns and Experiments.
type AnalysisRunStrategy struct {
	// SuccessfulRunHistoryLimit is the number of successful ones that are kept. Defaults to 5.
	// +optional
	SuccessfulRunHistoryLimit *int32 `json:"successfulRunHistoryLimit,omitempty"`
	// UnsuccessfulRunHistoryLimit is the number of failed, inconclusive and erroneous ones that are kept. Defaults to 5.
	// +optional
	UnsuccessfulRunHistoryLimit *int32 `json:"unsuccessfulRunHistoryLimit,omitempty"`
}

// RolloutStrategy is the strategy of releases. Exactly one field must be set.
type RolloutStrategy struct {
	// BlueGreen runs the new revision next to the active one and switches all traffic at once.
	// +optional
	BlueGreen *BlueGreenStrategy `json:"blueGreen,omitempty"`
	// Canary shifts traffic to the new revision in steps.
	// +optional
	Canary *CanaryStrategy `json:"canary,omitempty"`
}

// CanaryStrategy releases a new revision in steps.
type CanaryStrategy struct {
	// CanaryService is the Service whose selector is set to the new revision.
	// +optional
	CanaryService string `json:"canaryService,omitempty"`
	// StableService is the Service whose selector is set to the stable revision.
	// +optional
	StableService string `json:"stableService,omitempty"`
	// Steps of a release, in order. If omitted, a release is a rolling update.
	// +listType=atomic
	// +optional
	Steps []CanaryStep `json:"steps,omitempty"`
	// TrafficRouting splits the traffic by requests. If omitted, the traffic is split by the numbers of pods.
	// +optional
	TrafficRouting *RolloutTrafficRouting `json:"trafficRouting,omitempty"`
	// MaxUnavailable is how many pods may be unavailable during a release without traffic routing: a number, or a string,
	// which is a percentage with or without its sign and rounded down. Defaults to 25%. It must not be 0 if maxSurge is 0.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge is how many pods may exist in addition to replicas during a release without traffic routing: a number, or a
	// string, which is a percentage with or without its sign and rounded up. Defaults to 25%.
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
	// Analysis runs in the background during the steps and aborts the release if it fails.
	// +optional
	Analysis *RolloutAnalysisBackground `json:"analysis,omitempty"`
	// AntiAffinity keeps pods of the new revision off the nodes of the stable revision.
	// +optional
	AntiAffinity *AntiAffinity `json:"antiAffinity,omitempty"`
	// CanaryMetadata is added to the pods of the new revision until it is promoted.
	// +optional
	CanaryMetadata *PodTemplateMetadata `json:"canaryMetadata,omitempty"`
	// StableMetadata is added to the pods of the stable revision.
	// +optional
	StableMetadata *PodTemplateMetadata `json:"stableMetadata,omitempty"`
	// ScaleDownDelaySeconds is how long the pods of the previous revision keep running after promotion, in seconds. Only with
	// traffic routing. Defaults to 30.
	// +optional
	ScaleDownDelaySeconds *int32 `json:"scaleDownDelaySeconds,omitempty"`
	// ScaleDownDelayRevisionLimit is how many previous revisions may be delayed at a time. Defaults to all.
	// +optional
	ScaleDownDelayRevisionLimit *int32 `json:"scaleDownDelayRevisionLimit,omitempty"`
	// AbortScaleDownDelaySeconds is how long the pods of an aborted revision keep running, in seconds; 0 never scales them
	// down. Only with traffic routing. Defaults to 30.
	// +optional
	AbortScaleDownDelaySeconds *int32 `json:"abortScaleDownDelaySeconds,omitempty"`
	// DynamicStableScale scales the stable revision down as its traffic decreases. Only with traffic routing.
	// +optional
	DynamicStableScale bool `json:"dynamicStableScale,omitempty"`
	// PingPong uses two Services that exchange their roles with each promotion.
	// +optional
	PingPong *PingPongSpec `json:"pingPong,omitempty"`
	// MinPodsPerReplicaSet is the minimum number of pods of a revision that has any. Only with traffic routing.
	// +optional
	MinPodsPerReplicaSet *int32 `json:"minPodsPerReplicaSet,omitempty"`
	// ReplicaProgressThreshold is how many available pods of the new revision complete a step. Defaults to all.
	// +optional
	ReplicaProgressThreshold *ReplicaProgressThreshold `json:"replicaProgressThreshold,omitempty"`
}

// ProgressThresholdType is the unit of a progress threshold.
type ProgressThresholdType string

// The units of a progress threshold.
const (
	ProgressPercent ProgressThresholdType = "Percent"
	ProgressPods    ProgressThresholdType = "Pods"
)

// ReplicaProgressThreshold is a sufficient number of available pods.
type ReplicaProgressThreshold struct {
	// Type is Percent, of the pods that the step requires, or Pods.
	Type ProgressThresholdType `json:"type"`
	// Value in that unit.
	Value int32 `json:"value"`
}

// PingPongSpec names two Services that exchange their roles.
type PingPongSpec struct {
	// PingService selects the first promoted revision.
	PingService string `json:"pingService"`
	// PongService is the other Service.
	PongService string `json:"pongService"`
}

// AntiAffinity is a rule for the scheduler. Exactly one field must be set.
type AntiAffinity struct {
	// PreferredDuringSchedulingIgnoredDuringExecution keeps revisions on different nodes if possible.
	// +optional
	PreferredDuringSchedulingIgnoredDuringExecution *PreferredDuringSchedulingIgnoredDuringExecution `json:"preferredDuringSchedulingIgnoredDuringExecution,omitempty"`
	// RequiredDuringSchedulingIgnoredDuringExecution always keeps revisions on different nodes.
	// +optional
	RequiredDuringSchedulingIgnoredDuringExecution *RequiredDuringSchedulingIgnoredDuringExecution `json:"requiredDuringSchedulingIgnoredDuringExecution,omitempty"`
}

// PreferredDuringSchedulingIgnoredDuringExecution is a preference with a weight.
type PreferredDuringSchedulingIgnoredDuringExecution struct {
	// Weight of the preference among others, 1 to 100.
	Weight int32 `json:"weight"`
}

// RequiredDuringSchedulingIgnoredDuringExecution is a requirement.
type RequiredDuringSchedulingIgnoredDuringExecution struct{}

// BlueGreenStrategy switches all traffic at once.
type BlueGreenStrategy struct {
	// ActiveService is the Service that users call.
	ActiveService string `json:"activeService"`
	// PreviewService is the Service that selects the new revision before the switch.
	// +optional
	PreviewService string `json:"previewService,omitempty"`
	// PreviewReplicaCount is the number of pods of the new revision before the switch. Defaults to replicas.
	// +optional
	PreviewReplicaCount *int32 `json:"previewReplicaCount,omitempty"`
	// AutoPromotionEnabled promotes the new revision without an action of the user. Defaults to true.
	// +optional
	AutoPromotionEnabled *bool `json:"autoPromotionEnabled,omitempty"`
	// AutoPromotionSeconds is how long the release waits for the user to promote it before it is promoted automatically, in
	// seconds. Defaults to 0: it does not wait.
	// +optional
	AutoPromotionSeconds int32 `json:"autoPromotionSeconds,omitempty"`
	// MaxUnavailable is how many pods may be unavailable during a restart. Defaults to 25%.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// ScaleDownDelaySeconds is how long the pods of the previous revision keep running after the switch, in seconds. Defaults
	// to 30.
	// +optional
	ScaleDownDelaySeconds *int32 `json:"scaleDownDelaySeconds,omitempty"`
	// ScaleDownDelayRevisionLimit is how many previous revisions may be delayed at a time. Defaults to all.
	// +optional
	ScaleDownDelayRevisionLimit *int32 `json:"scaleDownDelayRevisionLimit,omitempty"`
	// PrePromotionAnalysis runs before the switch.
	// +optional
	PrePromotionAnalysis *RolloutAnalysis `json:"prePromotionAnalysis,omitempty"`
	// PostPromotionAnalysis runs after the switch, which is undone if it fails.
	// +optional
	PostPromotionAnalysis *RolloutAnalysis `json:"postPromotionAnalysis,omitempty"`
	// AntiAffinity keeps pods of the new revision off the nodes of the active revision.
	// +optional
	AntiAffinity *AntiAffinity `json:"antiAffinity,omitempty"`
	// PreviewMetadata is added to the pods of the new revision before the switch.
	// +optional
	PreviewMetadata *PodTemplateMetadata `json:"previewMetadata,omitempty"`
	// ActiveMetadata is added to the pods of the active revision.
	// +optional
	ActiveMetadata *PodTemplateMetadata `json:"activeMetadata,omitempty"`
	// AbortScaleDownDelaySeconds is how long the pods of an aborted revision keep running, in seconds; 0 never scales them
	// down. Defaults to 30.
	// +optional
	AbortScaleDownDelaySeconds *int32 `json:"abortScaleDownDelaySeconds,omitempty"`
}

// PodTemplateMetadata has labels and annotations for pods.
type PodTemplateMetadata struct {
	// Labels by key.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations by key.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}
