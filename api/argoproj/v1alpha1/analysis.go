package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DurationString is a duration such as 30s, 5m or 1h30m.
type DurationString string

// AnalysisTemplate is a set of metrics that can be run in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=analysistemplates,singular=analysistemplate,shortName=at,scope=Namespaced
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type AnalysisTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is what to measure.
	Spec AnalysisTemplateSpec `json:"spec"`
}

// AnalysisTemplateList is a list of AnalysisTemplates.
//
// +kubebuilder:object:root=true
type AnalysisTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AnalysisTemplate `json:"items"`
}

// ClusterAnalysisTemplate is a set of metrics that can be run in every namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusteranalysistemplates,singular=clusteranalysistemplate,shortName=cat,scope=Cluster
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type ClusterAnalysisTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is what to measure.
	Spec AnalysisTemplateSpec `json:"spec"`
}

// ClusterAnalysisTemplateList is a list of ClusterAnalysisTemplates.
//
// +kubebuilder:object:root=true
type ClusterAnalysisTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ClusterAnalysisTemplate `json:"items"`
}

// AnalysisTemplateSpec is what to measure.
type AnalysisTemplateSpec struct {
	// Metrics that are run together.
	// +listType=atomic
	// +optional
	Metrics []Metric `json:"metrics,omitempty"`
	// Args that the metrics use. One without a value must be given by who runs the template.
	// +listType=atomic
	// +optional
	Args []Argument `json:"args,omitempty"`
	// DryRun names metrics whose outcome is only recorded.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// MeasurementRetention says how many measurements are kept.
	// +listType=atomic
	// +optional
	MeasurementRetention []MeasurementRetention `json:"measurementRetention,omitempty"`
	// Templates whose metrics are run as well.
	// +listType=atomic
	// +optional
	Templates []AnalysisTemplateRef `json:"templates,omitempty"`
}

// Metric is one thing that is measured, once or repeatedly, and judged.
type Metric struct {
	// Name, unique within a run.
	Name string `json:"name"`
	// Interval between two measurements. Without it: one measurement.
	// +optional
	Interval DurationString `json:"interval,omitempty"`
	// InitialDelay before the first measurement.
	// +optional
	InitialDelay DurationString `json:"initialDelay,omitempty"`
	// Count is how often it is measured. Without it, or 0: once without an interval, else until somebody ends the run.
	// +optional
	Count *intstr.IntOrString `json:"count,omitempty"`
	// SuccessCondition is an expression over result that is true of a good measurement.
	// +optional
	SuccessCondition string `json:"successCondition,omitempty"`
	// FailureCondition is an expression over result that is true of a bad measurement.
	// +optional
	FailureCondition string `json:"failureCondition,omitempty"`
	// FailureLimit is how many measurements may fail; -1: any number. Without it: 0.
	// +optional
	FailureLimit *intstr.IntOrString `json:"failureLimit,omitempty"`
	// InconclusiveLimit is how many measurements may be neither good nor bad. Without it: 0.
	// +optional
	InconclusiveLimit *intstr.IntOrString `json:"inconclusiveLimit,omitempty"`
	// ConsecutiveErrorLimit is how many measurements in a row may go wrong. Without it: 4.
	// +optional
	ConsecutiveErrorLimit *intstr.IntOrString `json:"consecutiveErrorLimit,omitempty"`
	// ConsecutiveSuccessLimit is how many good measurements in a row are enough. Without it, or 0: not used.
	// +optional
	ConsecutiveSuccessLimit *intstr.IntOrString `json:"consecutiveSuccessLimit,omitempty"`
	// Provider is who is asked; exactly one.
	Provider MetricProvider `json:"provider"`
}

// Argument of a template, a run or an experiment.
type Argument struct {
	// Name of the argument.
	Name string `json:"name"`
	// Value of it.
	// +optional
	Value *string `json:"value,omitempty"`
	// ValueFrom says where the value is.
	// +optional
	ValueFrom *ValueFrom `json:"valueFrom,omitempty"`
}

// ValueFrom has one field set.
type ValueFrom struct {
	// SecretKeyRef is a key of a Secret in the namespace of the run.
	// +optional
	SecretKeyRef *SecretKeyRef `json:"secretKeyRef,omitempty"`
	// FieldRef is a field of the Rollout.
	// +optional
	FieldRef *FieldRef `json:"fieldRef,omitempty"`
}

// SecretKeyRef names a key of a Secret.
type SecretKeyRef struct {
	// Name of the Secret.
	Name string `json:"name"`
	// Key in it.
	Key string `json:"key"`
}

// DryRun names metrics whose outcome is only recorded.
type DryRun struct {
	// MetricName is a regular expression over names.
	MetricName string `json:"metricName"`
}

// MeasurementRetention says how many measurements of a metric are kept.
type MeasurementRetention struct {
	// MetricName is a regular expression over names.
	MetricName string `json:"metricName"`
	// Limit is how many; without a rule, or with 0: 10.
	Limit int32 `json:"limit"`
}

// AnalysisRun measures over a time and comes to a verdict.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=analysisruns,singular=analysisrun,shortName=ar,scope=Namespaced
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.phase",description="What the run has come to"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type AnalysisRun struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is what to measure.
	Spec AnalysisRunSpec `json:"spec"`
	// Status is what was measured.
	// +optional
	Status AnalysisRunStatus `json:"status,omitzero"`
}

// AnalysisRunList is a list of AnalysisRuns.
//
// +kubebuilder:object:root=true
type AnalysisRunList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AnalysisRun `json:"items"`
}

// AnalysisRunSpec is what to measure.
type AnalysisRunSpec struct {
	// Metrics of the run.
	// +listType=atomic
	Metrics []Metric `json:"metrics"`
	// Args that the metrics use.
	// +listType=atomic
	// +optional
	Args []Argument `json:"args,omitempty"`
	// Terminate ends the run.
	// +optional
	Terminate bool `json:"terminate,omitempty"`
	// DryRun names metrics whose outcome is only recorded.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// MeasurementRetention says how many measurements are kept.
	// +listType=atomic
	// +optional
	MeasurementRetention []MeasurementRetention `json:"measurementRetention,omitempty"`
	// TTLStrategy deletes the run some time after it has ended. Without it: not.
	// +optional
	TTLStrategy *TTLStrategy `json:"ttlStrategy,omitempty"`
}

// TTLStrategy is how long a run is kept after it has ended.
type TTLStrategy struct {
	// SecondsAfterCompletion is how long, unless one of the others holds.
	// +optional
	SecondsAfterCompletion *int32 `json:"secondsAfterCompletion,omitempty"`
	// SecondsAfterFailure is how long a failed run is kept.
	// +optional
	SecondsAfterFailure *int32 `json:"secondsAfterFailure,omitempty"`
	// SecondsAfterSuccess is how long a successful run is kept.
	// +optional
	SecondsAfterSuccess *int32 `json:"secondsAfterSuccess,omitempty"`
}

// AnalysisPhase is what a run, a metric, a measurement or an experiment has come to.
type AnalysisPhase string

// The phases of an analysis.
const (
	AnalysisPhasePending      AnalysisPhase = "Pending"
	AnalysisPhaseRunning      AnalysisPhase = "Running"
	AnalysisPhaseSuccessful   AnalysisPhase = "Successful"
	AnalysisPhaseFailed       AnalysisPhase = "Failed"
	AnalysisPhaseError        AnalysisPhase = "Error"
	AnalysisPhaseInconclusive AnalysisPhase = "Inconclusive"
)

// Completed is true of a phase that is not left any more.
func (p AnalysisPhase) Completed() bool {
	switch p {
	case AnalysisPhaseSuccessful, AnalysisPhaseFailed, AnalysisPhaseError, AnalysisPhaseInconclusive:
		return true
	default: // under way, and phases that only a newer controller writes
		return false
	}
}

// AnalysisRunStatus is what was measured.
type AnalysisRunStatus struct {
	// Phase is what the run has come to.
	Phase AnalysisPhase `json:"phase"`
	// Message says why.
	// +optional
	Message string `json:"message,omitempty"`
	// MetricResults by metric.
	// +listType=atomic
	// +optional
	MetricResults []MetricResult `json:"metricResults,omitempty"`
	// StartedAt is when the run began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// RunSummary counts the metrics that decide.
	// +optional
	RunSummary RunSummary `json:"runSummary,omitzero"`
	// DryRunSummary counts the metrics that are only recorded.
	// +optional
	DryRunSummary *RunSummary `json:"dryRunSummary,omitempty"`
	// CompletedAt is when the run ended.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}

// RunSummary counts metrics by what they came to.
type RunSummary struct {
	// Count of metrics.
	// +optional
	Count int32 `json:"count,omitempty"`
	// Successful metrics.
	// +optional
	Successful int32 `json:"successful,omitempty"`
	// Failed metrics.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Inconclusive metrics.
	// +optional
	Inconclusive int32 `json:"inconclusive,omitempty"`
	// Error is the number of metrics that erred.
	// +optional
	Error int32 `json:"error,omitempty"`
}

// MetricResult is what was measured of one metric.
type MetricResult struct {
	// Name of the metric.
	Name string `json:"name"`
	// Phase is what it has come to.
	Phase AnalysisPhase `json:"phase"`
	// Measurements, the newest last.
	// +listType=atomic
	// +optional
	Measurements []Measurement `json:"measurements,omitempty"`
	// Message says why it is in that phase.
	// +optional
	Message string `json:"message,omitempty"`
	// Count of measurements that have a verdict.
	// +optional
	Count int32 `json:"count,omitempty"`
	// Successful measurements.
	// +optional
	Successful int32 `json:"successful,omitempty"`
	// Failed measurements.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Inconclusive measurements.
	// +optional
	Inconclusive int32 `json:"inconclusive,omitempty"`
	// Error is the number of measurements that went wrong.
	// +optional
	Error int32 `json:"error,omitempty"`
	// ConsecutiveError is how many of the last went wrong.
	// +optional
	ConsecutiveError int32 `json:"consecutiveError,omitempty"`
	// DryRun is true when the outcome is only recorded.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// Metadata of the provider, for example the query as it was asked.
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
	// ConsecutiveSuccess is how many of the last were good.
	// +optional
	ConsecutiveSuccess int32 `json:"consecutiveSuccess,omitempty"`
}

// Measurement is one answer of a provider.
type Measurement struct {
	// Phase is how it was judged.
	Phase AnalysisPhase `json:"phase"`
	// Message says why.
	// +optional
	Message string `json:"message,omitempty"`
	// StartedAt is when it began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// FinishedAt is when it ended.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Value that was measured.
	// +optional
	Value string `json:"value,omitempty"`
	// Metadata of the provider.
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
	// ResumeAt is when it is looked at again, while it is under way.
	// +optional
	ResumeAt *metav1.Time `json:"resumeAt,omitempty"`
}
