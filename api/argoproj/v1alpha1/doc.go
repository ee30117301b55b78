// Package v1alpha1 has the types of the API group argoproj.io: Rollout, AnalysisTemplate, ClusterAnalysisTemplate,
// AnalysisRun and Experiment.
//
// It defines the fields that users set and the status that controllers write. It must not know defaults that are applied in
// memory, strategies, clients or providers: those belong to internal/rollout and internal/analysis. The comments of the
// fields are the reference that users read with kubectl explain.
//
// The order of the fields of steps is part of the API: status.currentStepHash is a hash of their JSON.
//
// +kubebuilder:object:generate=true
// +groupName=argoproj.io
package v1alpha1
