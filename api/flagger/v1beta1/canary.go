package v1beta1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Canary describes how new versions of one workload are brought into service: which workload it is, how traffic reaches
// it, and what has to hold while a new version gets a growing part of that traffic.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=canaries,singular=canary,scope=Namespaced,categories=all
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Weight",type=string,JSONPath=".status.canaryWeight"
// +kubebuilder:printcolumn:name="Suspended",type=boolean,priority=1,JSONPath=".spec.suspend"
// +kubebuilder:printcolumn:name="FailedChecks",type=string,priority=1,JSONPath=".status.failedChecks"
// +kubebuilder:printcolumn:name="Interval",type=string,priority=1,JSONPath=".spec.analysis.interval"
// +kubebuilder:printcolumn:name="Mirror",type=boolean,priority=1,JSONPath=".spec.analysis.mirror"
// +kubebuilder:printcolumn:name="StepWeight",type=string,priority=1,JSONPath=".spec.analysis.stepWeight"
// +kubebuilder:printcolumn:name="StepWeights",type=string,priority=1,JSONPath=".spec.analysis.stepWeights"
// +kubebuilder:printcolumn:name="MaxWeight",type=string,priority=1,JSONPath=".spec.analysis.maxWeight"
// +kubebuilder:printcolumn:name="LastTransitionTime",type=string,JSONPath=".status.lastTransitionTime"
type Canary struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is what the user asks for.
	Spec CanarySpec `json:"spec,omitzero"`
	// Status is what the controller knows about the release.
	// +optional
	Status CanaryStatus `json:"status,omitzero"`
}

// CanaryList is a list of Canaries.
//
// +kubebuilder:object:root=true
type CanaryList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Canary `json:"items"`
}

// CanarySpec is what the user asks for.
type CanarySpec struct {
	// Provider says who carries the traffic of this workload: a mesh, an ingress controller, a gateway, or kubernetes
	// for none of them. It also decides in which terms the built-in metrics are asked. Without it, the flag
	// -mesh-provider of the controller holds.
	// +kubebuilder:validation:Enum=apisix;appmesh;"appmesh:v1beta2";contour;"gatewayapi:v1";"gatewayapi:v1beta1";gloo;istio;knative;kubernetes;kuma;linkerd;nginx;osm;skipper;"smi:v1alpha1";"smi:v1alpha2";"smi:v1alpha3";traefik
	// +optional
	Provider string `json:"provider,omitempty"`

	// MetricsServer is the URL of the Prometheus that the built-in metrics and inline queries are asked from. Without
	// it, the flag -metrics-server of the controller holds. It carries no credentials: a MetricTemplate does.
	// +optional
	MetricsServer string `json:"metricsServer,omitempty"`

	// TargetRef names the workload whose new versions are shipped. It lives in the namespace of the Canary.
	TargetRef TargetReference `json:"targetRef"`

	// AutoscalerRef names the autoscaler of the target. Its copy scales the primary; the original scales the canary
	// while a release runs. Without it, the primary keeps the replicas it was made with.
	// +optional
	AutoscalerRef *AutoscalerReference `json:"autoscalerRef,omitempty"`

	// IngressRef names the Ingress that carries the traffic. The providers nginx and skipper need it.
	// +optional
	IngressRef *IngressReference `json:"ingressRef,omitempty"`

	// RouteRef names the ApisixRoute that carries the traffic. The provider apisix needs it.
	// +optional
	RouteRef *RouteReference `json:"routeRef,omitempty"`

	// UpstreamRef names a Gloo Upstream whose settings the generated Upstreams take over. Without it, they have the
	// defaults of Gloo.
	// +optional
	UpstreamRef *UpstreamReference `json:"upstreamRef,omitempty"`

	// Service describes the Services that are made for the workload, and the route to them.
	// +optional
	Service CanaryService `json:"service,omitzero"`

	// Analysis says how far and how fast a release goes on, and what is checked meanwhile. Without it (and without
	// canaryAnalysis) a new version is promoted as soon as its pods are ready.
	// +optional
	Analysis *CanaryAnalysis `json:"analysis,omitempty"`

	// CanaryAnalysis is the name that analysis had in the versions v1alpha1 to v1alpha3. It is read only where analysis
	// is absent. Deprecated: write analysis.
	// +optional
	CanaryAnalysis *CanaryAnalysis `json:"canaryAnalysis,omitempty"`

	// ProgressDeadlineSeconds is how long, in seconds, a workload that was asked to change may stay without progress
	// before the release is taken back. Without it: 600.
	// +kubebuilder:validation:Type=number
	// +kubebuilder:validation:Format=""
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// SkipAnalysis promotes a new version as soon as its pods are ready, without traffic steps and checks. Without it:
	// false.
	// +optional
	SkipAnalysis bool `json:"skipAnalysis,omitempty"`

	// RevertOnDeletion gives the workload and its route back as they were found when the Canary is deleted; deletion
	// waits for that. Without it (false) everything stays as it is at that moment.
	// +optional
	RevertOnDeletion bool `json:"revertOnDeletion,omitempty"`

	// Suspend holds the release where it is: nothing is changed until it is false again. Without it: false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// TargetReference names the workload of a Canary.
type TargetReference struct {
	// APIVersion of the workload: apps/v1, v1 for a plain Service, serving.knative.dev/v1 for a Knative Service.
	APIVersion string `json:"apiVersion"`
	// Kind of the workload.
	// +kubebuilder:validation:Enum=DaemonSet;Deployment;Service
	Kind string `json:"kind"`
	// Name of the workload.
	Name string `json:"name"`
}

// KnativeGroup is the API group of Knative's Services, which share their kind with those of Kubernetes.
const KnativeGroup = "serving.knative.dev"

// Knative is true of a reference to a Service of Knative.
func (r *TargetReference) Knative() bool {
	return r.Kind == "Service" && strings.HasPrefix(r.APIVersion, KnativeGroup+"/")
}

// AutoscalerReference names the autoscaler of the target, and what its copy for the primary has otherwise.
type AutoscalerReference struct {
	// APIVersion of the autoscaler, for example autoscaling/v2 or keda.sh/v1alpha1. Versions that are no longer served
	// are accepted; the autoscaler is then read in the version that is.
	APIVersion string `json:"apiVersion"`
	// Kind of the autoscaler.
	// +kubebuilder:validation:Enum=HorizontalPodAutoscaler;ScaledObject
	Kind string `json:"kind"`
	// Name of the autoscaler, in the namespace of the Canary.
	Name string `json:"name"`

	// PrimaryScalerQueries gives triggers of the primary's ScaledObject another query, by the name of the trigger.
	// Without it, the name of the workload in all queries is replaced by that of the primary.
	// +optional
	PrimaryScalerQueries map[string]string `json:"primaryScalerQueries,omitempty"`

	// PrimaryScalerReplicas gives the primary's autoscaler other bounds than the target's. Without it they are copied.
	// +optional
	PrimaryScalerReplicas *ScalerReplicas `json:"primaryScalerReplicas,omitempty"`
}

// ScalerReplicas are the bounds of an autoscaler, in pods.
type ScalerReplicas struct {
	// MinReplicas is the lower bound. Without it, the target's.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Format=""
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the upper bound. Without it, the target's.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Format=""
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}

// IngressReference names an Ingress in the namespace of the Canary.
type IngressReference struct {
	// APIVersion of the Ingress, for example networking.k8s.io/v1.
	APIVersion string `json:"apiVersion"`
	// Kind is Ingress.
	// +kubebuilder:validation:Enum=Ingress
	Kind string `json:"kind"`
	// Name of the Ingress.
	Name string `json:"name"`
}

// RouteReference names an ApisixRoute in the namespace of the Canary.
type RouteReference struct {
	// APIVersion of the route, for example apisix.apache.org/v2.
	APIVersion string `json:"apiVersion"`
	// Kind is ApisixRoute.
	// +kubebuilder:validation:Enum=ApisixRoute
	Kind string `json:"kind"`
	// Name of the route.
	Name string `json:"name"`
}

// UpstreamReference names a Gloo Upstream.
type UpstreamReference struct {
	// APIVersion of the Upstream, for example gloo.solo.io/v1.
	APIVersion string `json:"apiVersion"`
	// Kind is Upstream.
	// +kubebuilder:validation:Enum=Upstream
	Kind string `json:"kind"`
	// Name of the Upstream.
	Name string `json:"name"`
	// Namespace of the Upstream. Without it, that of the Canary.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// CrossNamespaceObjectReference names a MetricTemplate or an AlertProvider.
type CrossNamespaceObjectReference struct {
	// Name of the object.
	Name string `json:"name"`
	// Namespace of the object. Without it, that of the Canary. The flag -no-cross-namespace-refs of the controller
	// forbids any other.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}
