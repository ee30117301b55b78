package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CanaryPhase is where a release stands.
type CanaryPhase string

// The phases. A Canary that nobody has looked at yet has the empty one.
const (
	// CanaryPhaseInitializing: primary, Services and route are being made.
	CanaryPhaseInitializing CanaryPhase = "Initializing"
	// CanaryPhaseInitialized: the primary serves, and no new version has come yet.
	CanaryPhaseInitialized CanaryPhase = "Initialized"
	// CanaryPhaseWaiting: a new version waits for its confirm-rollout hook.
	CanaryPhaseWaiting CanaryPhase = "Waiting"
	// CanaryPhaseProgressing: a new version is analysed.
	CanaryPhaseProgressing CanaryPhase = "Progressing"
	// CanaryPhaseWaitingPromotion: the analysis is over and the confirm-promotion hook has not accepted yet.
	CanaryPhaseWaitingPromotion CanaryPhase = "WaitingPromotion"
	// CanaryPhasePromoting: the primary takes the new version over and gets its traffic back.
	CanaryPhasePromoting CanaryPhase = "Promoting"
	// CanaryPhaseFinalising: the primary serves the new version and the canary is about to go.
	CanaryPhaseFinalising CanaryPhase = "Finalising"
	// CanaryPhaseSucceeded: the new version was promoted.
	CanaryPhaseSucceeded CanaryPhase = "Succeeded"
	// CanaryPhaseFailed: the new version was taken back.
	CanaryPhaseFailed CanaryPhase = "Failed"
	// CanaryPhaseTerminating: the Canary is being deleted and gives back what it took over.
	CanaryPhaseTerminating CanaryPhase = "Terminating"
	// CanaryPhaseTerminated is part of the API; no controller writes it.
	CanaryPhaseTerminated CanaryPhase = "Terminated"
)

// The types of conditions.
const (
	// ConditionPromoted is true where the last version that was taken up serves, false where it was taken back, and
	// unknown meanwhile. Wait for it with kubectl wait --for=condition=promoted.
	ConditionPromoted = "Promoted"
	// ConditionBlocked is there, and true, only while a person has to correct something.
	ConditionBlocked = "Blocked"
	// ConditionUnanswered is there, and true, only while a webhook or a metrics provider does not answer.
	ConditionUnanswered = "Unanswered"
)

// CanaryStatus is what the controller knows about the release.
type CanaryStatus struct {
	// Phase is where the release stands.
	// +kubebuilder:validation:Enum="";Initializing;Initialized;Waiting;Progressing;WaitingPromotion;Promoting;Finalising;Succeeded;Failed;Terminating;Terminated
	// +optional
	Phase CanaryPhase `json:"phase,omitempty"`

	// FailedChecks counts the checks that failed since the release began; analysis.threshold of them take it back.
	// +kubebuilder:validation:Type=number
	// +optional
	FailedChecks int `json:"failedChecks"`

	// CanaryWeight is the canary's share of requests, in per cent.
	// +kubebuilder:validation:Type=number
	// +optional
	CanaryWeight int `json:"canaryWeight"`

	// Iterations counts the intervals of an A/B test or a blue/green release that are over.
	// +kubebuilder:validation:Type=number
	// +optional
	Iterations int `json:"iterations"`

	// TrackedConfigs has a checksum for each ConfigMap and Secret that the target refers to, by configmap/name or
	// secret/name. Absent where tracking is off; empty where nothing is referred to.
	// +optional
	TrackedConfigs map[string]string `json:"trackedConfigs,omitzero"`

	// LastAppliedSpec is the hash of the target's revision that was last taken up.
	// +optional
	LastAppliedSpec string `json:"lastAppliedSpec,omitempty"`

	// LastPromotedSpec is the hash of the target's revision that was last promoted.
	// +optional
	LastPromotedSpec string `json:"lastPromotedSpec,omitempty"`

	// LastTransitionTime is when the release last moved.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`

	// SessionAffinityCookie keeps clients on the canary of this release, as name=value.
	// +optional
	SessionAffinityCookie string `json:"sessionAffinityCookie,omitempty"`

	// PrimarySessionAffinityCookie keeps clients on the primary, as name=value.
	// +optional
	PrimarySessionAffinityCookie string `json:"primarySessionAffinityCookie,omitempty"`

	// PreviousSessionAffinityCookie is that of the release before, which is taken from clients, as name=value.
	// +optional
	PreviousSessionAffinityCookie string `json:"previousSessionAffinityCookie,omitempty"`

	// Conditions are Promoted and, only while a person has to correct something, Blocked; only while a webhook or a metrics
	// provider does not answer, Unanswered.
	// +listType=atomic
	// +optional
	Conditions []CanaryCondition `json:"conditions,omitempty"`

	// Serin has what Serin adds to the status.
	// +optional
	Serin *SerinStatus `json:"serin,omitempty"`
}

// CanaryCondition is a state that holds, does not hold, or is not known yet.
type CanaryCondition struct {
	// Type of the condition.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// ObservedGeneration is the generation of the Canary that the condition was found for.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastUpdateTime is when the condition was last written.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitzero"`
	// LastTransitionTime is when its status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is one word for the cause; of Promoted it is the phase.
	Reason string `json:"reason"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message"`
}
