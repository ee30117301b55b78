// Package v1alpha1 holds the types of the API group argoproj.io: Rollout, AnalysisTemplate, ClusterAnalysisTemplate,
// AnalysisRun and Experiment.
//
// It says what a person may write and what a controller answers, and nothing of what follows from it. It must not know
// defaults that are applied in memory, strategies, clients or providers: those are the business of internal/rollout and
// internal/analysis. The comments of the fields are the reference that users read with kubectl explain.
//
// The order of the fields of steps is part of the API: status.currentStepHash is a hash over their JSON.
//
// +kubebuilder:object:generate=true
// +groupName=argoproj.io
package v1alpha1
