package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SerinStatus is what Serin adds to the status of a Canary. Nothing outside Serin needs it. Where an older definition of the
// resource drops the field, a condition has the same content; see ConditionState.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SerinStatus struct {
	// Run identifies one attempt to bring one revision into service. Derived, never random.
	// +optional
	Run string `json:"run,omitempty"`
	// Revision is the revision of the target that was last taken up (of the run, or of the last one that ended).
	// +optional
	Revision string `json:"revision,omitempty"`
	// Promoted is the revision that the primary runs.
	// +optional
	Promoted string `json:"promoted,omitempty"`
	// Shape names strategy and provider of the run; a change of it in the middle of a run restarts the run.
	// +optional
	Shape string `json:"shape,omitempty"`
	// Window is the observation that is open now.
	// +optional
	Window *AnalysisWindow `json:"window,omitempty"`
	// Started is true from the first look at the ready canary on: the start was told and pre-rollout hooks may have been asked.
	// +optional
	Started bool `json:"started,omitempty"`
	// Since is when the canary (while promoting: the primary) was last asked to change; deadlines count from here at the
	// earliest.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// CanaryUnready is set while the canary is not ready and has made no progress for some time.
	// +optional
	CanaryUnready *UnreadyWorkload `json:"canaryUnready,omitempty"`
	// PrimaryUnready is set while the primary that is being promoted is not ready and has made no progress for some time.
	// +optional
	PrimaryUnready *UnreadyWorkload `json:"primaryUnready,omitempty"`
	// Unfinished is set after a promotion or a rollback that failed because the primary was not ready, until it is.
	// +optional
	Unfinished *UnfinishedPrimary `json:"unfinished,omitempty"`
	// Intent is what was decided and is being carried out: rollback, cancel or skip; or, while post-rollout hooks are
	// called, how the release ended: completed, skipped (without analysis) or failed.
	// +optional
	Intent string `json:"intent,omitempty"`
	// Reason says in one sentence why there is an intent.
	// +optional
	Reason string `json:"reason,omitempty"`
	// DrainUntil is the moment from which pods that lost their traffic may go.
	// +optional
	DrainUntil *metav1.MicroTime `json:"drainUntil,omitempty"`
	// CarriedBy is the number of pods that carry all the traffic of a rollback whose primary misses pods; nil while there is
	// none. The primary gets its share back in proportion to it, whatever autoscalers ask for since.
	// +optional
	CarriedBy *int32 `json:"carriedBy,omitempty"`
	// Asked is when the hooks that refused last were asked.
	// +optional
	Asked *metav1.MicroTime `json:"asked,omitempty"`
	// Held names the closed gate that was last told to people, so that it is told once.
	// +optional
	Held string `json:"held,omitempty"`
	// Unreachable is since when a metrics provider could not be reached, while that is not counted yet.
	// +optional
	Unreachable *metav1.MicroTime `json:"unreachable,omitempty"`
	// LastTraffic is when an earlier revision of the target last had traffic; its samples are not judged.
	// +optional
	LastTraffic *metav1.MicroTime `json:"lastTraffic,omitempty"`
	// Configs are the tracked ConfigMaps and Secrets of the revision: checksums of ConfigMaps (data and binaryData), and the
	// resourceVersion of Secrets. Nothing is decided by them.
	// +optional
	Configs map[string]string `json:"configs,omitempty"`
	// Command is the last command of a person that was carried out, as verb@run.
	// +optional
	Command string `json:"command,omitempty"`
	// Queue is the place of a revision whose release waits for others to end.
	// +optional
	Queue *QueuePlace `json:"queue,omitempty"`
	// Gates are the conditions that were looked at last, at most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Gates []GateStatus `json:"gates,omitempty"`
}

// UnreadyWorkload is how far a workload that is not ready has come. Its progress deadline counts from Since.
type UnreadyWorkload struct {
	// Since is when the workload lost its readiness, was asked to change, or last made progress.
	Since metav1.MicroTime `json:"since"`
	// Updated is the number of its pods that run the newest template. A number that rises is progress.
	// +optional
	Updated int32 `json:"updated,omitempty"`
	// Ready is the number of its pods that are ready.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Available is the number of its pods that are available.
	// +optional
	Available int32 `json:"available,omitempty"`
}

// UnfinishedPrimary is what the primary was given last, and was not ready with in time. As soon as the primary is ready,
// that is what is promoted.
type UnfinishedPrimary struct {
	// Revision that the primary was given.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Spec is the same as Flagger's hash, as in lastPromotedSpec.
	// +optional
	Spec string `json:"spec,omitempty"`
	// Inherited is true while the canary of the next revision has the requests of users that its checks have not earned,
	// because no earlier revision could serve them.
	// +optional
	Inherited bool `json:"inherited,omitempty"`
}

// QueuePlace is a place among the releases that wait because only so many may move at once.
type QueuePlace struct {
	// Since when it waits; those that wait longer go first.
	Since metav1.MicroTime `json:"since"`
	// Aside is true while something else holds it as well: it keeps its place, and those behind go ahead.
	// +optional
	Aside bool `json:"aside,omitempty"`
}

// AnalysisWindow is one observation of one weight or iteration. It is identified by its start.
type AnalysisWindow struct {
	// Start is the moment at which the route that is observed was acknowledged.
	Start metav1.MicroTime `json:"start"`
	// Unconfirmed is true when the window was over before the router confirmed that it serves the route.
	// +optional
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Unobserved is true when nothing changed for users at its start, so that it is judged at once.
	// +optional
	Unobserved bool `json:"unobserved,omitempty"`
}

// GateStatus is one condition before the next move of the release, as it was last seen.
type GateStatus struct {
	// Name of the gate, for example canary-ready, window, success-rate.
	Name string `json:"name"`
	// Verdict is pass, ask, wait or fail.
	Verdict string `json:"verdict"`
	// Message says what was seen, in a sentence.
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
	// Query that gave the value, with its variables resolved.
	// +optional
	Query string `json:"query,omitempty"`
	// Since when the verdict holds.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// Until is the moment at which time opens the gate.
	// +optional
	Until *metav1.MicroTime `json:"until,omitempty"`
}
