package v1alpha1

import "encoding/json"

// RolloutTrafficRouting configures the routers that split the traffic. Several routers of one Rollout get the same weights.
type RolloutTrafficRouting struct {
	// Istio writes VirtualServices and DestinationRules.
	// +optional
	Istio *IstioTrafficRouting `json:"istio,omitempty"`
	// Nginx writes a canary Ingress for ingress-nginx.
	// +optional
	Nginx *NginxTrafficRouting `json:"nginx,omitempty"`
	// ALB writes annotations of Ingresses for the AWS load balancer controller.
	// +optional
	ALB *ALBTrafficRouting `json:"alb,omitempty"`
	// SMI writes a TrafficSplit.
	// +optional
	SMI *SMITrafficRouting `json:"smi,omitempty"`
	// Ambassador writes canary Mappings.
	// +optional
	Ambassador *AmbassadorTrafficRouting `json:"ambassador,omitempty"`
	// AppMesh writes VirtualRouters and VirtualNodes.
	// +optional
	AppMesh *AppMeshTrafficRouting `json:"appMesh,omitempty"`
	// Traefik writes a TraefikService.
	// +optional
	Traefik *TraefikTrafficRouting `json:"traefik,omitempty"`
	// ManagedRoutes are the names of the routes that steps create, in order of precedence.
	// +listType=atomic
	// +optional
	ManagedRoutes []ManagedRoute `json:"managedRoutes,omitempty"`
	// Apisix writes ApisixRoutes.
	// +optional
	Apisix *ApisixTrafficRouting `json:"apisix,omitempty"`
	// Plugins are third-party routers by name, with their configuration.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Plugins map[string]json.RawMessage `json:"plugins,omitempty"`
	// MaxTrafficWeight is the sum of all weights. Only for nginx and plugins. Defaults to 100.
	// +optional
	MaxTrafficWeight *int32 `json:"maxTrafficWeight,omitempty"`
}

// ManagedRoute is a route that steps may create.
type ManagedRoute struct {
	// Name of the route.
	Name string `json:"name"`
}

// IstioTrafficRouting names the objects of Istio that are written.
type IstioTrafficRouting struct {
	// DestinationRule whose subsets select the revisions.
	// +optional
	DestinationRule *IstioDestinationRule `json:"destinationRule,omitempty"`
	// VirtualService whose weights are written.
	// +optional
	VirtualService *IstioVirtualService `json:"virtualService,omitempty"`
	// VirtualServices whose weights are written, if there are several.
	// +listType=atomic
	// +optional
	VirtualServices []IstioVirtualService `json:"virtualServices,omitempty"`
}

// IstioVirtualService names a VirtualService and those of its routes that are written.
type IstioVirtualService struct {
	// Name of the VirtualService, optionally followed by a dot and its namespace.
	Name string `json:"name"`
	// Routes are the names of its HTTP routes. If omitted, it must have exactly one.
	// +listType=atomic
	// +optional
	Routes []string `json:"routes,omitempty"`
	// TLSRoutes are the TLS routes that are written.
	// +listType=atomic
	// +optional
	TLSRoutes []TLSRoute `json:"tlsRoutes,omitempty"`
	// TCPRoutes are the TCP routes that are written.
	// +listType=atomic
	// +optional
	TCPRoutes []TCPRoute `json:"tcpRoutes,omitempty"`
}

// TLSRoute selects a TLS route by its match.
type TLSRoute struct {
	// Port that the route matches.
	// +optional
	Port int64 `json:"port,omitempty"`
	// SNIHosts that the route matches.
	// +listType=atomic
	// +optional
	SNIHosts []string `json:"sniHosts,omitempty"`
}

// TCPRoute selects a TCP route by its match.
type TCPRoute struct {
	// Port that the route matches.
	// +optional
	Port int64 `json:"port,omitempty"`
}

// IstioDestinationRule names a DestinationRule and its subsets.
type IstioDestinationRule struct {
	// Name of the DestinationRule.
	Name string `json:"name"`
	// CanarySubsetName is the subset of the new revision.
	CanarySubsetName string `json:"canarySubsetName"`
	// StableSubsetName is the subset of the stable revision.
	StableSubsetName string `json:"stableSubsetName"`
	// AdditionalSubsetNames are subsets whose weights are unchanged.
	// +listType=atomic
	// +optional
	AdditionalSubsetNames []string `json:"additionalSubsetNames,omitempty"`
}

// NginxTrafficRouting names the Ingresses of ingress-nginx.
type NginxTrafficRouting struct {
	// AnnotationPrefix of the controller. Defaults to nginx.ingress.kubernetes.io.
	// +optional
	AnnotationPrefix string `json:"annotationPrefix,omitempty"`
	// StableIngress is the Ingress of the stable Service.
	// +optional
	StableIngress string `json:"stableIngress,omitempty"`
	// StableIngresses are the Ingresses of the stable Service, if there are several.
	// +listType=atomic
	// +optional
	StableIngresses []string `json:"stableIngresses,omitempty"`
	// AdditionalIngressAnnotations are added to the canary Ingress. Keys without a prefix get that of the controller.
	// +optional
	AdditionalIngressAnnotations map[string]string `json:"additionalIngressAnnotations,omitempty"`
	// CanaryIngressAnnotations are added to the canary Ingress, without a change of their keys.
	// +optional
	CanaryIngressAnnotations map[string]string `json:"canaryIngressAnnotations,omitempty"`
}

// ALBTrafficRouting names the Ingresses of the AWS load balancer controller.
type ALBTrafficRouting struct {
	// Ingress whose annotations are written.
	// +optional
	Ingress string `json:"ingress,omitempty"`
	// Ingresses whose annotations are written, if there are several.
	// +listType=atomic
	// +optional
	Ingresses []string `json:"ingresses,omitempty"`
	// ServicePort is the port of the Services.
	ServicePort int32 `json:"servicePort"`
	// RootService is the Service that the Ingress names. Defaults to the stable Service.
	// +optional
	RootService string `json:"rootService,omitempty"`
	// AnnotationPrefix of the controller. Defaults to alb.ingress.kubernetes.io.
	// +optional
	AnnotationPrefix string `json:"annotationPrefix,omitempty"`
	// StickinessConfig keeps clients on the target group to which their first request was sent.
	// +optional
	StickinessConfig *StickinessConfig `json:"stickinessConfig,omitempty"`
}

// StickinessConfig keeps clients on one target group for a time.
type StickinessConfig struct {
	// Enabled turns stickiness on.
	Enabled bool `json:"enabled"`
	// DurationSeconds is how long a client stays on its target group, in seconds, from 1 to 604800.
	DurationSeconds int64 `json:"durationSeconds"`
}

// SMITrafficRouting names a TrafficSplit.
type SMITrafficRouting struct {
	// RootService is the Service that clients call. Defaults to the stable Service.
	// +optional
	RootService string `json:"rootService,omitempty"`
	// TrafficSplitName is the name of the TrafficSplit. Defaults to the name of the Rollout.
	// +optional
	TrafficSplitName string `json:"trafficSplitName,omitempty"`
}

// AmbassadorTrafficRouting names Mappings.
type AmbassadorTrafficRouting struct {
	// Mappings of the stable Service.
	// +listType=atomic
	Mappings []string `json:"mappings"`
}

// AppMeshTrafficRouting names the objects of App Mesh that are written.
type AppMeshTrafficRouting struct {
	// VirtualService whose routes are written.
	// +optional
	VirtualService *AppMeshVirtualService `json:"virtualService,omitempty"`
	// VirtualNodeGroup has the nodes of both revisions.
	// +optional
	VirtualNodeGroup *AppMeshVirtualNodeGroup `json:"virtualNodeGroup,omitempty"`
}

// AppMeshVirtualService names a VirtualService of App Mesh and those routes of its router that are written.
type AppMeshVirtualService struct {
	// Name of the VirtualService.
	Name string `json:"name"`
	// Routes by name. Defaults to all routes.
	// +listType=atomic
	// +optional
	Routes []string `json:"routes,omitempty"`
}

// AppMeshVirtualNodeGroup names the nodes of both revisions.
type AppMeshVirtualNodeGroup struct {
	// CanaryVirtualNodeRef is the node of the new revision.
	CanaryVirtualNodeRef *AppMeshVirtualNodeReference `json:"canaryVirtualNodeRef"`
	// StableVirtualNodeRef is the node of the stable revision.
	StableVirtualNodeRef *AppMeshVirtualNodeReference `json:"stableVirtualNodeRef"`
}

// AppMeshVirtualNodeReference names a VirtualNode.
type AppMeshVirtualNodeReference struct {
	// Name of the VirtualNode.
	Name string `json:"name"`
}

// TraefikTrafficRouting names a TraefikService.
type TraefikTrafficRouting struct {
	// WeightedTraefikServiceName is the name of the TraefikService.
	WeightedTraefikServiceName string `json:"weightedTraefikServiceName"`
}

// ApisixTrafficRouting names the objects of APISIX that are written.
type ApisixTrafficRouting struct {
	// Route whose weights are written.
	// +optional
	Route *ApisixRoute `json:"route,omitempty"`
}

// ApisixRoute names an ApisixRoute and its rules.
type ApisixRoute struct {
	// Name of the ApisixRoute.
	Name string `json:"name"`
	// Rules by name. If omitted, the route must have exactly one.
	// +listType=atomic
	// +optional
	Rules []string `json:"rules,omitempty"`
}
