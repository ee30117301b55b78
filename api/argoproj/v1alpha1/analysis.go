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

	// Spec defines what is measured.
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

	// Spec defines what is measured.
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

// AnalysisTemplateSpec defines metrics and their arguments.
type AnalysisTemplateSpec struct {
	// Metrics that are measured together.
	// +listType=atomic
	// +optional
	Metrics []Metric `json:"metrics,omitempty"`
	// Args that the metrics use. An argument without a value must be set by the Rollout or Experiment that uses the template.
	// +listType=atomic
	// +optional
	Args []Argument `json:"args,omitempty"`
	// DryRun selects metrics whose results are recorded, but do not affect the result of the run.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// MeasurementRetention sets how many measurements of a metric are kept.
	// +listType=atomic
	// +optional
	MeasurementRetention []MeasurementRetention `json:"measurementRetention,omitempty"`
	// Templates whose metrics are measured as well.
	// +listType=atomic
	// +optional
	Templates []AnalysisTemplateRef `json:"templates,omitempty"`
}

// Metric is measured once or repeatedly, and its measurements are evaluated.
type Metric struct {
	// Name of the metric, unique within a run.
	Name string `json:"name"`
	// Interval between two measurements. If omitted, the metric is measured once.
	// +optional
	Interval DurationString `json:"interval,omitempty"`
	// InitialDelay before the first measurement.
	// +optional
	InitialDelay DurationString `json:"initialDelay,omitempty"`
	// Count is the number of measurements. If omitted or 0, the metric is measured once without an interval, and with an
	// interval until the run is terminated.
	// +optional
	Count *intstr.IntOrString `json:"count,omitempty"`
	// SuccessCondition is an expression over result. A measurement for which it is true is successful.
	// +optional
	SuccessCondition string `json:"successCondition,omitempty"`
	// FailureCondition is an expression over result. A measurement for which it is true is failed.
	// +optional
	FailureCondition string `json:"failureCondition,omitempty"`
	// FailureLimit is the number of measurements that may fail; -1 allows any number. Defaults to 0.
	// +optional
	FailureLimit *intstr.IntOrString `json:"failureLimit,omitempty"`
	// InconclusiveLimit is the number of measurements that may be inconclusive: neither successful nor failed. Defaults to 0.
	// +optional
	InconclusiveLimit *intstr.IntOrString `json:"inconclusiveLimit,omitempty"`
	// ConsecutiveErrorLimit is the number of consecutive measurements that may end with an error. Defaults to 4.
	// +optional
	ConsecutiveErrorLimit *intstr.IntOrString `json:"consecutiveErrorLimit,omitempty"`
	// ConsecutiveSuccessLimit is the number of consecutive successful measurements after which the metric is successful. If
	// omitted or 0, there is no such limit.
	// +optional
	ConsecutiveSuccessLimit *intstr.IntOrString `json:"consecutiveSuccessLimit,omitempty"`
	// Provider that is queried. Exactly one must be set.
	Provider MetricProvider `json:"provider"`
}

// Argument of a template, an analysis run or an experiment.
type Argument struct {
	// Name of the argument.
	Name string `json:"name"`
	// Value of the argument.
	// +optional
	Value *string `json:"value,omitempty"`
	// ValueFrom is the source of the value.
	// +optional
	ValueFrom *ValueFrom `json:"valueFrom,omitempty"`
}

// ValueFrom is the source of a value. One field must be set.
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
	// Key in the Secret.
	Key string `json:"key"`
}

// DryRun selects metrics whose results are recorded, but do not affect the result of the run.
type DryRun struct {
	// MetricName is a regular expression that matches names of metrics.
	MetricName string `json:"metricName"`
}

// MeasurementRetention sets how many measurements of a metric are kept.
type MeasurementRetention struct {
	// MetricName is a regular expression that matches names of metrics.
	MetricName string `json:"metricName"`
	// Limit is the number of measurements. Metrics without a rule, or with the limit 0, keep 10.
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

	// Spec defines what is measured.
	Spec AnalysisRunSpec `json:"spec"`
	// Status has the measurements and the result.
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

// AnalysisRunSpec defines what is measured.
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
	// DryRun selects metrics whose results are recorded, but do not affect the result of the run.
	// +listType=atomic
	// +optional
	DryRun []DryRun `json:"dryRun,omitempty"`
	// MeasurementRetention sets how many measurements of a metric are kept.
	// +listType=atomic
	// +optional
	MeasurementRetention []MeasurementRetention `json:"measurementRetention,omitempty"`
	// TTLStrategy deletes the run some time after it has completed. If omitted, the run is not deleted.
	// +optional
	TTLStrategy *TTLStrategy `json:"ttlStrategy,omitempty"`
}

// TTLStrategy is how long a run is kept after it has completed.
type TTLStrategy struct {
	// SecondsAfterCompletion is how long a run is kept, in seconds, unless one of the other fields applies.
	// +optional
	SecondsAfterCompletion *int32 `json:"secondsAfterCompletion,omitempty"`
	// SecondsAfterFailure is how long a failed run is kept, in seconds.
	// +optional
	SecondsAfterFailure *int32 `json:"secondsAfterFailure,omitempty"`
	// SecondsAfterSuccess is how long a successful run is kept, in seconds.
	// +optional
	SecondsAfterSuccess *int32 `json:"secondsAfterSuccess,omitempty"`
}

// AnalysisPhase is the state of an analysis run, a metric, a measurement or an experiment.
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

// Completed reports whether the phase is final.
func (p AnalysisPhase) Completed() bool {
	switch p {
	case AnalysisPhaseSuccessful, AnalysisPhaseFailed, AnalysisPhaseError, AnalysisPhaseInconclusive:
		return true
	default: // pending, running, and phases that only a newer controller writes
		return false
	}
}

// AnalysisRunStatus has the measurements and the result of a run.
type AnalysisRunStatus struct {
	// Phase of the run.
	Phase AnalysisPhase `json:"phase"`
	// Message is the reason for the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// MetricResults are the results by metric.
	// +listType=atomic
	// +optional
	MetricResults []MetricResult `json:"metricResults,omitempty"`
	// StartedAt is the time at which the run started.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// RunSummary counts the metrics that determine the result of the run.
	// +optional
	RunSummary RunSummary `json:"runSummary,omitzero"`
	// DryRunSummary counts the metrics that are measured as a dry run.
	// +optional
	DryRunSummary *RunSummary `json:"dryRunSummary,omitempty"`
	// CompletedAt is the time at which the run completed.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}

// RunSummary counts metrics by their result.
type RunSummary struct {
	// Count is the number of metrics.
	// +optional
	Count int32 `json:"count,omitempty"`
	// Successful is the number of successful metrics.
	// +optional
	Successful int32 `json:"successful,omitempty"`
	// Failed is the number of failed metrics.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Inconclusive is the number of inconclusive metrics.
	// +optional
	Inconclusive int32 `json:"inconclusive,omitempty"`
	// Error is the number of metrics that ended with an error.
	// +optional
	Error int32 `json:"error,omitempty"`
}

// MetricResult is the result of one metric.
type MetricResult struct {
	// Name of the metric.
	Name string `json:"name"`
	// Phase of the metric.
	Phase AnalysisPhase `json:"phase"`
	// Measurements of the metric, the newest last.
	// +listType=atomic
	// +optional
	Measurements []Measurement `json:"measurements,omitempty"`
	// Message is the reason for the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// Count is the number of measurements that completed without an error.
	// +optional
	Count int32 `json:"count,omitempty"`
	// Successful is the number of successful measurements.
	// +optional
	Successful int32 `json:"successful,omitempty"`
	// Failed is the number of failed measurements.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Inconclusive is the number of inconclusive measurements.
	// +optional
	Inconclusive int32 `json:"inconclusive,omitempty"`
	// Error is the number of measurements that ended with an error.
	// +optional
	Error int32 `json:"error,omitempty"`
	// ConsecutiveError is the number of the latest measurements that all ended with an error.
	// +optional
	ConsecutiveError int32 `json:"consecutiveError,omitempty"`
	// DryRun is true if the result is recorded, but does not affect the run.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// Metadata of the provider, for example the query with its arguments resolved.
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
	// ConsecutiveSuccess is the number of the latest measurements that were all successful.
	// +optional
	ConsecutiveSuccess int32 `json:"consecutiveSuccess,omitempty"`
}

// Measurement is one result of a query to a provider.
type Measurement struct {
	// Phase of the measurement.
	Phase AnalysisPhase `json:"phase"`
	// Message is the reason for the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// StartedAt is the time at which the measurement started.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// FinishedAt is the time at which the measurement ended.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Value that was measured.
	// +optional
	Value string `json:"value,omitempty"`
	// Metadata of the provider.
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
	// ResumeAt is the time at which a running measurement is checked next.
	// +optional
	ResumeAt *metav1.Time `json:"resumeAt,omitempty"`
}
