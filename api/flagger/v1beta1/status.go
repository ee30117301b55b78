package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CanaryPhase is the phase of a release.
type CanaryPhase string

// The phases of a Canary. The phase is empty until the first reconciliation.
const (
	// CanaryPhaseInitializing: primary, Services and route are being created.
	CanaryPhaseInitializing CanaryPhase = "Initializing"
	// CanaryPhaseInitialized: the primary serves users, and there has been no new version yet.
	CanaryPhaseInitialized CanaryPhase = "Initialized"
	// CanaryPhaseWaiting: a new version waits for its confirm-rollout hook.
	CanaryPhaseWaiting CanaryPhase = "Waiting"
	// CanaryPhaseProgressing: a new version is being analysed.
	CanaryPhaseProgressing CanaryPhase = "Progressing"
	// CanaryPhaseWaitingPromotion: the analysis has ended, and the release waits for its confirm-promotion hook.
	CanaryPhaseWaitingPromotion CanaryPhase = "WaitingPromotion"
	// CanaryPhasePromoting: the new version is copied to the primary, and the traffic returns to it.
	CanaryPhasePromoting CanaryPhase = "Promoting"
	// CanaryPhaseFinalising: the primary serves the new version, and the canary is being scaled down.
	CanaryPhaseFinalising CanaryPhase = "Finalising"
	// CanaryPhaseSucceeded: the new version was promoted.
	CanaryPhaseSucceeded CanaryPhase = "Succeeded"
	// CanaryPhaseFailed: the new version was rolled back.
	CanaryPhaseFailed CanaryPhase = "Failed"
	// CanaryPhaseTerminating: the Canary is being deleted and restores the original objects.
	CanaryPhaseTerminating CanaryPhase = "Terminating"
	// CanaryPhaseTerminated is part of the API; no controller writes it.
	CanaryPhaseTerminated CanaryPhase = "Terminated"
)

// The types of conditions.
const (
	// ConditionPromoted is true if the last released version was promoted, false if it was rolled back, and unknown during a
	// release. Wait for it with kubectl wait --for=condition=promoted.
	ConditionPromoted = "Promoted"
	// ConditionBlocked is present, and true, only while the user must correct something.
	ConditionBlocked = "Blocked"
	// ConditionUnanswered is present, and true, only while a webhook or a metrics provider does not respond.
	ConditionUnanswered = "Unanswered"
	// ConditionReady is true after a success, false if the user must act or the last release failed, and unknown while a release is
	// in progress. The conditions Reconciling and Stalled have the meaning that kstatus defines: each is present only while it is
	// true.
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
)

// CanaryStatus is the observed state of a Canary.
type CanaryStatus struct {
	// Phase of the release.
	// +kubebuilder:validation:Enum="";Initializing;Initialized;Waiting;Progressing;WaitingPromotion;Promoting;Finalising;Succeeded;Failed;Terminating;Terminated
	// +optional
	Phase CanaryPhase `json:"phase,omitempty"`

	// FailedChecks is the number of failed checks since the start of the release. At analysis.threshold it is rolled back.
	// +kubebuilder:validation:Type=number
	// +optional
	FailedChecks int `json:"failedChecks"`

	// CanaryWeight is the canary's share of requests, in percent.
	// +kubebuilder:validation:Type=number
	// +optional
	CanaryWeight int `json:"canaryWeight"`

	// Iterations is the number of completed intervals of an A/B test or a blue/green release.
	// +kubebuilder:validation:Type=number
	// +optional
	Iterations int `json:"iterations"`

	// TrackedConfigs has a checksum for each ConfigMap and Secret to which the target refers, by configmap/name or
	// secret/name. It is absent if tracking is disabled, and empty if there are none.
	// +optional
	TrackedConfigs map[string]string `json:"trackedConfigs,omitzero"`

	// LastAppliedSpec is the hash of the target's revision that was last released.
	// +optional
	LastAppliedSpec string `json:"lastAppliedSpec,omitempty"`

	// LastPromotedSpec is the hash of the target's revision that was last promoted.
	// +optional
	LastPromotedSpec string `json:"lastPromotedSpec,omitempty"`

	// LastTransitionTime is the time of the last transition of the release.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`

	// SessionAffinityCookie keeps clients on the canary of this release, as name=value.
	// +optional
	SessionAffinityCookie string `json:"sessionAffinityCookie,omitempty"`

	// PrimarySessionAffinityCookie keeps clients on the primary, as name=value.
	// +optional
	PrimarySessionAffinityCookie string `json:"primarySessionAffinityCookie,omitempty"`

	// PreviousSessionAffinityCookie is the cookie of the previous release, which is deleted at clients, as name=value.
	// +optional
	PreviousSessionAffinityCookie string `json:"previousSessionAffinityCookie,omitempty"`

	// Conditions are Promoted, Ready, Reconciling (only during a release), Stalled (only after a failure or while blocked), Blocked
	// (only while the user must correct something) and Unanswered (only while a webhook or a metrics provider does not respond).
	// +listType=atomic
	// +optional
	Conditions []CanaryCondition `json:"conditions,omitempty"`

	// Serin has the fields that Serin adds to the status.
	// +optional
	Serin *SerinStatus `json:"serin,omitempty"`
}

// CanaryCondition is one condition of a Canary.
type CanaryCondition struct {
	// Type of the condition.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// ObservedGeneration is the generation of the Canary for which the condition was set.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastUpdateTime is the time of the last update of the condition.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitzero"`
	// LastTransitionTime is the time of the last change of the status.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason for the status, in CamelCase; for Promoted it is the phase.
	Reason string `json:"reason"`
	// Message describes the reason.
	// +optional
	Message string `json:"message"`
}
