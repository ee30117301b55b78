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

	// Spec is what the user asks for.
	Spec RolloutSpec `json:"spec"`
	// Status is what the controller knows about the rollout.
	// +optional
	Status RolloutStatus `json:"status,omitzero"`

	// Unreadable are JSON pointers to what is stored and could not be read, such as a quantity that is none. The object
	// was read without it.
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

// RolloutSpec is what the user asks for.
type RolloutSpec struct {
	// Replicas is how many pods shall serve. Without it: 1, which is written back so that an autoscaler can change it.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Selector finds the pods of this Rollout. It must match the labels of the template and cannot be changed. With
	// workloadRef it may be absent: that of the workload is used.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message=".spec.selector is immutable"
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Template describes the pods. A change of it begins a release. It must be empty where workloadRef is given.
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitzero"`

	// WorkloadRef takes the template from another workload instead.
	// +optional
	WorkloadRef *ObjectRef `json:"workloadRef,omitempty"`

	// MinReadySeconds is how long a pod must have been ready, in seconds, to count as available. Without it: 0.
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// RollbackWindow lets a release skip its steps when it goes back to a revision that is recent enough.
	// +optional
	RollbackWindow *RollbackWindowSpec `json:"rollbackWindow,omitempty"`

	// Strategy says how a changed template comes into service: exactly one of canary and blueGreen.
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitzero"`

	// RevisionHistoryLimit is how many ReplicaSets without pods are kept, beside those in use. Without it: 10.
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// Paused holds everything where it is: nothing is scaled and no step is left until it is false again.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// ProgressDeadlineSeconds is how long, in seconds, a release may stay without progress before it counts as
	// degraded. Pauses, analyses and experiments do not count. Without it: 600.
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// ProgressDeadlineAbort aborts the release at that deadline.
	// +optional
	ProgressDeadlineAbort bool `json:"progressDeadlineAbort,omitempty"`

	// RestartAt asks for all pods that are older than this moment to be replaced, once it has come.
	// +optional
	RestartAt *metav1.Time `json:"restartAt,omitempty"`

	// Analysis says how many AnalysisRuns and Experiments that have ended are kept.
	// +optional
	Analysis *AnalysisRunStrategy `json:"analysis,omitempty"`
}

// ScaleDown says what becomes of the pods of a referenced workload.
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
	// ScaleDown says what becomes of the pods that a Deployment has of its own: never (also without it) leaves them,
	// onsuccess takes them away when the first revision is healthy, progressively as the pods of that revision get ready.
	// +optional
	ScaleDown ScaleDown `json:"scaleDown,omitempty"`
}

// RollbackWindowSpec says how recent a revision must be for a fast way back.
type RollbackWindowSpec struct {
	// Revisions that may lie between the revision gone back to and the stable one, plus one. Without it: no window.
	// +optional
	Revisions int32 `json:"revisions,omitempty"`
}

// AnalysisRunStrategy bounds what is kept of AnalysisRuns and Experiments.
type AnalysisRunStrategy struct {
	// SuccessfulRunHistoryLimit is how many successful ones are kept. Without it: 5.
	// +optional
	SuccessfulRunHistoryLimit *int32 `json:"successfulRunHistoryLimit,omitempty"`
	// UnsuccessfulRunHistoryLimit is how many that failed, erred or were inconclusive are kept. Without it: 5.
	// +optional
	UnsuccessfulRunHistoryLimit *int32 `json:"unsuccessfulRunHistoryLimit,omitempty"`
}

// RolloutStrategy has exactly one field set.
type RolloutStrategy struct {
	// BlueGreen runs the new revision beside the old one and switches all traffic at once.
	// +optional
	BlueGreen *BlueGreenStrategy `json:"blueGreen,omitempty"`
	// Canary gives the new revision a growing part.
	// +optional
	Canary *CanaryStrategy `json:"canary,omitempty"`
}

// CanaryStrategy brings a new revision into service in steps.
type CanaryStrategy struct {
	// CanaryService is the Service whose selector follows the new revision.
	// +optional
	CanaryService string `json:"canaryService,omitempty"`
	// StableService is the Service whose selector follows the stable revision.
	// +optional
	StableService string `json:"stableService,omitempty"`
	// Steps of a release, in order. Without steps a release is a rolling update.
	// +listType=atomic
	// +optional
	Steps []CanaryStep `json:"steps,omitempty"`
	// TrafficRouting shares the traffic by requests. Without it the numbers of pods share it.
	// +optional
	TrafficRouting *RolloutTrafficRouting `json:"trafficRouting,omitempty"`
	// MaxUnavailable is how many pods may be missing during a release without traffic routing: a number, or a text,
	// which is a percentage with or without its sign and rounded down. Without it: 25%. Not 0 together with maxSurge 0.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge is how many pods there may be above replicas during a release without traffic routing: a number, or a
	// text, which is a percentage with or without its sign and rounded up. Without it: 25%.
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
	// Analysis runs beside the steps and aborts the release when it fails.
	// +optional
	Analysis *RolloutAnalysisBackground `json:"analysis,omitempty"`
	// AntiAffinity keeps pods of the new revision off the nodes of the stable one.
	// +optional
	AntiAffinity *AntiAffinity `json:"antiAffinity,omitempty"`
	// CanaryMetadata is put on the pods of the new revision while it is one.
	// +optional
	CanaryMetadata *PodTemplateMetadata `json:"canaryMetadata,omitempty"`
	// StableMetadata is put on the pods of the stable revision.
	// +optional
	StableMetadata *PodTemplateMetadata `json:"stableMetadata,omitempty"`
	// ScaleDownDelaySeconds is how long the pods of the earlier revision stay after promotion, in seconds. Only with
	// traffic routing. Without it: 30.
	// +optional
	ScaleDownDelaySeconds *int32 `json:"scaleDownDelaySeconds,omitempty"`
	// ScaleDownDelayRevisionLimit is how many earlier revisions may wait out that delay at a time. Without it: all.
	// +optional
	ScaleDownDelayRevisionLimit *int32 `json:"scaleDownDelayRevisionLimit,omitempty"`
	// AbortScaleDownDelaySeconds is how long the pods of an aborted revision stay, in seconds; 0 keeps them. Only with
	// traffic routing. Without it: 30.
	// +optional
	AbortScaleDownDelaySeconds *int32 `json:"abortScaleDownDelaySeconds,omitempty"`
	// DynamicStableScale takes pods of the stable revision away as its traffic goes. Only with traffic routing.
	// +optional
	DynamicStableScale bool `json:"dynamicStableScale,omitempty"`
	// PingPong uses two Services that change roles with each promotion.
	// +optional
	PingPong *PingPongSpec `json:"pingPong,omitempty"`
	// MinPodsPerReplicaSet is the least number of pods of a revision that has any. Only with traffic routing.
	// +optional
	MinPodsPerReplicaSet *int32 `json:"minPodsPerReplicaSet,omitempty"`
	// ReplicaProgressThreshold says how many pods of the new revision are enough to go on. Without it: all.
	// +optional
	ReplicaProgressThreshold *ReplicaProgressThreshold `json:"replicaProgressThreshold,omitempty"`
}

// ProgressThresholdType says what a progress threshold counts.
type ProgressThresholdType string

// What a progress threshold counts.
const (
	ProgressPercent ProgressThresholdType = "Percent"
	ProgressPods    ProgressThresholdType = "Pods"
)

// ReplicaProgressThreshold is a number of available pods that is enough.
type ReplicaProgressThreshold struct {
	// Type is Percent, of the pods that the step asks for, or Pods.
	Type ProgressThresholdType `json:"type"`
	// Value in that unit.
	Value int32 `json:"value"`
}

// PingPongSpec names two Services that take turns.
type PingPongSpec struct {
	// PingService is the one that the first promoted revision gets.
	PingService string `json:"pingService"`
	// PongService is the other one.
	PongService string `json:"pongService"`
}

// AntiAffinity has exactly one field set.
type AntiAffinity struct {
	// PreferredDuringSchedulingIgnoredDuringExecution keeps revisions apart where there is room.
	// +optional
	PreferredDuringSchedulingIgnoredDuringExecution *PreferredDuringSchedulingIgnoredDuringExecution `json:"preferredDuringSchedulingIgnoredDuringExecution,omitempty"`
	// RequiredDuringSchedulingIgnoredDuringExecution keeps revisions apart always.
	// +optional
	RequiredDuringSchedulingIgnoredDuringExecution *RequiredDuringSchedulingIgnoredDuringExecution `json:"requiredDuringSchedulingIgnoredDuringExecution,omitempty"`
}

// PreferredDuringSchedulingIgnoredDuringExecution is a wish with a weight.
type PreferredDuringSchedulingIgnoredDuringExecution struct {
	// Weight of the wish beside others, 1 to 100.
	Weight int32 `json:"weight"`
}

// RequiredDuringSchedulingIgnoredDuringExecution is a condition.
type RequiredDuringSchedulingIgnoredDuringExecution struct{}

// BlueGreenStrategy switches all traffic at once.
type BlueGreenStrategy struct {
	// ActiveService is the Service that users reach.
	ActiveService string `json:"activeService"`
	// PreviewService is the Service that reaches the new revision before the switch.
	// +optional
	PreviewService string `json:"previewService,omitempty"`
	// PreviewReplicaCount is how many pods the new revision has before the switch. Without it: replicas.
	// +optional
	PreviewReplicaCount *int32 `json:"previewReplicaCount,omitempty"`
	// AutoPromotionEnabled switches without a person. Without it: true.
	// +optional
	AutoPromotionEnabled *bool `json:"autoPromotionEnabled,omitempty"`
	// AutoPromotionSeconds is how long the switch waits for a person before it goes on by itself, in seconds. Without
	// it: 0, no waiting.
	// +optional
	AutoPromotionSeconds int32 `json:"autoPromotionSeconds,omitempty"`
	// MaxUnavailable is how many pods may be missing during a restart. Without it: 25%.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// ScaleDownDelaySeconds is how long the pods of the earlier revision stay after the switch, in seconds. Without
	// it: 30.
	// +optional
	ScaleDownDelaySeconds *int32 `json:"scaleDownDelaySeconds,omitempty"`
	// ScaleDownDelayRevisionLimit is how many earlier revisions may wait out that delay at a time. Without it: all.
	// +optional
	ScaleDownDelayRevisionLimit *int32 `json:"scaleDownDelayRevisionLimit,omitempty"`
	// PrePromotionAnalysis runs before the switch.
	// +optional
	PrePromotionAnalysis *RolloutAnalysis `json:"prePromotionAnalysis,omitempty"`
	// PostPromotionAnalysis runs after the switch, which is undone when it fails.
	// +optional
	PostPromotionAnalysis *RolloutAnalysis `json:"postPromotionAnalysis,omitempty"`
	// AntiAffinity keeps pods of the new revision off the nodes of the active one.
	// +optional
	AntiAffinity *AntiAffinity `json:"antiAffinity,omitempty"`
	// PreviewMetadata is put on the pods of the new revision before the switch.
	// +optional
	PreviewMetadata *PodTemplateMetadata `json:"previewMetadata,omitempty"`
	// ActiveMetadata is put on the pods of the active revision.
	// +optional
	ActiveMetadata *PodTemplateMetadata `json:"activeMetadata,omitempty"`
	// AbortScaleDownDelaySeconds is how long the pods of an aborted revision stay, in seconds; 0 keeps them. Without
	// it: 30.
	// +optional
	AbortScaleDownDelaySeconds *int32 `json:"abortScaleDownDelaySeconds,omitempty"`
}

// PodTemplateMetadata are labels and annotations.
type PodTemplateMetadata struct {
	// Labels by key.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations by key.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}
