// Package v1beta1 holds the types of the API group flagger.app: Canary, MetricTemplate and AlertProvider.
//
// It says what a person may write and what a controller answers, and nothing of what follows from it. It must not know
// defaults that depend on anything but the field itself, strategies, clients or providers: the plan of a release is made
// in internal/canary. The comments of the fields are the reference that users read with kubectl explain.
//
// The same types serve the versions v1alpha1, v1alpha2 and v1alpha3, so that old manifests apply as they are.
//
// +kubebuilder:object:generate=true
// +groupName=flagger.app
package v1beta1
