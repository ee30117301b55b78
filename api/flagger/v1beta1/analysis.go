package v1beta1

// CanaryAnalysis says how a release goes on and what is checked meanwhile.
//
// Iterations together with match make an A/B test: the requests that match go to the canary for that many intervals.
// Iterations alone make a blue/green release: the canary is tested for that many intervals, then all traffic is moved.
// Otherwise traffic is moved step by step, by stepWeights, or by stepWeight up to maxWeight.
type CanaryAnalysis struct {
	// Interval is how long each step is observed before it is judged, as a duration such as 30s, 1m30s or 1h. Without
	// it: 60s. Less than the flag -min-analysis-interval of the controller (10s) becomes that.
	// +kubebuilder:validation:Pattern=`^[0-9]+(m|s)|^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^[-+]?0$`
	// +optional
	Interval string `json:"interval,omitempty"`

	// Iterations is the number of intervals of an A/B test or a blue/green release.
	// +kubebuilder:validation:Type=number
	// +optional
	Iterations int `json:"iterations,omitempty"`

	// Threshold is the number of failed checks at which the release is taken back. Without it: 1.
	// +kubebuilder:validation:Type=number
	// +optional
	Threshold int `json:"threshold,omitempty"`

	// MaxWeight is the weight in per cent at which the release is promoted. Without it: 100. With stepWeights, their
	// last entry takes its place.
	// +kubebuilder:validation:Type=number
	// +optional
	MaxWeight int `json:"maxWeight,omitempty"`

	// StepWeight is how much the canary's weight grows with each step, in per cent.
	// +kubebuilder:validation:Type=number
	// +optional
	StepWeight int `json:"stepWeight,omitempty"`

	// StepWeights are the canary's weights one after the other, in per cent. They take the place of stepWeight.
	// +kubebuilder:validation:items:Type=number
	// +optional
	StepWeights []int `json:"stepWeights,omitempty"`

	// StepWeightPromotion is how much the primary's weight grows with each step once it runs the new version, in per
	// cent. Without it, all traffic goes back at once.
	// +kubebuilder:validation:Type=number
	// +optional
	StepWeightPromotion int `json:"stepWeightPromotion,omitempty"`

	// Mirror sends copies of requests to the canary for one interval before it gets any of its own, or, in a blue/green
	// release, for all intervals instead of its own. The answers to copies are thrown away. Without it: false. Istio can
	// do it, and gatewayapi in a blue/green release.
	// +optional
	Mirror bool `json:"mirror,omitempty"`

	// MirrorWeight is the share of requests that are copied, in per cent. Without it, all. Read by istio.
	// +kubebuilder:validation:Type=number
	// +optional
	MirrorWeight int `json:"mirrorWeight,omitempty"`

	// PrimaryReadyThreshold is the share of the primary's pods that must be available for it to count as ready, in per
	// cent. Without it: 100.
	// +kubebuilder:validation:Type=number
	// +optional
	PrimaryReadyThreshold *int `json:"primaryReadyThreshold,omitempty"`

	// CanaryReadyThreshold is the share of the canary's pods that must be available for it to count as ready, in per
	// cent. Without it: 100.
	// +kubebuilder:validation:Type=number
	// +optional
	CanaryReadyThreshold *int `json:"canaryReadyThreshold,omitempty"`

	// Match says which requests go to the canary in an A/B test; one of the entries has to hold.
	// +optional
	Match []AnalysisMatch `json:"match,omitempty"`

	// Metrics are measured at the end of each interval.
	// +optional
	Metrics []CanaryMetric `json:"metrics,omitempty"`

	// Webhooks are asked or told at certain moments of a release.
	// +optional
	Webhooks []CanaryWebhook `json:"webhooks,omitempty"`

	// Alerts say who is told how a release goes. Without it, the provider that the flags of the controller name.
	// +optional
	Alerts []CanaryAlert `json:"alerts,omitempty"`

	// SessionAffinity keeps a client that was once sent to the canary there. Istio and gatewayapi can do it.
	// +optional
	SessionAffinity *SessionAffinity `json:"sessionAffinity,omitempty"`
}

// AnalysisMatch is a set of conditions on a request; all that are given have to hold.
type AnalysisMatch struct {
	// Headers are matched by name, in lower case.
	// +optional
	Headers map[string]HeaderMatch `json:"headers,omitempty"`
	// QueryParams are matched by name.
	// +optional
	QueryParams map[string]StringMatch `json:"queryParams,omitempty"`
	// SourceLabels restrict the condition to clients in the mesh that have these labels. Read by istio, for traffic that
	// comes from inside the mesh.
	// +optional
	SourceLabels map[string]string `json:"sourceLabels,omitempty"`
}

// HeaderMatch compares a header in one of four ways. Without any, it holds where the header is there.
//
// +kubebuilder:validation:MaxProperties=1
type HeaderMatch struct {
	// Exact is the whole value.
	// +optional
	Exact string `json:"exact,omitempty"`
	// Prefix is its beginning.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// Suffix is its end.
	// +optional
	Suffix string `json:"suffix,omitempty"`
	// Regex is an RE2 expression for the whole value.
	// +optional
	Regex string `json:"regex,omitempty"`
}

// CanaryMetric is one measurement and what it must not exceed or fall short of.
//
// Where it comes from: templateRef, else query, else a built-in metric of this name: request-success-rate (per cent) or
// request-duration (milliseconds, 99th percentile).
type CanaryMetric struct {
	// Name of the metric, as events and metrics show it. The names istio_requests_total and
	// istio_request_duration_seconds_bucket of old manifests stand for the two built-in metrics.
	Name string `json:"name"`

	// Interval is the span of time that the query looks back, as a duration such as 1m. Built-in metrics and inline
	// queries take 1m without it.
	// +kubebuilder:validation:Pattern=`^[0-9]+(m|s)|^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^[-+]?0$`
	// +optional
	Interval string `json:"interval,omitempty"`

	// Threshold is the bound where there is no thresholdRange: a minimum for the success rate, a maximum for all else.
	// Deprecated: write thresholdRange.
	// +optional
	Threshold float64 `json:"threshold,omitempty"`

	// ThresholdRange has the bounds of a good value, both inclusive.
	// +optional
	ThresholdRange *CanaryThresholdRange `json:"thresholdRange,omitempty"`

	// Query is asked from the Prometheus of the Canary. Deprecated: write templateRef.
	// +optional
	Query string `json:"query,omitempty"`

	// TemplateRef names the MetricTemplate that has query and provider.
	// +optional
	TemplateRef *CrossNamespaceObjectReference `json:"templateRef,omitempty"`

	// TemplateVariables are for the query of the template, which reads them as variables.x.
	// +optional
	TemplateVariables map[string]string `json:"templateVariables,omitempty"`
}

// CanaryThresholdRange has the bounds of a good value, both inclusive.
type CanaryThresholdRange struct {
	// Min is the least value that is good. Without it, none is too small.
	// +optional
	Min *float64 `json:"min,omitempty"`
	// Max is the greatest value that is good. Without it, none is too great.
	// +optional
	Max *float64 `json:"max,omitempty"`
}

// HookType says when a webhook is called and what its answer means.
type HookType string

// The types of hooks. The empty type is RolloutHook.
const (
	// ConfirmRolloutHook holds a new version before its first pod, until it is accepted.
	ConfirmRolloutHook HookType = "confirm-rollout"
	// PreRolloutHook tests the canary before it gets traffic; a refusal is a failed check.
	PreRolloutHook HookType = "pre-rollout"
	// RolloutHook is called in every interval before the metrics; a refusal is a failed check.
	RolloutHook HookType = "rollout"
	// ConfirmTrafficIncreaseHook holds the weight where it is, until it is accepted.
	ConfirmTrafficIncreaseHook HookType = "confirm-traffic-increase"
	// ConfirmPromotionHook holds the promotion, until it is accepted.
	ConfirmPromotionHook HookType = "confirm-promotion"
	// PostRolloutHook is told how the release ended; its answer changes nothing.
	PostRolloutHook HookType = "post-rollout"
	// RollbackHook takes the release back as soon as it is accepted.
	RollbackHook HookType = "rollback"
	// EventHook is told every event.
	EventHook HookType = "event"
)

// CanaryWebhook is an address that is asked or told with a POST request. An answer of 2xx accepts.
type CanaryWebhook struct {
	// Type says when it is called and what its answer means. Without it: rollout.
	// +kubebuilder:validation:Enum="";confirm-rollout;pre-rollout;rollout;confirm-promotion;post-rollout;event;rollback;confirm-traffic-increase
	// +optional
	Type HookType `json:"type,omitempty"`

	// Name of the hook, as events show it.
	Name string `json:"name"`

	// URL that is called.
	URL string `json:"url"`

	// Timeout of each attempt, as a duration such as 30s. Without it: 10s. At most 1h; more is cut.
	// +kubebuilder:validation:Pattern=`^[0-9]+(m|s)|^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^[-+]?0$`
	// +optional
	Timeout string `json:"timeout,omitempty"`

	// Retries is the number of further attempts where the hook cannot be reached or answers 429 or 5xx. Without it: 0. At
	// most 10; more are cut.
	// +kubebuilder:validation:Type=number
	// +optional
	Retries int `json:"retries,omitempty"`

	// DisableTLS calls an https address without verifying its certificate. Without it: false.
	// +optional
	DisableTLS bool `json:"disableTLS,omitempty"`

	// MuteAlert keeps the hook from sending alerts. Without it: false.
	// +optional
	MuteAlert bool `json:"muteAlert,omitempty"`

	// Metadata is sent with the request, as it is written here.
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
}

// AlertSeverity says how bad the news is.
type AlertSeverity string

// The severities, from the least to the worst.
const (
	SeverityInfo  AlertSeverity = "info"
	SeverityWarn  AlertSeverity = "warn"
	SeverityError AlertSeverity = "error"
)

// CanaryAlert says who is told how a release goes.
type CanaryAlert struct {
	// Name of the alert.
	Name string `json:"name"`

	// Severity is the least that is told. Without it, everything is.
	// +kubebuilder:validation:Enum="";info;warn;error
	// +optional
	Severity AlertSeverity `json:"severity,omitempty"`

	// ProviderRef names the AlertProvider.
	ProviderRef CrossNamespaceObjectReference `json:"providerRef"`
}

// SessionAffinity keeps a client on the version that it was sent to first, by a cookie.
type SessionAffinity struct {
	// CookieName is the name of the cookie that keeps a client on the canary.
	CookieName string `json:"cookieName"`

	// PrimaryCookieName is the name of the cookie that keeps a client on the primary; it differs from cookieName.
	// Without it, clients of the primary may be sent to the canary as its weight grows.
	// +optional
	PrimaryCookieName string `json:"primaryCookieName,omitempty"`

	// MaxAge is how long the cookie holds, in seconds.
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Type=number
	// +optional
	MaxAge int `json:"maxAge,omitempty"`

	// Domain attribute of the cookie. Without it, none.
	// +optional
	Domain string `json:"domain,omitempty"`

	// Path attribute of the cookie. Without it, none.
	// +optional
	Path string `json:"path,omitempty"`

	// HTTPOnly hides the cookie from scripts. Without it: false.
	// +optional
	HTTPOnly bool `json:"httpOnly,omitempty"`

	// Secure sends the cookie over https only. Without it: false.
	// +optional
	Secure bool `json:"secure,omitempty"`

	// Partitioned keeps the cookie apart for each site that embeds the workload. Without it: false.
	// +optional
	Partitioned bool `json:"partitioned,omitempty"`

	// SameSite says whether the cookie is sent with requests that come from other sites. Without it, the browser's
	// default.
	// +kubebuilder:validation:Enum=Strict;Lax;None
	// +optional
	SameSite string `json:"sameSite,omitempty"`
}
