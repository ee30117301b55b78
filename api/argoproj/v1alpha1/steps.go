package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// CanaryStep is one step of a release. Exactly one field must be set.
type CanaryStep struct {
	// SetWeight is the weight of the new revision from this step on, from 0 to 100 or to maxTrafficWeight.
	// +optional
	SetWeight *int32 `json:"setWeight,omitempty"`
	// Pause waits for a time or for the user.
	// +optional
	Pause *RolloutPause `json:"pause,omitempty"`
	// Experiment runs additional pods and waits for the Experiment to succeed.
	// +optional
	Experiment *RolloutExperimentStep `json:"experiment,omitempty"`
	// Analysis starts an AnalysisRun and waits for it to succeed.
	// +optional
	Analysis *RolloutAnalysis `json:"analysis,omitempty"`
	// SetCanaryScale sets the number of pods of the new revision independently of its weight. Only with traffic routing.
	// +optional
	SetCanaryScale *SetCanaryScale `json:"setCanaryScale,omitempty"`
	// SetHeaderRoute sends requests with certain headers to the new revision.
	// +optional
	SetHeaderRoute *SetHeaderRoute `json:"setHeaderRoute,omitempty"`
	// SetMirrorRoute copies certain requests to the new revision.
	// +optional
	SetMirrorRoute *SetMirrorRoute `json:"setMirrorRoute,omitempty"`
	// Plugin delegates the step to a plugin.
	// +optional
	Plugin *PluginStep `json:"plugin,omitempty"`
}

// RolloutPause waits for a time, or for the user.
type RolloutPause struct {
	// Duration is a number of seconds, as a number or a string, or a duration such as 10m or 1h30m. If omitted, the pause
	// ends when the user promotes the release.
	// +optional
	Duration *intstr.IntOrString `json:"duration,omitempty"`
}

// SetCanaryScale is the number of pods of the new revision. One field must be set.
type SetCanaryScale struct {
	// Weight is the number of pods of the new revision as a percentage of replicas.
	// +optional
	Weight *int32 `json:"weight,omitempty"`
	// Replicas is the number of pods of the new revision.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// MatchTrafficWeight makes the number of pods follow the weight again.
	// +optional
	MatchTrafficWeight bool `json:"matchTrafficWeight,omitempty"`
}

// SetHeaderRoute sends requests with certain headers to the new revision.
type SetHeaderRoute struct {
	// Name of the route, one of trafficRouting.managedRoutes.
	// +optional
	Name string `json:"name,omitempty"`
	// Match are the headers, all of which must match. If omitted, the route is removed.
	// +listType=atomic
	// +optional
	Match []HeaderRoutingMatch `json:"match,omitempty"`
}

// HeaderRoutingMatch matches one header.
type HeaderRoutingMatch struct {
	// HeaderName is the name of the header.
	HeaderName string `json:"headerName"`
	// HeaderValue matches the value of the header.
	HeaderValue *StringMatch `json:"headerValue"`
}

// SetMirrorRoute copies certain requests to the new revision.
type SetMirrorRoute struct {
	// Name of the route, one of trafficRouting.managedRoutes.
	Name string `json:"name"`
	// Match are the matches. A request that any of them matches is copied. If omitted, the route is removed.
	// +listType=atomic
	// +optional
	Match []RouteMatch `json:"match,omitempty"`
	// Percentage of the matching requests that are copied. Defaults to 100.
	// +optional
	Percentage *int32 `json:"percentage,omitempty"`
}

// RouteMatch has conditions for a request, all of which must match.
type RouteMatch struct {
	// Method of the request.
	// +optional
	Method *StringMatch `json:"method,omitempty"`
	// Path of the request.
	// +optional
	Path *StringMatch `json:"path,omitempty"`
	// Headers of the request, by name.
	// +optional
	Headers map[string]StringMatch `json:"headers,omitempty"`
}

// StringMatch matches a string. Exactly one field must be set.
type StringMatch struct {
	// Exact is the whole string.
	// +optional
	Exact string `json:"exact,omitempty"`
	// Prefix is the beginning of the string.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// Regex is a regular expression that the string matches.
	// +optional
	Regex string `json:"regex,omitempty"`
}

// PluginStep is a step that a plugin executes.
type PluginStep struct {
	// Name of the plugin in the configuration of the controller.
	Name string `json:"name"`
	// Config is passed to the plugin.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Config json.RawMessage `json:"config,omitempty"`
}

// RolloutAnalysis defines an AnalysisRun.
type RolloutAnalysis struct {
	// Templates whose metrics are measured together.
	// +listType=atomic
	// +optional
	Templates []AnalysisTemplateRef `json:"templates,omitempty"`
	// Args for the templates.
	// +listType=atomic
	// +optional
	Args []AnalysisRunArgument `json:"args,omitempty"`
	// DryRun selects metrics whose results are recorded, but do not affect the release.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// MeasurementRetention sets how many measurements of a metric are kept.
	// +listType=atomic
	// +optional
	MeasurementRetention []MeasurementRetention `json:"measurementRetention,omitempty"`
	// AnalysisRunMetadata is added to the AnalysisRun.
	// +optional
	AnalysisRunMetadata *AnalysisRunMetadata `json:"analysisRunMetadata,omitempty"`
}

// RolloutAnalysisBackground is an analysis that runs in the background during the steps.
type RolloutAnalysisBackground struct {
	RolloutAnalysis `json:",inline"`
	// StartingStep is the index of the step, from 0, at which the analysis starts. Defaults to 0.
	// +optional
	StartingStep *int32 `json:"startingStep,omitempty"`
}

// AnalysisTemplateRef names a template.
type AnalysisTemplateRef struct {
	// TemplateName is the name of the template. An empty name is refused when the references are resolved.
	// +optional
	TemplateName string `json:"templateName"`
	// ClusterScope is true for a ClusterAnalysisTemplate.
	// +optional
	ClusterScope *bool `json:"clusterScope,omitempty"`
}

// AnalysisRunMetadata has labels and annotations for AnalysisRuns.
type AnalysisRunMetadata struct {
	// Labels by key.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations by key.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// AnalysisRunArgument is an argument that a Rollout passes to an analysis.
type AnalysisRunArgument struct {
	// Name of the argument.
	Name string `json:"name"`
	// Value of the argument.
	// +optional
	Value string `json:"value,omitempty"`
	// ValueFrom is the source of the value.
	// +optional
	ValueFrom *ArgumentValueFrom `json:"valueFrom,omitempty"`
}

// PodTemplateHashOf selects a ReplicaSet of the Rollout.
type PodTemplateHashOf string

// The ReplicaSets whose hash can be selected.
const (
	HashOfStable PodTemplateHashOf = "Stable"
	HashOfLatest PodTemplateHashOf = "Latest"
)

// ArgumentValueFrom is the source of a value. One field must be set.
type ArgumentValueFrom struct {
	// PodTemplateHashValue is the hash of the Stable or of the Latest ReplicaSet.
	// +optional
	PodTemplateHashValue *PodTemplateHashOf `json:"podTemplateHashValue,omitempty"`
	// FieldRef is a field of the Rollout.
	// +optional
	FieldRef *FieldRef `json:"fieldRef,omitempty"`
}

// FieldRef selects a field.
type FieldRef struct {
	// FieldPath, for example metadata.labels['env'] or status.canary.weights.canary.weight.
	FieldPath string `json:"fieldPath"`
}

// ReplicaSetSpecRef is the revision from which an experiment copies its pods.
type ReplicaSetSpecRef string

// The revisions that an experiment can copy.
const (
	CanarySpecRef ReplicaSetSpecRef = "canary"
	StableSpecRef ReplicaSetSpecRef = "stable"
)

// RolloutExperimentStep defines an Experiment.
type RolloutExperimentStep struct {
	// Templates of the additional pods.
	// +listType=atomic
	Templates []RolloutExperimentTemplate `json:"templates"`
	// Duration for which the pods run once they are available. If omitted, the Experiment ends with its analyses.
	// +optional
	Duration DurationString `json:"duration,omitempty"`
	// Analyses of the pods.
	// +listType=atomic
	// +optional
	Analyses []RolloutExperimentStepAnalysisTemplateRef `json:"analyses,omitempty"`
	// DryRun selects metrics whose results are recorded, but do not affect the Experiment.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// AnalysisRunMetadata is added to the AnalysisRuns. It is written even if it is empty, because hashes of steps include
	// it.
	// +optional
	AnalysisRunMetadata AnalysisRunMetadata `json:"analysisRunMetadata"`
	// ScaleDownDelaySeconds is how long the pods keep running after the Experiment, in seconds. Defaults to 30.
	// +optional
	ScaleDownDelaySeconds *int32 `json:"scaleDownDelaySeconds,omitempty"`
}

// RolloutExperimentTemplate describes the pods of one template of an Experiment.
type RolloutExperimentTemplate struct {
	// Name of the template.
	Name string `json:"name"`
	// SpecRef is the revision whose pod template is copied: canary or stable.
	SpecRef ReplicaSetSpecRef `json:"specRef"`
	// Replicas is the number of pods. Defaults to 1.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Metadata is added to the pods, in addition to that of the revision. It is written even if it is empty, because hashes
	// of steps include it.
	// +optional
	Metadata PodTemplateMetadata `json:"metadata"`
	// Selector of the pods. Defaults to the selector of the revision.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Weight of these pods in the traffic. Not all routers support it.
	// +optional
	Weight *int32 `json:"weight,omitempty"`
	// Service requests a Service for these pods. With a weight, a Service is always created.
	// +optional
	Service *TemplateService `json:"service,omitempty"`
}

// TemplateService is a Service of an Experiment.
type TemplateService struct {
	// Name of the Service. Defaults to the name of the ReplicaSet.
	// +optional
	Name string `json:"name,omitempty"`
}

// RolloutExperimentStepAnalysisTemplateRef names an analysis of an Experiment.
type RolloutExperimentStepAnalysisTemplateRef struct {
	// Name of the analysis.
	Name string `json:"name"`
	// TemplateName is the name of its template.
	TemplateName string `json:"templateName"`
	// ClusterScope is true for a ClusterAnalysisTemplate.
	// +optional
	ClusterScope *bool `json:"clusterScope,omitempty"`
	// Args for the template.
	// +listType=atomic
	// +optional
	Args []AnalysisRunArgument `json:"args,omitempty"`
	// RequiredForCompletion completes the Experiment as soon as all analyses with this setting are successful.
	// +optional
	RequiredForCompletion bool `json:"requiredForCompletion,omitempty"`
}
