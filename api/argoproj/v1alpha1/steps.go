package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// CanaryStep is one step of a release; one field is set.
type CanaryStep struct {
	// SetWeight is the share of the new revision from here on, 0 to 100 or to maxTrafficWeight.
	// +optional
	SetWeight *int32 `json:"setWeight,omitempty"`
	// Pause waits.
	// +optional
	Pause *RolloutPause `json:"pause,omitempty"`
	// Experiment runs other pods beside and waits for it to succeed.
	// +optional
	Experiment *RolloutExperimentStep `json:"experiment,omitempty"`
	// Analysis runs metrics and waits for them to succeed.
	// +optional
	Analysis *RolloutAnalysis `json:"analysis,omitempty"`
	// SetCanaryScale sets the pods of the new revision apart from its weight. Only with traffic routing.
	// +optional
	SetCanaryScale *SetCanaryScale `json:"setCanaryScale,omitempty"`
	// SetHeaderRoute sends requests with certain headers to the new revision.
	// +optional
	SetHeaderRoute *SetHeaderRoute `json:"setHeaderRoute,omitempty"`
	// SetMirrorRoute copies certain requests to the new revision.
	// +optional
	SetMirrorRoute *SetMirrorRoute `json:"setMirrorRoute,omitempty"`
	// Plugin hands the step to a plugin.
	// +optional
	Plugin *PluginStep `json:"plugin,omitempty"`
}

// RolloutPause is a wait for a time, or for a person.
type RolloutPause struct {
	// Duration is a number of seconds, as a number or in digits, or a duration such as 10m or 1h30m. Without it the
	// pause ends when a person promotes.
	// +optional
	Duration *intstr.IntOrString `json:"duration,omitempty"`
}

// SetCanaryScale has one field set.
type SetCanaryScale struct {
	// Weight is the share of replicas that the new revision has, in percent.
	// +optional
	Weight *int32 `json:"weight,omitempty"`
	// Replicas is how many pods the new revision has.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// MatchTrafficWeight lets the pods follow the weight again.
	// +optional
	MatchTrafficWeight bool `json:"matchTrafficWeight,omitempty"`
}

// SetHeaderRoute is a managed route by headers.
type SetHeaderRoute struct {
	// Name of the route, one of trafficRouting.managedRoutes.
	// +optional
	Name string `json:"name,omitempty"`
	// Match are the headers, all of which must match. Without any, the route is taken away.
	// +listType=atomic
	// +optional
	Match []HeaderRoutingMatch `json:"match,omitempty"`
}

// HeaderRoutingMatch is one header.
type HeaderRoutingMatch struct {
	// HeaderName is its name.
	HeaderName string `json:"headerName"`
	// HeaderValue is what its value must be.
	HeaderValue *StringMatch `json:"headerValue"`
}

// SetMirrorRoute is a managed route that mirrors.
type SetMirrorRoute struct {
	// Name of the route, one of trafficRouting.managedRoutes.
	Name string `json:"name"`
	// Match are the requests, any of which is mirrored. Without any, the route is taken away.
	// +listType=atomic
	// +optional
	Match []RouteMatch `json:"match,omitempty"`
	// Percentage of the matching requests. Without it: 100.
	// +optional
	Percentage *int32 `json:"percentage,omitempty"`
}

// RouteMatch is a set of conditions on a request, all of which must hold.
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

// StringMatch has exactly one field set.
type StringMatch struct {
	// Exact is the whole text.
	// +optional
	Exact string `json:"exact,omitempty"`
	// Prefix is how the text begins.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// Regex is a regular expression that the text matches.
	// +optional
	Regex string `json:"regex,omitempty"`
}

// PluginStep is a step that a plugin carries out.
type PluginStep struct {
	// Name of the plugin, as it is configured for the controller.
	Name string `json:"name"`
	// Config is handed to the plugin.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Config json.RawMessage `json:"config,omitempty"`
}

// RolloutAnalysis says which metrics to run.
type RolloutAnalysis struct {
	// Templates whose metrics are run together.
	// +listType=atomic
	// +optional
	Templates []AnalysisTemplateRef `json:"templates,omitempty"`
	// Args for the templates.
	// +listType=atomic
	// +optional
	Args []AnalysisRunArgument `json:"args,omitempty"`
	// DryRun names metrics whose outcome is only recorded.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// MeasurementRetention says how many measurements are kept.
	// +listType=atomic
	// +optional
	MeasurementRetention []MeasurementRetention `json:"measurementRetention,omitempty"`
	// AnalysisRunMetadata is put on the AnalysisRun.
	// +optional
	AnalysisRunMetadata *AnalysisRunMetadata `json:"analysisRunMetadata,omitempty"`
}

// RolloutAnalysisBackground is an analysis beside the steps.
type RolloutAnalysisBackground struct {
	RolloutAnalysis `json:",inline"`
	// StartingStep is the index of the step, from 0, with which it begins. Without it: 0.
	// +optional
	StartingStep *int32 `json:"startingStep,omitempty"`
}

// AnalysisTemplateRef names a template.
type AnalysisTemplateRef struct {
	// TemplateName is its name. One that is empty is refused when the references are looked up.
	// +optional
	TemplateName string `json:"templateName"`
	// ClusterScope is true for a ClusterAnalysisTemplate.
	// +optional
	ClusterScope *bool `json:"clusterScope,omitempty"`
}

// AnalysisRunMetadata is put on AnalysisRuns.
type AnalysisRunMetadata struct {
	// Labels by key.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations by key.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// AnalysisRunArgument is an argument as a Rollout gives it.
type AnalysisRunArgument struct {
	// Name of the argument.
	Name string `json:"name"`
	// Value as it is.
	// +optional
	Value string `json:"value,omitempty"`
	// ValueFrom says where the value is.
	// +optional
	ValueFrom *ArgumentValueFrom `json:"valueFrom,omitempty"`
}

// PodTemplateHashOf says whose hash is meant.
type PodTemplateHashOf string

// Whose hash is meant.
const (
	HashOfStable PodTemplateHashOf = "Stable"
	HashOfLatest PodTemplateHashOf = "Latest"
)

// ArgumentValueFrom has one field set.
type ArgumentValueFrom struct {
	// PodTemplateHashValue is the hash of the Stable or of the Latest ReplicaSet.
	// +optional
	PodTemplateHashValue *PodTemplateHashOf `json:"podTemplateHashValue,omitempty"`
	// FieldRef is a field of the Rollout.
	// +optional
	FieldRef *FieldRef `json:"fieldRef,omitempty"`
}

// FieldRef names a field.
type FieldRef struct {
	// FieldPath, for example metadata.labels['env'] or status.canary.weights.canary.weight.
	FieldPath string `json:"fieldPath"`
}

// ReplicaSetSpecRef says which revision an experiment copies.
type ReplicaSetSpecRef string

// Which revision an experiment copies.
const (
	CanarySpecRef ReplicaSetSpecRef = "canary"
	StableSpecRef ReplicaSetSpecRef = "stable"
)

// RolloutExperimentStep describes an Experiment.
type RolloutExperimentStep struct {
	// Templates of the pods that run beside.
	// +listType=atomic
	Templates []RolloutExperimentTemplate `json:"templates"`
	// Duration for which they run once they are available. Without it the analyses decide.
	// +optional
	Duration DurationString `json:"duration,omitempty"`
	// Analyses that judge them.
	// +listType=atomic
	// +optional
	Analyses []RolloutExperimentStepAnalysisTemplateRef `json:"analyses,omitempty"`
	// DryRun names metrics whose outcome is only recorded.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// AnalysisRunMetadata is put on the AnalysisRuns. It is written even when it is empty: hashes of steps count it.
	// +optional
	AnalysisRunMetadata AnalysisRunMetadata `json:"analysisRunMetadata"`
	// ScaleDownDelaySeconds is how long the pods stay at the end, in seconds. Without it: 30.
	// +optional
	ScaleDownDelaySeconds *int32 `json:"scaleDownDelaySeconds,omitempty"`
}

// RolloutExperimentTemplate describes the pods of one side of an Experiment.
type RolloutExperimentTemplate struct {
	// Name of the side.
	Name string `json:"name"`
	// SpecRef is the revision whose pods are copied: canary or stable.
	SpecRef ReplicaSetSpecRef `json:"specRef"`
	// Replicas is how many pods. Without it: 1.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Metadata is put on the pods beside that of the revision. It is written even when it is empty: hashes count it.
	// +optional
	Metadata PodTemplateMetadata `json:"metadata"`
	// Selector of the pods. Without it: that of the revision.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Weight is the share of the traffic that these pods get. Only with some routers.
	// +optional
	Weight *int32 `json:"weight,omitempty"`
	// Service asks for a Service for these pods. With a weight there is always one.
	// +optional
	Service *TemplateService `json:"service,omitempty"`
}

// TemplateService is a Service of an Experiment.
type TemplateService struct {
	// Name of it. Without it: that of the ReplicaSet.
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
	// RequiredForCompletion ends the Experiment when all analyses of this kind are successful.
	// +optional
	RequiredForCompletion bool `json:"requiredForCompletion,omitempty"`
}
