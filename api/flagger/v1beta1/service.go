package v1beta1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// CanaryService describes the Services of the workload and the route to them. Three Services are created: the apex, which
// clients call, and one each for primary and canary, with the suffixes -primary and -canary.
type CanaryService struct {
	// Name of the apex Service. Defaults to the name of the target.
	// +optional
	Name string `json:"name,omitempty"`

	// Port of the Services.
	// +kubebuilder:validation:Type=number
	// +kubebuilder:validation:Format=""
	Port int32 `json:"port"`

	// PortName is the name of that port. Meshes derive the protocol from it: http, grpc, …. Defaults to http.
	// +optional
	PortName string `json:"portName,omitempty"`

	// TargetPort is the port of the pods, by number or name. Defaults to port.
	// +optional
	TargetPort *intstr.IntOrString `json:"targetPort,omitempty"`

	// AppProtocol of the port of the Services, for example http, grpc or tcp. With tcp, Istio gets TCP routes. If omitted, it
	// is not set.
	// +optional
	AppProtocol string `json:"appProtocol,omitempty"`

	// TrafficDistribution of the Services, which is a preference for near endpoints. If omitted, it is not set.
	// +kubebuilder:validation:Enum=PreferClose;PreferSameZone;PreferSameNode
	// +optional
	TrafficDistribution string `json:"trafficDistribution,omitempty"`

	// PortDiscovery adds the other ports of the target's containers to the Services. Defaults to false.
	// +optional
	PortDiscovery bool `json:"portDiscovery,omitempty"`

	// Headless creates the Services as headless ones (clusterIP None). Defaults to false.
	// +optional
	Headless bool `json:"headless,omitempty"`

	// Timeout of a request, as a duration such as 15s. Used by istio, contour, appmesh and gatewayapi:v1. Defaults to the
	// default of the provider.
	// +optional
	Timeout string `json:"timeout,omitempty"`

	// BackendTimeout is the timeout of one attempt to reach a backend, as a duration such as 5s. Used by gatewayapi:v1.
	// Defaults to the default of the gateway.
	// +optional
	BackendTimeout string `json:"backendTimeout,omitempty"`

	// Gateways are the Istio gateways of the route, as name or namespace/name; mesh is the traffic inside the mesh. Defaults
	// to mesh.
	// +optional
	Gateways []string `json:"gateways,omitempty"`

	// GatewayRefs are the parents of the HTTPRoute. The providers gatewayapi:v1 and gatewayapi:v1beta1 require at least one.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	GatewayRefs []GatewayReference `json:"gatewayRefs,omitempty"`

	// Hosts are the host names of the route. Defaults to the name of the apex Service.
	// +optional
	Hosts []string `json:"hosts,omitempty"`

	// Delegation creates an Istio VirtualService for delegation, without hosts and gateways. Defaults to false.
	// +optional
	Delegation bool `json:"delegation,omitempty"`

	// TrafficPolicy is copied unchanged to the DestinationRules of primary and canary, in the format of Istio:
	// connectionPool, loadBalancer, outlierDetection, tls, portLevelSettings. If omitted, they have none.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	TrafficPolicy *apiextensionsv1.JSON `json:"trafficPolicy,omitempty"`

	// Match selects the requests of the route. A request must match one of the entries. Defaults to all requests.
	// +optional
	Match []HTTPMatchRequest `json:"match,omitempty"`

	// Rewrite changes the path or the host of a request before it is forwarded.
	// +optional
	Rewrite *HTTPRewrite `json:"rewrite,omitempty"`

	// Retries defines when a failed request is retried. Defaults to the default of the provider.
	// +optional
	Retries *HTTPRetry `json:"retries,omitempty"`

	// Headers are changes to the headers of requests and responses of the route.
	// +optional
	Headers *Headers `json:"headers,omitempty"`

	// Mirror copies all requests of the route to other backends, at all times. It is independent of analysis.mirror. Used by
	// gatewayapi.
	// +optional
	Mirror []RequestMirror `json:"mirror,omitempty"`

	// CorsPolicy allows browsers to call the workload from other origins. Used by istio and gatewayapi:v1.
	// +optional
	CorsPolicy *CorsPolicy `json:"corsPolicy,omitempty"`

	// MeshName is the App Mesh to which the workload belongs. Required by the provider appmesh.
	// +optional
	MeshName string `json:"meshName,omitempty"`

	// Backends are the virtual services that the workload calls, by name or ARN. Used by appmesh.
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

	// UnmanagedMetadata names labels and annotations of the Services that other controllers manage. They are not changed.
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

// UnmanagedMetadata names metadata that other controllers manage.
type UnmanagedMetadata struct {
	// Labels are the keys of labels that are not changed.
	// +optional
	Labels []string `json:"labels,omitempty"`
	// Annotations are the keys of annotations that are not changed.
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
	// Namespace of the parent. Defaults to the namespace of the Canary.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Namespace *string `json:"namespace,omitempty"`
	// Name of the parent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// SectionName is the listener of the parent. Defaults to all listeners.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	SectionName *string `json:"sectionName,omitempty"`
	// Port of the listeners of the parent. Defaults to all ports.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`
}

// RequestMirror copies requests to a backend.
type RequestMirror struct {
	// BackendRef names the backend that receives the copies. The schema has always accepted entries without it, but they are
	// invalid.
	// +optional
	BackendRef *MirrorBackendReference `json:"backendRef,omitempty"`
}

// MirrorBackendReference names the backend that receives copies of requests.
//
// +kubebuilder:validation:XValidation:message="Service backend must have port",rule="(size(self.group) == 0 && self.kind == 'Service') ? has(self.port) : true"
type MirrorBackendReference struct {
	// Group of the backend. Defaults to the core group.
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
	// Namespace of the backend. Defaults to the namespace of the Canary.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Namespace *string `json:"namespace,omitempty"`
	// Port of the backend. Required for a Service.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`
}

// HTTPMatchRequest has conditions for a request, all of which must match.
type HTTPMatchRequest struct {
	// Name of the match, which Istio adds to its access log.
	// +optional
	Name string `json:"name,omitempty"`
	// URI matches the path.
	// +optional
	URI *StringMatch `json:"uri,omitempty"`
	// Scheme matches http or https.
	// +optional
	Scheme *StringMatch `json:"scheme,omitempty"`
	// Method matches the method, for example GET.
	// +optional
	Method *StringMatch `json:"method,omitempty"`
	// Authority matches the requested host.
	// +optional
	Authority *StringMatch `json:"authority,omitempty"`
	// Headers are matched by name, in lower case.
	// +optional
	Headers map[string]StringMatch `json:"headers,omitempty"`
	// WithoutHeaders are matched by name. A request with a matching header is excluded.
	// +optional
	WithoutHeaders map[string]StringMatch `json:"withoutHeaders,omitempty"`
	// QueryParams are matched by name.
	// +optional
	QueryParams map[string]StringMatch `json:"queryParams,omitempty"`
	// Port that the client called.
	// +kubebuilder:validation:Format=""
	// +optional
	Port int32 `json:"port,omitempty"`
	// Gateways for which the match applies. They must be among the gateways of the service. Defaults to all of those.
	// +optional
	Gateways []string `json:"gateways,omitempty"`
	// SourceLabels restrict the match to clients in the mesh that have these labels.
	// +optional
	SourceLabels map[string]string `json:"sourceLabels,omitempty"`
	// SourceNamespace restricts the match to clients in the mesh of this namespace.
	// +optional
	SourceNamespace string `json:"sourceNamespace,omitempty"`
	// IgnoreURICase ignores the case of the path in exact and prefix. Defaults to false.
	// +optional
	IgnoreURICase bool `json:"ignoreUriCase,omitempty"`
}

// StringMatch matches a string in one of three ways. If no field is set, it matches every string that is present.
//
// +kubebuilder:validation:MaxProperties=1
type StringMatch struct {
	// Exact is the whole string.
	// +optional
	Exact string `json:"exact,omitempty"`
	// Prefix is the beginning of the string.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// Regex is an RE2 expression that matches the whole string.
	// +optional
	Regex string `json:"regex,omitempty"`
}

// HTTPRewrite changes a request.
type HTTPRewrite struct {
	// URI replaces the path, or the matched part of it.
	// +optional
	URI string `json:"uri,omitempty"`
	// Authority replaces the host.
	// +optional
	Authority string `json:"authority,omitempty"`
	// Type is the part of the path that gatewayapi replaces with uri: ReplacePrefixMatch or ReplaceFullPath. Defaults to
	// ReplaceFullPath.
	// +optional
	Type string `json:"type,omitempty"`
}

// HTTPRetry defines when a failed request is retried.
type HTTPRetry struct {
	// Attempts is the maximum number of attempts.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// PerTryTimeout is the timeout of each attempt, as a duration such as 2s. Defaults to the timeout of the route.
	// +optional
	PerTryTimeout string `json:"perTryTimeout,omitempty"`
	// RetryOn is a comma-separated list of conditions for a retry, as Envoy names them, for example
	// gateway-error,connect-failure.
	// +optional
	RetryOn string `json:"retryOn,omitempty"`
}

// Headers are changes to the headers of requests and responses.
type Headers struct {
	// Request has the changes to requests.
	// +optional
	Request *HeaderOperations `json:"request,omitempty"`
	// Response has the changes to responses.
	// +optional
	Response *HeaderOperations `json:"response,omitempty"`
}

// HeaderOperations are changes to headers.
type HeaderOperations struct {
	// Add appends values to headers.
	// +optional
	Add map[string]string `json:"add,omitempty"`
	// Set replaces headers.
	// +optional
	Set map[string]string `json:"set,omitempty"`
	// Remove removes headers.
	// +optional
	Remove []string `json:"remove,omitempty"`
}

// CorsPolicy defines how browsers may call the workload from other origins.
type CorsPolicy struct {
	// AllowOrigin are the allowed origins, as browsers send them; * allows all.
	// +optional
	AllowOrigin []string `json:"allowOrigin,omitempty"`
	// AllowOrigins are patterns of allowed origins. Used by istio.
	// +optional
	AllowOrigins []StringMatch `json:"allowOrigins,omitempty"`
	// AllowMethods are the allowed methods.
	// +optional
	AllowMethods []string `json:"allowMethods,omitempty"`
	// AllowHeaders are the allowed request headers.
	// +optional
	AllowHeaders []string `json:"allowHeaders,omitempty"`
	// ExposeHeaders are the response headers that scripts may read.
	// +optional
	ExposeHeaders []string `json:"exposeHeaders,omitempty"`
	// MaxAge is how long a browser may cache the policy, as a duration such as 24h.
	// +optional
	MaxAge string `json:"maxAge,omitempty"`
	// AllowCredentials allows requests with cookies. Defaults to the default of the provider.
	// +optional
	AllowCredentials *bool `json:"allowCredentials,omitempty"`
}
