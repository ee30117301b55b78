package v1alpha1

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RolloutPhase sums a Rollout up.
type RolloutPhase string

// The phases of a Rollout.
const (
	RolloutPhaseHealthy     RolloutPhase = "Healthy"
	RolloutPhaseDegraded    RolloutPhase = "Degraded"
	RolloutPhaseProgressing RolloutPhase = "Progressing"
	RolloutPhasePaused      RolloutPhase = "Paused"
)

// RolloutStatus is what the controller knows about the rollout. People act on a rollout by patching abort, promoteFull,
// pauseConditions and currentStepIndex.
type RolloutStatus struct {
	// Abort takes the traffic back to the stable revision. Set it to false to begin again.
	// +optional
	Abort bool `json:"abort,omitempty"`
	// PauseConditions are the reasons for which the release is held.
	// +listType=atomic
	// +optional
	PauseConditions []PauseCondition `json:"pauseConditions,omitempty"`
	// ControllerPause is true when the controller added the pause. True without pauseConditions: a person ended it.
	// +optional
	ControllerPause bool `json:"controllerPause,omitempty"`
	// AbortedAt is when the abort was noticed.
	// +optional
	AbortedAt *metav1.Time `json:"abortedAt,omitempty"`
	// CurrentPodHash is the hash of the template as it is now.
	// +optional
	CurrentPodHash string `json:"currentPodHash,omitempty"`
	// CurrentStepHash is the hash of the steps; empty for blue-green.
	// +optional
	CurrentStepHash string `json:"currentStepHash,omitempty"`
	// Replicas is how many pods there are of all revisions.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// UpdatedReplicas is how many pods there are of the template as it is now.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`
	// ReadyReplicas is how many pods are ready; blue-green: of the active revision.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// AvailableReplicas is how many pods are available; blue-green: of the active revision.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`
	// CurrentStepIndex is the step that is being carried out, from 0; the number of steps when all are done. Absent
	// without steps.
	// +optional
	CurrentStepIndex *int32 `json:"currentStepIndex,omitempty"`
	// CollisionCount is how often the name of a new ReplicaSet was taken.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// ObservedGeneration is the generation of the spec that was looked at last, as a text.
	// +optional
	ObservedGeneration string `json:"observedGeneration,omitempty"`
	// Conditions of the rollout; the one that changed last is the last.
	// +listType=atomic
	// +optional
	Conditions []RolloutCondition `json:"conditions,omitempty"`
	// Canary is the state of the canary strategy.
	// +optional
	Canary CanaryStatus `json:"canary,omitzero"`
	// BlueGreen is the state of the blue-green strategy.
	// +optional
	BlueGreen BlueGreenStatus `json:"blueGreen,omitzero"`
	// HPAReplicas is how many pods an autoscaler counts.
	// +optional
	HPAReplicas int32 `json:"HPAReplicas,omitempty"`
	// Selector is how an autoscaler finds the pods.
	// +optional
	Selector string `json:"selector,omitempty"`
	// StableRS is the hash of the revision that serves.
	// +optional
	StableRS string `json:"stableRS,omitempty"`
	// RestartedAt is the last restartAt that was carried out.
	// +optional
	RestartedAt *metav1.Time `json:"restartedAt,omitempty"`
	// PromoteFull asks for all steps, pauses and analyses to be skipped.
	// +optional
	PromoteFull bool `json:"promoteFull,omitempty"`
	// Phase sums the rollout up: Healthy, Degraded, Progressing or Paused.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`
	// Message says why it is in that phase.
	// +optional
	Message string `json:"message,omitempty"`
	// WorkloadObservedGeneration is the generation of the referenced workload that was looked at last, as a text.
	// +optional
	WorkloadObservedGeneration string `json:"workloadObservedGeneration,omitempty"`
	// ALB is what was seen of the load balancer, where target groups are verified.
	// +optional
	ALB *ALBStatus `json:"alb,omitempty"`
	// ALBs are what was seen of the load balancers, where target groups are verified.
	// +listType=atomic
	// +optional
	ALBs []ALBStatus `json:"albs,omitempty"`
	// Duration is how long the release has taken.
	// +optional
	Duration *RolloutDuration `json:"duration,omitempty"`
	// Serin is what Serin adds. Nothing outside Serin needs it.
	// +optional
	Serin *SerinStatus `json:"serin,omitempty"`
}

// PauseReason says why a release is held.
type PauseReason string

// The reasons for a pause.
const (
	PauseReasonCanaryPauseStep        PauseReason = "CanaryPauseStep"
	PauseReasonBlueGreenPause         PauseReason = "BlueGreenPause"
	PauseReasonInconclusiveAnalysis   PauseReason = "InconclusiveAnalysisRun"
	PauseReasonInconclusiveExperiment PauseReason = "InconclusiveExperiment"
)

// PauseCondition is one reason for which a release is held.
type PauseCondition struct {
	// Reason of the pause.
	Reason PauseReason `json:"reason"`
	// StartTime of the pause.
	StartTime metav1.Time `json:"startTime"`
}

// RolloutConditionType names a condition.
type RolloutConditionType string

// The conditions of a Rollout.
const (
	RolloutInvalidSpec    RolloutConditionType = "InvalidSpec"
	RolloutAvailable      RolloutConditionType = "Available"
	RolloutProgressing    RolloutConditionType = "Progressing"
	RolloutPaused         RolloutConditionType = "Paused"
	RolloutCompleted      RolloutConditionType = "Completed"
	RolloutHealthy        RolloutConditionType = "Healthy"
	RolloutReplicaFailure RolloutConditionType = "ReplicaFailure"
)

// RolloutCondition is one statement about a Rollout.
type RolloutCondition struct {
	// Type of the condition.
	Type RolloutConditionType `json:"type"`
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

// PingPongType says which of two Services is meant.
type PingPongType string

// The two Services.
const (
	Ping PingPongType = "ping"
	Pong PingPongType = "pong"
)

// CanaryStatus is the state of the canary strategy.
type CanaryStatus struct {
	// CurrentStepAnalysisRunStatus is the analysis of the step.
	// +optional
	CurrentStepAnalysisRunStatus *RolloutAnalysisRunStatus `json:"currentStepAnalysisRunStatus,omitempty"`
	// CurrentBackgroundAnalysisRunStatus is the analysis beside the steps.
	// +optional
	CurrentBackgroundAnalysisRunStatus *RolloutAnalysisRunStatus `json:"currentBackgroundAnalysisRunStatus,omitempty"`
	// CurrentExperiment is the name of the Experiment of the step.
	// +optional
	CurrentExperiment string `json:"currentExperiment,omitempty"`
	// Weights are those that the router was told last; absent without traffic routing.
	// +optional
	Weights *TrafficWeights `json:"weights,omitempty"`
	// StablePingPong says which Service is the stable one.
	// +optional
	StablePingPong PingPongType `json:"stablePingPong,omitempty"`
	// StepPluginStatuses are the states of steps that plugins carry out.
	// +listType=atomic
	// +optional
	StepPluginStatuses []StepPluginStatus `json:"stepPluginStatuses,omitempty"`
}

// TrafficWeights are the shares of all destinations.
type TrafficWeights struct {
	// Canary is the share of the new revision.
	Canary WeightDestination `json:"canary"`
	// Stable is the share of the stable revision.
	Stable WeightDestination `json:"stable"`
	// Additional are shares of experiments.
	// +listType=atomic
	// +optional
	Additional []WeightDestination `json:"additional,omitempty"`
	// Verified is whether the router does what it was told; absent where it cannot tell.
	// +optional
	Verified *bool `json:"verified,omitempty"`
}

// WeightDestination is the share of one destination.
type WeightDestination struct {
	// Weight is its share.
	Weight int32 `json:"weight"`
	// ServiceName is its Service.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
	// PodTemplateHash is its revision.
	// +optional
	PodTemplateHash string `json:"podTemplateHash,omitempty"`
}

// RolloutAnalysisRunStatus is an AnalysisRun as its Rollout sees it.
type RolloutAnalysisRunStatus struct {
	// Name of the run.
	Name string `json:"name"`
	// Status is its phase.
	Status AnalysisPhase `json:"status"`
	// Message says why it is in that phase.
	// +optional
	Message string `json:"message,omitempty"`
}

// StepPluginOperation is what a plugin is asked to do.
type StepPluginOperation string

// What a plugin is asked to do.
const (
	StepPluginRun       StepPluginOperation = "Run"
	StepPluginTerminate StepPluginOperation = "Terminate"
	StepPluginAbort     StepPluginOperation = "Abort"
)

// StepPluginPhase is how far a plugin is.
type StepPluginPhase string

// How far a plugin is.
const (
	StepPluginRunning    StepPluginPhase = "Running"
	StepPluginSuccessful StepPluginPhase = "Successful"
	StepPluginFailed     StepPluginPhase = "Failed"
	StepPluginError      StepPluginPhase = "Error"
)

// StepPluginStatus is the state of one operation of one step.
type StepPluginStatus struct {
	// Index of the step, from 0.
	Index int32 `json:"index"`
	// Name of the plugin.
	Name string `json:"name"`
	// Operation is Run, Terminate or Abort.
	Operation StepPluginOperation `json:"operation"`
	// Phase is Running, Successful, Failed or Error.
	// +optional
	Phase StepPluginPhase `json:"phase,omitempty"`
	// Message of the plugin.
	// +optional
	Message string `json:"message,omitempty"`
	// StartedAt is when it was called first.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// UpdatedAt is when it was called last.
	// +optional
	UpdatedAt *metav1.Time `json:"updatedAt,omitempty"`
	// FinishedAt is when it was done.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Backoff is how long after a call the next one comes.
	// +optional
	Backoff DurationString `json:"backoff,omitempty"`
	// Executions is how often it was called.
	// +optional
	Executions int32 `json:"executions,omitempty"`
	// Disabled is true when the plugin is configured not to be called.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// Status is what the plugin wants to be told again.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Status json.RawMessage `json:"status,omitempty"`
}

// BlueGreenStatus is the state of the blue-green strategy.
type BlueGreenStatus struct {
	// PreviewSelector is the hash that the preview Service selects.
	// +optional
	PreviewSelector string `json:"previewSelector,omitempty"`
	// ActiveSelector is the hash that the active Service selects.
	// +optional
	ActiveSelector string `json:"activeSelector,omitempty"`
	// ScaleUpPreviewCheckPoint is true once the new revision may grow from previewReplicaCount to all pods.
	// +optional
	ScaleUpPreviewCheckPoint bool `json:"scaleUpPreviewCheckPoint,omitempty"`
	// PrePromotionAnalysisRunStatus is the analysis before the switch.
	// +optional
	PrePromotionAnalysisRunStatus *RolloutAnalysisRunStatus `json:"prePromotionAnalysisRunStatus,omitempty"`
	// PostPromotionAnalysisRunStatus is the analysis after the switch.
	// +optional
	PostPromotionAnalysisRunStatus *RolloutAnalysisRunStatus `json:"postPromotionAnalysisRunStatus,omitempty"`
}

// ALBStatus is what was seen of a load balancer.
type ALBStatus struct {
	// LoadBalancer itself.
	// +optional
	LoadBalancer AWSResourceRef `json:"loadBalancer,omitzero"`
	// CanaryTargetGroup is the target group of the new revision.
	// +optional
	CanaryTargetGroup AWSResourceRef `json:"canaryTargetGroup,omitzero"`
	// StableTargetGroup is the target group of the stable revision.
	// +optional
	StableTargetGroup AWSResourceRef `json:"stableTargetGroup,omitzero"`
	// Ingress that it belongs to.
	// +optional
	Ingress string `json:"ingress,omitempty"`
}

// AWSResourceRef names a resource of AWS.
type AWSResourceRef struct {
	// Name of it.
	Name string `json:"name"`
	// ARN of it.
	ARN string `json:"arn"`
	// FullName as metrics call it.
	// +optional
	FullName string `json:"fullName,omitempty"`
}

// CompletionStatus says how a release ended.
type CompletionStatus string

// How a release ended.
const (
	CompletionPromoted       CompletionStatus = "Promoted"
	CompletionFastPromoted   CompletionStatus = "FastPromoted"
	CompletionAborted        CompletionStatus = "Aborted"
	CompletionSuperseded     CompletionStatus = "Superseded"
	CompletionRolledBack     CompletionStatus = "RolledBack"
	CompletionFastRolledBack CompletionStatus = "FastRolledBack"
)

// RolloutDuration is how long a release has taken.
type RolloutDuration struct {
	// RolloutStartedAt is when it began.
	// +optional
	RolloutStartedAt *metav1.Time `json:"rolloutStartedAt,omitempty"`
	// ManualPauseStartedAt is since when a person holds it.
	// +optional
	ManualPauseStartedAt *metav1.Time `json:"manualPauseStartedAt,omitempty"`
	// TotalManualPauseDurationSeconds is how long persons held it, in seconds, the pause that is on not counted.
	// +optional
	TotalManualPauseDurationSeconds *int64 `json:"totalManualPauseDurationSeconds,omitempty"`
	// FinishedAt is when it ended.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// CompletionStatus says how it ended.
	// +optional
	CompletionStatus *CompletionStatus `json:"completionStatus,omitempty"`
}

// SerinStatus is what Serin adds to the status of a Rollout. Without it, where another definition of the resource drops
// it, a release ends in the same place.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SerinStatus struct {
	// Gates are the conditions that were looked at last.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +optional
	Gates []GateStatus `json:"gates,omitempty"`
	// PausedAt is the start of the newest pause with its fractions of a second, of which startTime has none: a pause is as
	// long as was asked for, and no part of a second shorter.
	// +optional
	PausedAt *metav1.MicroTime `json:"pausedAt,omitempty"`
	// Release is the hash of the revision that Serin brings into service; empty where nothing is under way.
	// +optional
	Release string `json:"release,omitempty"`
	// Routed are the routers whose objects hold what was written for the Rollout: those of the spec, and before them those
	// that it does not name any more, until what they hold is given back.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Routed []RoutedStatus `json:"routed,omitempty"`
	// CarriedBy is the number of pods that were enough for the traffic when it began to return to the stable revision; nil
	// while none returns. The stable revision gets its share back in proportion to it, whatever spec.replicas asks for since.
	// +optional
	CarriedBy *int32 `json:"carriedBy,omitempty"`
	// Queue is the place of a revision whose release waits for others to end.
	// +optional
	Queue *QueuePlace `json:"queue,omitempty"`
}

// QueuePlace is a place among the releases that wait because only so many may move at once.
type QueuePlace struct {
	// Since when it waits; those that wait longer go first.
	Since metav1.MicroTime `json:"since"`
	// Aside is true while something else holds it as well: it keeps its place, and those behind go ahead.
	// +optional
	Aside bool `json:"aside,omitempty"`
}

// RoutedStatus is whom a spec named to share the traffic.
type RoutedStatus struct {
	// CanaryService and StableService are the Services of the two sides.
	// +optional
	CanaryService string `json:"canaryService,omitempty"`
	// +optional
	StableService string `json:"stableService,omitempty"`
	// PingPong are the two Services that take turns.
	// +optional
	PingPong *PingPongSpec `json:"pingPong,omitempty"`
	// TrafficRouting is as in the spec.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	TrafficRouting RolloutTrafficRouting `json:"trafficRouting"`
	// Restored is true when the user's own objects are given back, and only what was made for the Rollout is left.
	// +optional
	Restored bool `json:"restored,omitempty"`
}

// GateStatus is one condition for the next transition of the release, as it was last evaluated. It has the fields of the gates
// of a Canary.
type GateStatus struct {
	// Name of the gate, for example pause, pods, analysis.
	Name string `json:"name"`
	// Verdict is pass, ask, wait or fail.
	Verdict string `json:"verdict"`
	// Message describes the observed state.
	// +optional
	Message string `json:"message,omitempty"`
	// Opener is who or what opens the gate: time, cluster, answer or person.
	// +optional
	Opener string `json:"opener,omitempty"`
	// Value that was measured, where the gate compares one.
	// +optional
	Value string `json:"value,omitempty"`
	// Limit that the value is compared with.
	// +optional
	Limit string `json:"limit,omitempty"`
	// Query that returned the value, with its arguments resolved.
	// +optional
	Query string `json:"query,omitempty"`
	// Since is the time since which the gate waits for the same, or passes.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// Until is the time at which the gate opens, or is evaluated again.
	// +optional
	Until *metav1.MicroTime `json:"until,omitempty"`
}
