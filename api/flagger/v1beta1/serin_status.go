package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SerinStatus has the fields that Serin adds to the status of a Canary. No other tool needs them. If an older
// CustomResourceDefinition prunes the field, a condition has the same content; see ConditionState.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SerinStatus struct {
	// Run identifies one attempt to release one revision. It is derived, never random.
	// +optional
	Run string `json:"run,omitempty"`
	// Revision is the target's revision of the current run, or of the last one.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Promoted is the revision that the primary runs.
	// +optional
	Promoted string `json:"promoted,omitempty"`
	// Shape identifies the strategy and the provider of the run. If it changes during a run, the run is restarted.
	// +optional
	Shape string `json:"shape,omitempty"`
	// Window is the current observation window.
	// +optional
	Window *AnalysisWindow `json:"window,omitempty"`
	// Started is true once the canary has been ready for the first time: the start of the release was reported, and
	// pre-rollout hooks may have been called.
	// +optional
	Started bool `json:"started,omitempty"`
	// Since is the time at which the canary (while promoting: the primary) was last changed. Deadlines do not start before
	// it.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// CanaryUnready is set while the canary is not ready and has not made progress for some time.
	// +optional
	CanaryUnready *UnreadyWorkload `json:"canaryUnready,omitempty"`
	// PrimaryUnready is set while the primary is being promoted, is not ready and has not made progress for some time.
	// +optional
	PrimaryUnready *UnreadyWorkload `json:"primaryUnready,omitempty"`
	// Unfinished is set after a promotion or a rollback that failed because the primary was not ready, until it is ready.
	// +optional
	Unfinished *UnfinishedPrimary `json:"unfinished,omitempty"`
	// Intent is the decision that is being carried out: rollback, cancel, skip, or finish, which is skip once the primary has
	// the new revision. While post-rollout hooks are called, it is the result of the release: completed, skipped (without
	// analysis) or failed.
	// +optional
	Intent string `json:"intent,omitempty"`
	// Reason for the intent, as one sentence.
	// +optional
	Reason string `json:"reason,omitempty"`
	// DrainUntil is the time from which pods without traffic may be removed.
	// +optional
	DrainUntil *metav1.MicroTime `json:"drainUntil,omitempty"`
	// CarriedBy is the number of pods that serve all traffic during a rollback whose primary lacks pods. It is absent
	// otherwise. The share of the primary grows in proportion to it, whatever autoscalers request in the meantime.
	// +optional
	CarriedBy *int32 `json:"carriedBy,omitempty"`
	// Asked is the time of the last call of the hooks that refused.
	// +optional
	Asked *metav1.MicroTime `json:"asked,omitempty"`
	// Held is the name of the closed gate that was last reported to users. Each is reported once.
	// +optional
	Held string `json:"held,omitempty"`
	// Unreachable is the time since which a metrics provider could not be reached, as long as that does not count as a failed
	// check.
	// +optional
	Unreachable *metav1.MicroTime `json:"unreachable,omitempty"`
	// LastTraffic is the time at which an earlier revision of the target last had traffic. Its samples are not evaluated.
	// +optional
	LastTraffic *metav1.MicroTime `json:"lastTraffic,omitempty"`
	// Configs are the tracked ConfigMaps and Secrets of the revision: checksums of ConfigMaps (data and binaryData), and the
	// resourceVersion of Secrets. No decision depends on them.
	// +optional
	Configs map[string]string `json:"configs,omitempty"`
	// Command is the last command of a user that was executed, as verb@run, or promote@run/step, and :gate if it answers one.
	// +optional
	Command string `json:"command,omitempty"`
	// Release is the record of the release in progress.
	// +optional
	Release *ReleaseRecord `json:"release,omitempty"`
	// History contains the records of the last releases that ended, newest first, at most 10.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []ReleaseRecord `json:"history,omitempty"`
	// Queue is the position of a release that waits for other releases to end.
	// +optional
	Queue *QueuePlace `json:"queue,omitempty"`
	// Gates are the conditions for the next transition, as they were last evaluated, at most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Gates []GateStatus `json:"gates,omitempty"`
}

// ReleaseRecord is what remains of a release. No decision depends on it.
type ReleaseRecord struct {
	// Revision that was released.
	Revision string `json:"revision"`
	// Images of its containers, in their order.
	// +optional
	// +listType=atomic
	Images []string `json:"images,omitempty"`
	// Start is the time at which the release began, including the wait for its approval.
	Start metav1.Time `json:"start"`
	// End is the time at which it ended; absent: it is in progress.
	// +optional
	End *metav1.Time `json:"end,omitempty"`
	// Result is promoted, unanalyzed (promoted without an analysis), failed, canceled (the user restored the promoted revision)
	// or superseded (by another revision); absent: it is in progress.
	// +optional
	Result string `json:"result,omitempty"`
	// MaxWeight is the highest weight that the canary had.
	// +optional
	MaxWeight int `json:"maxWeight,omitempty"`
	// Cause is why a release failed; in progress: its last failed check.
	// +optional
	Cause *ReleaseCause `json:"cause,omitempty"`
	// Command is the last command of a user that was executed: promote, promote-full, abort, retry, approve GATE or deny GATE.
	// +optional
	Command string `json:"command,omitempty"`
	// CommandBy is the user who sent it and the reason, as USER: REASON, according to the program that sent it; absent: it named
	// neither.
	// +optional
	CommandBy string `json:"commandBy,omitempty"`
}

// ReleaseCause is why a release failed.
type ReleaseCause struct {
	// Gate that failed; empty: none, for example because the user aborted the release.
	// +optional
	Gate string `json:"gate,omitempty"`
	// Message describes what was observed.
	Message string `json:"message"`
	// Value that was measured, if the gate compares one.
	// +optional
	Value string `json:"value,omitempty"`
	// Limit with which the value was compared.
	// +optional
	Limit string `json:"limit,omitempty"`
	// Query that returned the value, with its variables resolved.
	// +optional
	Query string `json:"query,omitempty"`
}

// UnreadyWorkload is the progress of a workload that is not ready. Its progress deadline counts from Since.
type UnreadyWorkload struct {
	// Since is the time at which the workload became unready, was changed, or last made progress.
	Since metav1.MicroTime `json:"since"`
	// Updated is the number of its pods that run the newest template. An increase is progress.
	// +optional
	Updated int32 `json:"updated,omitempty"`
	// Ready is the number of its pods that are ready.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Available is the number of its pods that are available.
	// +optional
	Available int32 `json:"available,omitempty"`
}

// UnfinishedPrimary is the last revision of the primary, whose pods were not ready in time. As soon as they are ready, it
// counts as promoted.
type UnfinishedPrimary struct {
	// Revision of the primary.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Spec is Flagger's hash of it, as in lastPromotedSpec.
	// +optional
	Spec string `json:"spec,omitempty"`
	// Inherited is true while the canary of the next revision receives user requests before its checks have passed, because
	// no earlier revision could serve them.
	// +optional
	Inherited bool `json:"inherited,omitempty"`
	// Provider is the provider whose route still sends user requests to the canary, if spec.provider named it before the promotion
	// failed, and names another one now.
	// +optional
	Provider string `json:"provider,omitempty"`
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

// AnalysisWindow is the observation window of one weight or iteration. It is identified by its start.
type AnalysisWindow struct {
	// Start is the time at which the observed route was acknowledged.
	Start metav1.MicroTime `json:"start"`
	// Unconfirmed is true if the window ended before the router confirmed that it serves the route.
	// +optional
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Unobserved is true if nothing changed for users at its start, so that it is evaluated at once.
	// +optional
	Unobserved bool `json:"unobserved,omitempty"`
}

// GateStatus is one condition for the next transition of the release, as it was last evaluated.
type GateStatus struct {
	// Name of the gate, for example canary-ready, window, success-rate.
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
	// Query that returned the value, with its variables resolved.
	// +optional
	Query string `json:"query,omitempty"`
	// Since is the time since which the verdict has been the same.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// Until is the time at which the gate opens.
	// +optional
	Until *metav1.MicroTime `json:"until,omitempty"`
}
