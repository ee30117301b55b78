// Package v1beta1 has the types of the API group flagger.app: Canary, MetricTemplate and AlertProvider.
//
// It defines the fields that users set and the status that controllers write. It must not know defaults that depend on
// anything but the field itself, strategies, clients or providers: internal/canary creates the plan of a release. The
// comments of the fields are the reference that users read with kubectl explain.
//
// The same types serve the versions v1alpha1, v1alpha2 and v1alpha3, so that old manifests can be applied unchanged.
//
// +kubebuilder:object:generate=true
// +groupName=flagger.app
package v1beta1
