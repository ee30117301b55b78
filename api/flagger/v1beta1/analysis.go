package v1beta1

// CanaryAnalysis defines the steps of a release and the checks of each step.
//
// Iterations together with match define an A/B test: requests that match are sent to the canary for that many intervals.
// Iterations alone define a blue/green release: the canary is tested for that many intervals, then all traffic is shifted to
// it. Otherwise traffic is shifted in steps, by stepWeights, or by stepWeight up to maxWeight.
type CanaryAnalysis struct {
	// Interval is how long each step is observed before it is evaluated, as a duration such as 30s, 1m30s or 1h. Defaults to
	// 60s. Values below the flag -min-analysis-interval of the controller (10s) are raised to it.
	// +kubebuilder:validation:Pattern=`^[0-9]+(m|s)|^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^[-+]?0$`
	// +optional
	Interval string `json:"interval,omitempty"`

	// Iterations is the number of intervals of an A/B test or a blue/green release.
	// +kubebuilder:validation:Type=number
	// +optional
	Iterations int `json:"iterations,omitempty"`

	// Threshold is the number of failed checks at which the release is rolled back. Defaults to 1.
	// +kubebuilder:validation:Type=number
	// +optional
	Threshold int `json:"threshold,omitempty"`

	// MaxWeight is the weight, in percent, at which the release is promoted. Defaults to 100. It is ignored if stepWeights is
	// set, whose last entry is the maximum.
	// +kubebuilder:validation:Type=number
	// +optional
	MaxWeight int `json:"maxWeight,omitempty"`

	// StepWeight is the increment of the canary's weight in each step, in percent.
	// +kubebuilder:validation:Type=number
	// +optional
	StepWeight int `json:"stepWeight,omitempty"`

	// StepWeights are the canary's weights in successive steps, in percent. They replace stepWeight.
	// +kubebuilder:validation:items:Type=number
	// +optional
	StepWeights []int `json:"stepWeights,omitempty"`

	// StepWeightPromotion is the increment of the primary's weight in each step once it runs the new version, in percent. If
	// omitted, all traffic returns to the primary at once.
	// +kubebuilder:validation:Type=number
	// +optional
	StepWeightPromotion int `json:"stepWeightPromotion,omitempty"`

	// Mirror copies requests to the canary for one interval before it receives requests of its own, or, in a blue/green
	// release, for all intervals instead of requests of its own. The responses to copies are discarded. Defaults to false.
	// Supported by istio, and by gatewayapi in a blue/green release.
	// +optional
	Mirror bool `json:"mirror,omitempty"`

	// MirrorWeight is the percentage of requests that are copied. Defaults to all requests. Used by istio.
	// +kubebuilder:validation:Type=number
	// +optional
	MirrorWeight int `json:"mirrorWeight,omitempty"`

	// PrimaryReadyThreshold is the percentage of the primary's pods that must be available for the primary to be ready.
	// Defaults to 100.
	// +kubebuilder:validation:Type=number
	// +optional
	PrimaryReadyThreshold *int `json:"primaryReadyThreshold,omitempty"`

	// CanaryReadyThreshold is the percentage of the canary's pods that must be available for the canary to be ready. Defaults
	// to 100.
	// +kubebuilder:validation:Type=number
	// +optional
	CanaryReadyThreshold *int `json:"canaryReadyThreshold,omitempty"`

	// Match selects the requests that are sent to the canary in an A/B test. A request must match one of the entries.
	// +optional
	Match []AnalysisMatch `json:"match,omitempty"`

	// Metrics are evaluated at the end of each interval.
	// +optional
	Metrics []CanaryMetric `json:"metrics,omitempty"`

	// Webhooks are called at certain points of a release.
	// +optional
	Webhooks []CanaryWebhook `json:"webhooks,omitempty"`

	// Alerts name the providers that receive alerts about releases. If omitted, alerts are sent to the provider that the
	// flags of the controller name.
	// +optional
	Alerts []CanaryAlert `json:"alerts,omitempty"`

	// SessionAffinity keeps clients on the canary once they have been sent to it. Supported by istio and gatewayapi.
	// +optional
	SessionAffinity *SessionAffinity `json:"sessionAffinity,omitempty"`
}

// AnalysisMatch has conditions for a request, all of which must match.
type AnalysisMatch struct {
	// Headers are matched by name, in lower case.
	// +optional
	Headers map[string]HeaderMatch `json:"headers,omitempty"`
	// QueryParams are matched by name.
	// +optional
	QueryParams map[string]StringMatch `json:"queryParams,omitempty"`
	// SourceLabels restrict the match to clients in the mesh that have these labels. Used by istio, for traffic from inside
	// the mesh.
	// +optional
	SourceLabels map[string]string `json:"sourceLabels,omitempty"`
}

// HeaderMatch matches a header in one of four ways. If no field is set, it matches every request with the header.
//
// +kubebuilder:validation:MaxProperties=1
type HeaderMatch struct {
	// Exact is the whole value.
	// +optional
	Exact string `json:"exact,omitempty"`
	// Prefix is the beginning of the value.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// Suffix is the end of the value.
	// +optional
	Suffix string `json:"suffix,omitempty"`
	// Regex is an RE2 expression that matches the whole value.
	// +optional
	Regex string `json:"regex,omitempty"`
}

// CanaryMetric is a metric and the range in which its values are accepted.
//
// The query is that of templateRef, or else query, or else the built-in metric with the name of the metric:
// request-success-rate (percent) or request-duration (milliseconds, 99th percentile).
type CanaryMetric struct {
	// Name of the metric in events and metrics. The names istio_requests_total and istio_request_duration_seconds_bucket of
	// old manifests are aliases of the two built-in metrics.
	Name string `json:"name"`

	// Interval is the range of time before now that is queried, as a duration such as 1m. Defaults to 1m for built-in metrics
	// and inline queries.
	// +kubebuilder:validation:Pattern=`^[0-9]+(m|s)|^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^[-+]?0$`
	// +optional
	Interval string `json:"interval,omitempty"`

	// Threshold is the limit if thresholdRange is omitted: the minimum of the success rate, and the maximum of any other
	// metric. Deprecated: use thresholdRange.
	// +optional
	Threshold float64 `json:"threshold,omitempty"`

	// ThresholdRange is the range of accepted values, including its limits.
	// +optional
	ThresholdRange *CanaryThresholdRange `json:"thresholdRange,omitempty"`

	// Query is sent to the Prometheus server of the Canary. Deprecated: use templateRef.
	// +optional
	Query string `json:"query,omitempty"`

	// TemplateRef names the MetricTemplate that has the query and the provider.
	// +optional
	TemplateRef *CrossNamespaceObjectReference `json:"templateRef,omitempty"`

	// TemplateVariables are passed to the query of the template, which refers to them as variables.x.
	// +optional
	TemplateVariables map[string]string `json:"templateVariables,omitempty"`
}

// CanaryThresholdRange is a range of accepted values, including its limits.
type CanaryThresholdRange struct {
	// Min is the lowest accepted value. If omitted, there is no lower limit.
	// +optional
	Min *float64 `json:"min,omitempty"`
	// Max is the highest accepted value. If omitted, there is no upper limit.
	// +optional
	Max *float64 `json:"max,omitempty"`
}

// HookType determines when a webhook is called and what its response means.
type HookType string

// The types of webhooks. The empty type means RolloutHook.
const (
	// ConfirmRolloutHook delays a release before the canary's first pod, until the webhook accepts it.
	ConfirmRolloutHook HookType = "confirm-rollout"
	// PreRolloutHook tests the canary before it receives traffic. A refusal is a failed check.
	PreRolloutHook HookType = "pre-rollout"
	// RolloutHook is called in every interval before the metrics are evaluated. A refusal is a failed check.
	RolloutHook HookType = "rollout"
	// ConfirmTrafficIncreaseHook delays each increase of the weight until the webhook accepts it.
	ConfirmTrafficIncreaseHook HookType = "confirm-traffic-increase"
	// ConfirmPromotionHook delays the promotion until the webhook accepts it.
	ConfirmPromotionHook HookType = "confirm-promotion"
	// PostRolloutHook is called with the result of the release. Its response is ignored.
	PostRolloutHook HookType = "post-rollout"
	// RollbackHook rolls the release back as soon as the webhook accepts.
	RollbackHook HookType = "rollback"
	// EventHook receives every event.
	EventHook HookType = "event"
)

// CanaryWebhook is a URL that is called with a POST request. A response with status 2xx accepts.
type CanaryWebhook struct {
	// Type determines when the webhook is called and what its response means. Defaults to rollout.
	// +kubebuilder:validation:Enum="";confirm-rollout;pre-rollout;rollout;confirm-promotion;post-rollout;event;rollback;confirm-traffic-increase
	// +optional
	Type HookType `json:"type,omitempty"`

	// Name of the webhook in events.
	Name string `json:"name"`

	// URL of the webhook.
	URL string `json:"url"`

	// Timeout of each attempt, as a duration such as 30s. Defaults to 10s. Values above 1h are lowered to it.
	// +kubebuilder:validation:Pattern=`^[0-9]+(m|s)|^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^[-+]?0$`
	// +optional
	Timeout string `json:"timeout,omitempty"`

	// Retries is the number of further attempts if the webhook cannot be reached or responds with 429 or 5xx. Defaults to 0.
	// Values above 10 are lowered to it.
	// +kubebuilder:validation:Type=number
	// +optional
	Retries int `json:"retries,omitempty"`

	// DisableTLS disables the verification of the certificate of an https URL. Defaults to false.
	// +optional
	DisableTLS bool `json:"disableTLS,omitempty"`

	// MuteAlert disables alerts about this webhook. Defaults to false.
	// +optional
	MuteAlert bool `json:"muteAlert,omitempty"`

	// Metadata is sent with the request unchanged.
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
}

// AlertSeverity is the severity of an alert.
type AlertSeverity string

// The severities, in ascending order.
const (
	SeverityInfo  AlertSeverity = "info"
	SeverityWarn  AlertSeverity = "warn"
	SeverityError AlertSeverity = "error"
)

// CanaryAlert names a provider that receives alerts about releases.
type CanaryAlert struct {
	// Name of the alert.
	Name string `json:"name"`

	// Severity is the minimum severity of the alerts that are sent. If omitted, all alerts are sent.
	// +kubebuilder:validation:Enum="";info;warn;error
	// +optional
	Severity AlertSeverity `json:"severity,omitempty"`

	// ProviderRef names the AlertProvider.
	ProviderRef CrossNamespaceObjectReference `json:"providerRef"`
}

// SessionAffinity keeps clients, by a cookie, on the version to which they were first sent.
type SessionAffinity struct {
	// CookieName is the name of the cookie that keeps clients on the canary.
	CookieName string `json:"cookieName"`

	// PrimaryCookieName is the name of the cookie that keeps clients on the primary. It must differ from cookieName. If
	// omitted, clients of the primary may be sent to the canary as its weight grows.
	// +optional
	PrimaryCookieName string `json:"primaryCookieName,omitempty"`

	// MaxAge is the lifetime of the cookie, in seconds.
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Type=number
	// +optional
	MaxAge int `json:"maxAge,omitempty"`

	// Domain attribute of the cookie. If omitted, it is not set.
	// +optional
	Domain string `json:"domain,omitempty"`

	// Path attribute of the cookie. If omitted, it is not set.
	// +optional
	Path string `json:"path,omitempty"`

	// HTTPOnly hides the cookie from scripts. Defaults to false.
	// +optional
	HTTPOnly bool `json:"httpOnly,omitempty"`

	// Secure restricts the cookie to https. Defaults to false.
	// +optional
	Secure bool `json:"secure,omitempty"`

	// Partitioned stores the cookie separately for each site that embeds the workload. Defaults to false.
	// +optional
	Partitioned bool `json:"partitioned,omitempty"`

	// SameSite determines whether the cookie is sent with requests from other sites. Defaults to the default of the browser.
	// +kubebuilder:validation:Enum=Strict;Lax;None
	// +optional
	SameSite string `json:"sameSite,omitempty"`
}
