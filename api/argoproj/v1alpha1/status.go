package v1alpha1

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RolloutPhase summarizes the state of a Rollout.
type RolloutPhase string

// The phases of a Rollout.
const (
	RolloutPhaseHealthy     RolloutPhase = "Healthy"
	RolloutPhaseDegraded    RolloutPhase = "Degraded"
	RolloutPhaseProgressing RolloutPhase = "Progressing"
	RolloutPhasePaused      RolloutPhase = "Paused"
)

// RolloutStatus is the observed state of a Rollout. Users control a release by patching abort, promoteFull, pauseConditions
// and currentStepIndex.
type RolloutStatus struct {
	// Abort returns the traffic to the stable revision. Set it to false to retry the release.
	// +optional
	Abort bool `json:"abort,omitempty"`
	// PauseConditions are the reasons for which the release is paused.
	// +listType=atomic
	// +optional
	PauseConditions []PauseCondition `json:"pauseConditions,omitempty"`
	// ControllerPause is true if the controller paused the release. If it is true and there are no pauseConditions, the user
	// ended the pause.
	// +optional
	ControllerPause bool `json:"controllerPause,omitempty"`
	// AbortedAt is the time at which the controller observed the abort.
	// +optional
	AbortedAt *metav1.Time `json:"abortedAt,omitempty"`
	// CurrentPodHash is the hash of the current template.
	// +optional
	CurrentPodHash string `json:"currentPodHash,omitempty"`
	// CurrentStepHash is the hash of the steps; empty for blue-green.
	// +optional
	CurrentStepHash string `json:"currentStepHash,omitempty"`
	// Replicas is the number of pods of all revisions.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// UpdatedReplicas is the number of pods of the current template.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`
	// ReadyReplicas is the number of ready pods; with blue-green, those of the active revision.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// AvailableReplicas is the number of available pods; with blue-green, those of the active revision.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`
	// CurrentStepIndex is the index of the current step, from 0, or the number of steps once all are completed. It is absent
	// if there are no steps.
	// +optional
	CurrentStepIndex *int32 `json:"currentStepIndex,omitempty"`
	// CollisionCount is the number of times that the name of a new ReplicaSet was already in use.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// ObservedGeneration is the last observed generation of the spec, as a string.
	// +optional
	ObservedGeneration string `json:"observedGeneration,omitempty"`
	// Conditions of the Rollout, ordered by their last change.
	// +listType=atomic
	// +optional
	Conditions []RolloutCondition `json:"conditions,omitempty"`
	// Canary is the state of the canary strategy.
	// +optional
	Canary CanaryStatus `json:"canary,omitzero"`
	// BlueGreen is the state of the blue-green strategy.
	// +optional
	BlueGreen BlueGreenStatus `json:"blueGreen,omitzero"`
	// HPAReplicas is the number of pods that an autoscaler counts.
	// +optional
	HPAReplicas int32 `json:"HPAReplicas,omitempty"`
	// Selector with which an autoscaler selects the pods.
	// +optional
	Selector string `json:"selector,omitempty"`
	// StableRS is the hash of the stable revision.
	// +optional
	StableRS string `json:"stableRS,omitempty"`
	// RestartedAt is the last restartAt for which all pods were restarted.
	// +optional
	RestartedAt *metav1.Time `json:"restartedAt,omitempty"`
	// PromoteFull requests that all remaining steps, pauses and analyses are skipped.
	// +optional
	PromoteFull bool `json:"promoteFull,omitempty"`
	// Phase summarizes the state: Healthy, Degraded, Progressing or Paused.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`
	// Message is the reason for the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// WorkloadObservedGeneration is the last observed generation of the referenced workload, as a string.
	// +optional
	WorkloadObservedGeneration string `json:"workloadObservedGeneration,omitempty"`
	// ALB is the observed state of the load balancer, if target groups are verified.
	// +optional
	ALB *ALBStatus `json:"alb,omitempty"`
	// ALBs are the observed states of the load balancers, if target groups are verified.
	// +listType=atomic
	// +optional
	ALBs []ALBStatus `json:"albs,omitempty"`
	// Duration is the duration of the release.
	// +optional
	Duration *RolloutDuration `json:"duration,omitempty"`
	// Serin has the fields that Serin adds. No other tool needs them.
	// +optional
	Serin *SerinStatus `json:"serin,omitempty"`
}

// PauseReason is the reason for a pause.
type PauseReason string

// The reasons for a pause.
const (
	PauseReasonCanaryPauseStep        PauseReason = "CanaryPauseStep"
	PauseReasonBlueGreenPause         PauseReason = "BlueGreenPause"
	PauseReasonInconclusiveAnalysis   PauseReason = "InconclusiveAnalysisRun"
	PauseReasonInconclusiveExperiment PauseReason = "InconclusiveExperiment"
)

// PauseCondition is one reason for which a release is paused.
type PauseCondition struct {
	// Reason of the pause.
	Reason PauseReason `json:"reason"`
	// StartTime of the pause.
	StartTime metav1.Time `json:"startTime"`
}

// RolloutConditionType is the type of a condition.
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

// RolloutCondition is one condition of a Rollout.
type RolloutCondition struct {
	// Type of the condition.
	Type RolloutConditionType `json:"type"`
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

// PingPongType is one of the two Services of a ping-pong strategy.
type PingPongType string

// The two Services.
const (
	Ping PingPongType = "ping"
	Pong PingPongType = "pong"
)

// CanaryStatus is the state of the canary strategy.
type CanaryStatus struct {
	// CurrentStepAnalysisRunStatus is the AnalysisRun of the current step.
	// +optional
	CurrentStepAnalysisRunStatus *RolloutAnalysisRunStatus `json:"currentStepAnalysisRunStatus,omitempty"`
	// CurrentBackgroundAnalysisRunStatus is the AnalysisRun that runs in the background during the steps.
	// +optional
	CurrentBackgroundAnalysisRunStatus *RolloutAnalysisRunStatus `json:"currentBackgroundAnalysisRunStatus,omitempty"`
	// CurrentExperiment is the name of the Experiment of the current step.
	// +optional
	CurrentExperiment string `json:"currentExperiment,omitempty"`
	// Weights are the weights that were last set in the router. They are absent without traffic routing.
	// +optional
	Weights *TrafficWeights `json:"weights,omitempty"`
	// StablePingPong is the Service that selects the stable revision.
	// +optional
	StablePingPong PingPongType `json:"stablePingPong,omitempty"`
	// StepPluginStatuses are the states of the plugin steps.
	// +listType=atomic
	// +optional
	StepPluginStatuses []StepPluginStatus `json:"stepPluginStatuses,omitempty"`
}

// TrafficWeights has the weights of all destinations.
type TrafficWeights struct {
	// Canary is the weight of the new revision.
	Canary WeightDestination `json:"canary"`
	// Stable is the weight of the stable revision.
	Stable WeightDestination `json:"stable"`
	// Additional are the weights of experiments.
	// +listType=atomic
	// +optional
	Additional []WeightDestination `json:"additional,omitempty"`
	// Verified is true if the router serves these weights. It is absent if the router cannot report that.
	// +optional
	Verified *bool `json:"verified,omitempty"`
}

// WeightDestination is the weight of one destination.
type WeightDestination struct {
	// Weight of the destination.
	Weight int32 `json:"weight"`
	// ServiceName is the Service of the destination.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
	// PodTemplateHash is the revision of the destination.
	// +optional
	PodTemplateHash string `json:"podTemplateHash,omitempty"`
}

// RolloutAnalysisRunStatus is the state of an AnalysisRun of a Rollout.
type RolloutAnalysisRunStatus struct {
	// Name of the run.
	Name string `json:"name"`
	// Status is the phase of the run.
	Status AnalysisPhase `json:"status"`
	// Message is the reason for the phase.
	// +optional
	Message string `json:"message,omitempty"`
}

// StepPluginOperation is an operation of a step plugin.
type StepPluginOperation string

// The operations of a step plugin.
const (
	StepPluginRun       StepPluginOperation = "Run"
	StepPluginTerminate StepPluginOperation = "Terminate"
	StepPluginAbort     StepPluginOperation = "Abort"
)

// StepPluginPhase is the phase of an operation of a step plugin.
type StepPluginPhase string

// The phases of an operation of a step plugin.
const (
	StepPluginRunning    StepPluginPhase = "Running"
	StepPluginSuccessful StepPluginPhase = "Successful"
	StepPluginFailed     StepPluginPhase = "Failed"
	StepPluginError      StepPluginPhase = "Error"
)

// StepPluginStatus is the state of one operation for one step.
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
	// StartedAt is the time of the first call.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// UpdatedAt is the time of the last call.
	// +optional
	UpdatedAt *metav1.Time `json:"updatedAt,omitempty"`
	// FinishedAt is the time at which the operation ended.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Backoff is the delay between two calls.
	// +optional
	Backoff DurationString `json:"backoff,omitempty"`
	// Executions is the number of calls.
	// +optional
	Executions int32 `json:"executions,omitempty"`
	// Disabled is true if the plugin is disabled in the configuration of the controller.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// Status is the state that the plugin returned. It is passed to the next call.
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
	// ScaleUpPreviewCheckPoint is true once the new revision may be scaled up from previewReplicaCount to all pods.
	// +optional
	ScaleUpPreviewCheckPoint bool `json:"scaleUpPreviewCheckPoint,omitempty"`
	// PrePromotionAnalysisRunStatus is the AnalysisRun before the switch.
	// +optional
	PrePromotionAnalysisRunStatus *RolloutAnalysisRunStatus `json:"prePromotionAnalysisRunStatus,omitempty"`
	// PostPromotionAnalysisRunStatus is the AnalysisRun after the switch.
	// +optional
	PostPromotionAnalysisRunStatus *RolloutAnalysisRunStatus `json:"postPromotionAnalysisRunStatus,omitempty"`
}

// ALBStatus is the observed state of a load balancer.
type ALBStatus struct {
	// LoadBalancer is the load balancer itself.
	// +optional
	LoadBalancer AWSResourceRef `json:"loadBalancer,omitzero"`
	// CanaryTargetGroup is the target group of the new revision.
	// +optional
	CanaryTargetGroup AWSResourceRef `json:"canaryTargetGroup,omitzero"`
	// StableTargetGroup is the target group of the stable revision.
	// +optional
	StableTargetGroup AWSResourceRef `json:"stableTargetGroup,omitzero"`
	// Ingress that configures the load balancer.
	// +optional
	Ingress string `json:"ingress,omitempty"`
}

// AWSResourceRef names a resource of AWS.
type AWSResourceRef struct {
	// Name of the resource.
	Name string `json:"name"`
	// ARN of the resource.
	ARN string `json:"arn"`
	// FullName of the resource, as CloudWatch metrics use it.
	// +optional
	FullName string `json:"fullName,omitempty"`
}

// CompletionStatus is the outcome of a release.
type CompletionStatus string

// The outcomes of a release.
const (
	CompletionPromoted       CompletionStatus = "Promoted"
	CompletionFastPromoted   CompletionStatus = "FastPromoted"
	CompletionAborted        CompletionStatus = "Aborted"
	CompletionSuperseded     CompletionStatus = "Superseded"
	CompletionRolledBack     CompletionStatus = "RolledBack"
	CompletionFastRolledBack CompletionStatus = "FastRolledBack"
)

// RolloutDuration is the duration of a release.
type RolloutDuration struct {
	// RolloutStartedAt is the time at which the release started.
	// +optional
	RolloutStartedAt *metav1.Time `json:"rolloutStartedAt,omitempty"`
	// ManualPauseStartedAt is the time since which the release has been waiting for the user.
	// +optional
	ManualPauseStartedAt *metav1.Time `json:"manualPauseStartedAt,omitempty"`
	// TotalManualPauseDurationSeconds is how long the release has waited for the user, in seconds, without the current pause.
	// +optional
	TotalManualPauseDurationSeconds *int64 `json:"totalManualPauseDurationSeconds,omitempty"`
	// FinishedAt is the time at which the release ended.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// CompletionStatus is the outcome of the release.
	// +optional
	CompletionStatus *CompletionStatus `json:"completionStatus,omitempty"`
}

// SerinStatus has the fields that Serin adds to the status of a Rollout. If another CustomResourceDefinition prunes them, a
// release still has the same result.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SerinStatus struct {
	// Gates are the conditions for the next transition, as they were last evaluated.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +optional
	Gates []GateStatus `json:"gates,omitempty"`
	// PausedAt is the start of the newest pause with fractions of a second, which startTime lacks. With it, a pause is never
	// a fraction of a second shorter than requested.
	// +optional
	PausedAt *metav1.MicroTime `json:"pausedAt,omitempty"`
	// Release is the hash of the revision that Serin is releasing. It is empty if no release is in progress.
	// +optional
	Release string `json:"release,omitempty"`
	// Routed are the routers whose objects were written for the Rollout: those of the spec, and before them those that the
	// spec does not name any longer, until their objects are restored.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Routed []RoutedStatus `json:"routed,omitempty"`
	// CarriedBy is the number of pods that were sufficient for the traffic when it began to return to the stable revision. It
	// is absent while no traffic returns. The share of the stable revision grows in proportion to it, whatever spec.replicas
	// requests in the meantime.
	// +optional
	CarriedBy *int32 `json:"carriedBy,omitempty"`
	// RouterPlugins is the route that router plugins apply. It is absent if the Rollout never had a router plugin.
	// +optional
	RouterPlugins *RouterPluginsStatus `json:"routerPlugins,omitempty"`
	// Queue is the position of a release that waits for other releases to end.
	// +optional
	Queue *QueuePlace `json:"queue,omitempty"`
}

// RouterPluginsStatus is the route that router plugins apply.
type RouterPluginsStatus struct {
	// Route identifies the route. It is written before the plugins are called, and empty while the spec names none.
	// +optional
	Route string `json:"route,omitempty"`
	// Number counts the routes, so that a route differs from an earlier equal one.
	Number int64 `json:"number"`
	// Confirmed is true once all plugins have applied the route, and verified it if they can.
	// +optional
	Confirmed bool `json:"confirmed,omitempty"`
}

// QueuePlace is a position in the queue of releases. It exists because the number of releases in progress is limited.
type QueuePlace struct {
	// Since is the time since which the release has been waiting. Releases are admitted in this order.
	Since metav1.MicroTime `json:"since"`
	// Aside is true while the release is also blocked by something else. It keeps its position, and later releases may
	// overtake it.
	// +optional
	Aside bool `json:"aside,omitempty"`
}

// RoutedStatus is the traffic routing that a spec configured.
type RoutedStatus struct {
	// CanaryService and StableService are the Services of the two revisions.
	// +optional
	CanaryService string `json:"canaryService,omitempty"`
	// +optional
	StableService string `json:"stableService,omitempty"`
	// PingPong are the two Services that exchange their roles.
	// +optional
	PingPong *PingPongSpec `json:"pingPong,omitempty"`
	// TrafficRouting is a copy of the spec's trafficRouting.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	TrafficRouting RolloutTrafficRouting `json:"trafficRouting"`
	// Restored is true once the user's objects are restored, and only objects that were created for the Rollout remain.
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
	// Opener is what opens the gate: time, cluster, answer or person.
	// +optional
	Opener string `json:"opener,omitempty"`
	// Value that was measured, if the gate compares one.
	// +optional
	Value string `json:"value,omitempty"`
	// Limit with which the value is compared.
	// +optional
	Limit string `json:"limit,omitempty"`
	// Query that returned the value, with its arguments resolved.
	// +optional
	Query string `json:"query,omitempty"`
	// Since is the time since which the gate has been waiting for the same reason, or passing.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// Until is the time at which the gate opens, or is evaluated again.
	// +optional
	Until *metav1.MicroTime `json:"until,omitempty"`
}
