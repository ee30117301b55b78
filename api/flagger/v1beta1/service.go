package v1beta1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// CanaryService describes the Services of the workload and the route to them. Three Services are made: the apex, which
// clients call, and one each for primary and canary, with the suffixes -primary and -canary.
type CanaryService struct {
	// Name of the apex Service. Without it, the name of the target.
	// +optional
	Name string `json:"name,omitempty"`

	// Port that the Services listen on.
	// +kubebuilder:validation:Type=number
	// +kubebuilder:validation:Format=""
	Port int32 `json:"port"`

	// PortName is the name of that port. Meshes read the protocol from it: http, grpc, …. Without it: http.
	// +optional
	PortName string `json:"portName,omitempty"`

	// TargetPort is the port of the pods, as a number or by name. Without it, the value of port.
	// +optional
	TargetPort *intstr.IntOrString `json:"targetPort,omitempty"`

	// AppProtocol of the port of the Services, for example http, grpc or tcp. With tcp, Istio gets TCP routes. Without
	// it, none is set.
	// +optional
	AppProtocol string `json:"appProtocol,omitempty"`

	// TrafficDistribution is the preference for near endpoints that the Services carry. Without it, none is set.
	// +kubebuilder:validation:Enum=PreferClose;PreferSameZone;PreferSameNode
	// +optional
	TrafficDistribution string `json:"trafficDistribution,omitempty"`

	// PortDiscovery adds the further ports of the target's containers to the Services. Without it: false.
	// +optional
	PortDiscovery bool `json:"portDiscovery,omitempty"`

	// Headless makes the Services headless (clusterIP None) when they are created. Without it: false.
	// +optional
	Headless bool `json:"headless,omitempty"`

	// Timeout of a request at the route, as a duration such as 15s. Read by istio, contour, appmesh and gatewayapi:v1.
	// Without it, the default of the provider.
	// +optional
	Timeout string `json:"timeout,omitempty"`

	// BackendTimeout is the timeout of one attempt against a backend, as a duration such as 5s. Read by gatewayapi:v1.
	// Without it, the default of the gateway.
	// +optional
	BackendTimeout string `json:"backendTimeout,omitempty"`

	// Gateways are the Istio gateways of the route, as name or namespace/name; mesh stands for traffic inside the mesh.
	// Without it: mesh.
	// +optional
	Gateways []string `json:"gateways,omitempty"`

	// GatewayRefs are the parents of the HTTPRoute. The providers gatewayapi:v1 and gatewayapi:v1beta1 need at least one.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	GatewayRefs []GatewayReference `json:"gatewayRefs,omitempty"`

	// Hosts are the host names of the route. Without it, the name of the apex Service.
	// +optional
	Hosts []string `json:"hosts,omitempty"`

	// Delegation makes an Istio VirtualService that others delegate to: without hosts and gateways of its own. Without
	// it: false.
	// +optional
	Delegation bool `json:"delegation,omitempty"`

	// TrafficPolicy goes into the DestinationRules of primary and canary as it is written here, in the terms of Istio:
	// connectionPool, loadBalancer, outlierDetection, tls, portLevelSettings. Without it, they have none.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	TrafficPolicy *apiextensionsv1.JSON `json:"trafficPolicy,omitempty"`

	// Match says which requests the route is for; one of the entries has to hold. Without it, all requests.
	// +optional
	Match []HTTPMatchRequest `json:"match,omitempty"`

	// Rewrite changes path or host of a request on its way to the workload.
	// +optional
	Rewrite *HTTPRewrite `json:"rewrite,omitempty"`

	// Retries says when a failed request is sent again. Without it, the default of the provider.
	// +optional
	Retries *HTTPRetry `json:"retries,omitempty"`

	// Headers are changed in requests and responses that take the route.
	// +optional
	Headers *Headers `json:"headers,omitempty"`

	// Mirror copies all requests of the route to other backends, at all times. Read by gatewayapi; it has nothing to do
	// with analysis.mirror.
	// +optional
	Mirror []RequestMirror `json:"mirror,omitempty"`

	// CorsPolicy lets browsers call the workload from other origins. Read by istio and gatewayapi:v1.
	// +optional
	CorsPolicy *CorsPolicy `json:"corsPolicy,omitempty"`

	// MeshName is the App Mesh that the workload belongs to. The provider appmesh needs it.
	// +optional
	MeshName string `json:"meshName,omitempty"`

	// Backends are the virtual services that the workload calls, by name or ARN. Read by appmesh.
	// +optional
	Backends []string `json:"backends,omitempty"`

	// Apex has labels and annotations for the apex Service and for the object of the route.
	// +optional
	Apex *CustomMetadata `json:"apex,omitempty"`

	// Primary has labels and annotations for the primary's Service.
	// +optional
	Primary *CustomMetadata `json:"primary,omitempty"`

	// Canary has labels and annotations for the canary's Service.
	// +optional
	Canary *CustomMetadata `json:"canary,omitempty"`

	// UnmanagedMetadata names labels and annotations of the Services that others write and that are left as they are.
	// +optional
	UnmanagedMetadata *UnmanagedMetadata `json:"unmanagedMetadata,omitempty"`
}

// CustomMetadata is added to the metadata of a generated object.
type CustomMetadata struct {
	// Labels to add.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations to add.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// UnmanagedMetadata names metadata that belongs to others.
type UnmanagedMetadata struct {
	// Labels are the keys of labels to leave alone.
	// +optional
	Labels []string `json:"labels,omitempty"`
	// Annotations are the keys of annotations to leave alone.
	// +optional
	Annotations []string `json:"annotations,omitempty"`
}

// GatewayReference names a parent of an HTTPRoute.
type GatewayReference struct {
	// Group of the parent. The empty string is the core group.
	// +kubebuilder:default="gateway.networking.k8s.io"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	Group *string `json:"group,omitempty"`
	// Kind of the parent.
	// +kubebuilder:default=Gateway
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
	// +optional
	Kind *string `json:"kind,omitempty"`
	// Namespace of the parent. Without it, that of the Canary.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Namespace *string `json:"namespace,omitempty"`
	// Name of the parent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// SectionName is the listener of the parent. Without it, all of them.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	SectionName *string `json:"sectionName,omitempty"`
	// Port of the listeners of the parent. Without it, all of them.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`
}

// RequestMirror copies requests to a backend.
type RequestMirror struct {
	// BackendRef names where the copies go. An entry without it, which the schema has always let through, cannot work.
	// +optional
	BackendRef *MirrorBackendReference `json:"backendRef,omitempty"`
}

// MirrorBackendReference names the backend that gets copies of requests.
//
// +kubebuilder:validation:XValidation:message="Service backend must have port",rule="(size(self.group) == 0 && self.kind == 'Service') ? has(self.port) : true"
type MirrorBackendReference struct {
	// Group of the backend. Without it, the core group.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	Group *string `json:"group,omitempty"`
	// Kind of the backend.
	// +kubebuilder:default=Service
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
	// +optional
	Kind *string `json:"kind,omitempty"`
	// Name of the backend.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the backend. Without it, that of the Canary.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Namespace *string `json:"namespace,omitempty"`
	// Port of the backend. A Service needs one.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`
}

// HTTPMatchRequest is a set of conditions on a request; all that are given have to hold.
type HTTPMatchRequest struct {
	// Name of the condition, which Istio shows in its access log.
	// +optional
	Name string `json:"name,omitempty"`
	// URI is matched with the path.
	// +optional
	URI *StringMatch `json:"uri,omitempty"`
	// Scheme is matched with http or https.
	// +optional
	Scheme *StringMatch `json:"scheme,omitempty"`
	// Method is matched with the method, for example GET.
	// +optional
	Method *StringMatch `json:"method,omitempty"`
	// Authority is matched with the host that was asked for.
	// +optional
	Authority *StringMatch `json:"authority,omitempty"`
	// Headers are matched by name, in lower case.
	// +optional
	Headers map[string]StringMatch `json:"headers,omitempty"`
	// WithoutHeaders are matched by name; where one of them holds, the condition does not.
	// +optional
	WithoutHeaders map[string]StringMatch `json:"withoutHeaders,omitempty"`
	// QueryParams are matched by name.
	// +optional
	QueryParams map[string]StringMatch `json:"queryParams,omitempty"`
	// Port that the client called.
	// +kubebuilder:validation:Format=""
	// +optional
	Port int32 `json:"port,omitempty"`
	// Gateways that the condition is for; they have to be among the gateways of the service. Without it, all of those.
	// +optional
	Gateways []string `json:"gateways,omitempty"`
	// SourceLabels restrict the condition to clients in the mesh that have these labels.
	// +optional
	SourceLabels map[string]string `json:"sourceLabels,omitempty"`
	// SourceNamespace restricts the condition to clients in the mesh of this namespace.
	// +optional
	SourceNamespace string `json:"sourceNamespace,omitempty"`
	// IgnoreURICase matches exact and prefix of the path without regard to case. Without it: false.
	// +optional
	IgnoreURICase bool `json:"ignoreUriCase,omitempty"`
}

// StringMatch compares a text in one of three ways. Without any, it holds for every text that is there.
//
// +kubebuilder:validation:MaxProperties=1
type StringMatch struct {
	// Exact is the whole text.
	// +optional
	Exact string `json:"exact,omitempty"`
	// Prefix is its beginning.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// Regex is an RE2 expression for the whole text.
	// +optional
	Regex string `json:"regex,omitempty"`
}

// HTTPRewrite changes a request.
type HTTPRewrite struct {
	// URI replaces the path, or the part of it that was matched.
	// +optional
	URI string `json:"uri,omitempty"`
	// Authority replaces the host.
	// +optional
	Authority string `json:"authority,omitempty"`
	// Type says what gatewayapi replaces with uri: ReplacePrefixMatch or ReplaceFullPath. Without it: ReplaceFullPath.
	// +optional
	Type string `json:"type,omitempty"`
}

// HTTPRetry says when a failed request is sent again.
type HTTPRetry struct {
	// Attempts is how many times at most.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// PerTryTimeout is the timeout of each attempt, as a duration such as 2s. Without it, the timeout of the route.
	// +optional
	PerTryTimeout string `json:"perTryTimeout,omitempty"`
	// RetryOn lists, with commas, what counts as failed, in the terms of Envoy, for example gateway-error,connect-failure.
	// +optional
	RetryOn string `json:"retryOn,omitempty"`
}

// Headers are changes of headers on the way to the workload and back.
type Headers struct {
	// Request has the changes of a request.
	// +optional
	Request *HeaderOperations `json:"request,omitempty"`
	// Response has the changes of a response.
	// +optional
	Response *HeaderOperations `json:"response,omitempty"`
}

// HeaderOperations are changes of headers.
type HeaderOperations struct {
	// Add appends values to headers.
	// +optional
	Add map[string]string `json:"add,omitempty"`
	// Set replaces headers.
	// +optional
	Set map[string]string `json:"set,omitempty"`
	// Remove takes headers away.
	// +optional
	Remove []string `json:"remove,omitempty"`
}

// CorsPolicy says which other origins may call the workload from a browser, and how.
type CorsPolicy struct {
	// AllowOrigin are the origins, as they are written by browsers; * stands for all.
	// +optional
	AllowOrigin []string `json:"allowOrigin,omitempty"`
	// AllowOrigins are patterns of origins. Read by istio.
	// +optional
	AllowOrigins []StringMatch `json:"allowOrigins,omitempty"`
	// AllowMethods are the methods.
	// +optional
	AllowMethods []string `json:"allowMethods,omitempty"`
	// AllowHeaders are the request headers.
	// +optional
	AllowHeaders []string `json:"allowHeaders,omitempty"`
	// ExposeHeaders are the response headers that the page may see.
	// +optional
	ExposeHeaders []string `json:"exposeHeaders,omitempty"`
	// MaxAge is how long a browser may keep the answer, as a duration such as 24h.
	// +optional
	MaxAge string `json:"maxAge,omitempty"`
	// AllowCredentials lets the page send cookies. Without it, the default of the provider.
	// +optional
	AllowCredentials *bool `json:"allowCredentials,omitempty"`
}
