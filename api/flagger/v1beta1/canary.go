package v1beta1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Canary defines how new versions of one workload are released: the workload, the traffic that reaches it, and the checks
// that a new version must pass while its share of that traffic grows.
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

	// Spec is the desired state.
	Spec CanarySpec `json:"spec,omitzero"`
	// Status is the observed state.
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

// CanarySpec is the desired state of a Canary.
type CanarySpec struct {
	// Provider routes the traffic of this workload: a mesh, an ingress controller or a gateway, or kubernetes if there is
	// none. It also selects the queries of the built-in metrics. Defaults to the flag -mesh-provider of the controller.
	// +kubebuilder:validation:Enum=apisix;appmesh;"appmesh:v1beta2";contour;"gatewayapi:v1";"gatewayapi:v1beta1";gloo;istio;knative;kubernetes;kuma;linkerd;nginx;osm;skipper;"smi:v1alpha1";"smi:v1alpha2";"smi:v1alpha3";traefik
	// +optional
	Provider string `json:"provider,omitempty"`

	// MetricsServer is the URL of the Prometheus server for built-in metrics and inline queries. Defaults to the flag
	// -metrics-server of the controller. It must not contain credentials: use a MetricTemplate for those.
	// +optional
	MetricsServer string `json:"metricsServer,omitempty"`

	// TargetRef names the workload whose new versions are released. It must be in the namespace of the Canary.
	TargetRef TargetReference `json:"targetRef"`

	// AutoscalerRef names the autoscaler of the target. A copy of it scales the primary; the original scales the canary
	// during a release. If omitted, the primary keeps the replicas with which it was created.
	// +optional
	AutoscalerRef *AutoscalerReference `json:"autoscalerRef,omitempty"`

	// IngressRef names the Ingress that routes the traffic. Required by the providers nginx and skipper.
	// +optional
	IngressRef *IngressReference `json:"ingressRef,omitempty"`

	// RouteRef names the ApisixRoute that routes the traffic. Required by the provider apisix.
	// +optional
	RouteRef *RouteReference `json:"routeRef,omitempty"`

	// UpstreamRef names a Gloo Upstream whose settings are copied to the generated Upstreams. If omitted, they have the
	// defaults of Gloo.
	// +optional
	UpstreamRef *UpstreamReference `json:"upstreamRef,omitempty"`

	// Service describes the Services that are created for the workload, and the route to them.
	// +optional
	Service CanaryService `json:"service,omitzero"`

	// Analysis defines the steps of a release and the checks of each step. If it and canaryAnalysis are omitted, a new
	// version is promoted as soon as its pods are ready.
	// +optional
	Analysis *CanaryAnalysis `json:"analysis,omitempty"`

	// CanaryAnalysis is the name of analysis in the versions v1alpha1 to v1alpha3. It is used only if analysis is absent.
	// Deprecated: use analysis.
	// +optional
	CanaryAnalysis *CanaryAnalysis `json:"canaryAnalysis,omitempty"`

	// ProgressDeadlineSeconds is how long, in seconds, the rollout of the canary or the primary may take without progress
	// before the release is rolled back. Defaults to 600.
	// +kubebuilder:validation:Type=number
	// +kubebuilder:validation:Format=""
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// SkipAnalysis promotes a new version as soon as its pods are ready, without traffic steps and checks. Defaults to false.
	// +optional
	SkipAnalysis bool `json:"skipAnalysis,omitempty"`

	// RevertOnDeletion restores the original workload and route when the Canary is deleted; the deletion waits for that.
	// Defaults to false: everything remains as it is.
	// +optional
	RevertOnDeletion bool `json:"revertOnDeletion,omitempty"`

	// Suspend suspends the release: nothing is changed until it is false again. Defaults to false.
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

// Knative reports whether the reference names a Service of Knative.
func (r *TargetReference) Knative() bool {
	return r.Kind == "Service" && strings.HasPrefix(r.APIVersion, KnativeGroup+"/")
}

// AutoscalerReference names the autoscaler of the target, and the settings in which its copy for the primary differs.
type AutoscalerReference struct {
	// APIVersion of the autoscaler, for example autoscaling/v2 or keda.sh/v1alpha1. Versions that are no longer served are
	// accepted; the autoscaler is then read in a served version.
	APIVersion string `json:"apiVersion"`
	// Kind of the autoscaler.
	// +kubebuilder:validation:Enum=HorizontalPodAutoscaler;ScaledObject
	Kind string `json:"kind"`
	// Name of the autoscaler, in the namespace of the Canary.
	Name string `json:"name"`

	// PrimaryScalerQueries are other queries for triggers of the primary's ScaledObject, by the name of the trigger. If
	// omitted, the name of the workload in all queries is replaced by that of the primary.
	// +optional
	PrimaryScalerQueries map[string]string `json:"primaryScalerQueries,omitempty"`

	// PrimaryScalerReplicas are other limits for the primary's autoscaler. If omitted, the limits of the target's autoscaler
	// are copied.
	// +optional
	PrimaryScalerReplicas *ScalerReplicas `json:"primaryScalerReplicas,omitempty"`
}

// ScalerReplicas are the limits of an autoscaler, in pods.
type ScalerReplicas struct {
	// MinReplicas is the lower limit. Defaults to that of the target's autoscaler.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Format=""
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the upper limit. Defaults to that of the target's autoscaler.
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
	// Namespace of the Upstream. Defaults to the namespace of the Canary.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// CrossNamespaceObjectReference names a MetricTemplate or an AlertProvider.
type CrossNamespaceObjectReference struct {
	// Name of the object.
	Name string `json:"name"`
	// Namespace of the object. Defaults to the namespace of the Canary. The flag -no-cross-namespace-refs of the controller
	// forbids any other.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}
