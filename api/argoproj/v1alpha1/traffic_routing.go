package v1alpha1

import "encoding/json"

// RolloutTrafficRouting says who shares the traffic. Several routers of one Rollout are told the same.
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
	// ManagedRoutes are the names of the routes that steps make, the one that counts most first.
	// +listType=atomic
	// +optional
	ManagedRoutes []ManagedRoute `json:"managedRoutes,omitempty"`
	// Apisix writes ApisixRoutes.
	// +optional
	Apisix *ApisixTrafficRouting `json:"apisix,omitempty"`
	// Plugins are routers of others, by name, with their configuration.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Plugins map[string]json.RawMessage `json:"plugins,omitempty"`
	// MaxTrafficWeight is what all weights add up to. Only nginx and plugins. Without it: 100.
	// +optional
	MaxTrafficWeight *int32 `json:"maxTrafficWeight,omitempty"`
}

// ManagedRoute is a route that steps may make.
type ManagedRoute struct {
	// Name of the route.
	Name string `json:"name"`
}

// IstioTrafficRouting names what of Istio is written.
type IstioTrafficRouting struct {
	// DestinationRule whose subsets follow the revisions.
	// +optional
	DestinationRule *IstioDestinationRule `json:"destinationRule,omitempty"`
	// VirtualService whose weights are written.
	// +optional
	VirtualService *IstioVirtualService `json:"virtualService,omitempty"`
	// VirtualServices whose weights are written, where there are several.
	// +listType=atomic
	// +optional
	VirtualServices []IstioVirtualService `json:"virtualServices,omitempty"`
}

// IstioVirtualService names a VirtualService and the routes of it that are written.
type IstioVirtualService struct {
	// Name of it, or namespace and name with a dot between.
	Name string `json:"name"`
	// Routes are the names of its HTTP routes. Without any it must have exactly one.
	// +listType=atomic
	// +optional
	Routes []string `json:"routes,omitempty"`
	// TLSRoutes are its TLS routes.
	// +listType=atomic
	// +optional
	TLSRoutes []TLSRoute `json:"tlsRoutes,omitempty"`
	// TCPRoutes are its TCP routes.
	// +listType=atomic
	// +optional
	TCPRoutes []TCPRoute `json:"tcpRoutes,omitempty"`
}

// TLSRoute names a TLS route by what it matches.
type TLSRoute struct {
	// Port that it matches.
	// +optional
	Port int64 `json:"port,omitempty"`
	// SNIHosts that it matches.
	// +listType=atomic
	// +optional
	SNIHosts []string `json:"sniHosts,omitempty"`
}

// TCPRoute names a TCP route by what it matches.
type TCPRoute struct {
	// Port that it matches.
	// +optional
	Port int64 `json:"port,omitempty"`
}

// IstioDestinationRule names a DestinationRule and its subsets.
type IstioDestinationRule struct {
	// Name of it.
	Name string `json:"name"`
	// CanarySubsetName is the subset of the new revision.
	CanarySubsetName string `json:"canarySubsetName"`
	// StableSubsetName is the subset of the stable revision.
	StableSubsetName string `json:"stableSubsetName"`
	// AdditionalSubsetNames are subsets that keep their weights.
	// +listType=atomic
	// +optional
	AdditionalSubsetNames []string `json:"additionalSubsetNames,omitempty"`
}

// NginxTrafficRouting names the Ingresses of ingress-nginx.
type NginxTrafficRouting struct {
	// AnnotationPrefix of the controller. Without it: nginx.ingress.kubernetes.io.
	// +optional
	AnnotationPrefix string `json:"annotationPrefix,omitempty"`
	// StableIngress is the Ingress of the stable Service.
	// +optional
	StableIngress string `json:"stableIngress,omitempty"`
	// StableIngresses are they, where there are several.
	// +listType=atomic
	// +optional
	StableIngresses []string `json:"stableIngresses,omitempty"`
	// AdditionalIngressAnnotations are put on the canary Ingress, with the prefix where they have none.
	// +optional
	AdditionalIngressAnnotations map[string]string `json:"additionalIngressAnnotations,omitempty"`
	// CanaryIngressAnnotations are put on the canary Ingress as they are.
	// +optional
	CanaryIngressAnnotations map[string]string `json:"canaryIngressAnnotations,omitempty"`
}

// ALBTrafficRouting names the Ingresses of the AWS load balancer controller.
type ALBTrafficRouting struct {
	// Ingress whose annotations are written.
	// +optional
	Ingress string `json:"ingress,omitempty"`
	// Ingresses are they, where there are several.
	// +listType=atomic
	// +optional
	Ingresses []string `json:"ingresses,omitempty"`
	// ServicePort is the port of the Services.
	ServicePort int32 `json:"servicePort"`
	// RootService is the Service that the Ingress names. Without it: the stable one.
	// +optional
	RootService string `json:"rootService,omitempty"`
	// AnnotationPrefix of the controller. Without it: alb.ingress.kubernetes.io.
	// +optional
	AnnotationPrefix string `json:"annotationPrefix,omitempty"`
	// StickinessConfig keeps a client on the side it was sent to first.
	// +optional
	StickinessConfig *StickinessConfig `json:"stickinessConfig,omitempty"`
}

// StickinessConfig is how long a client stays on a side.
type StickinessConfig struct {
	// Enabled is true when it does.
	Enabled bool `json:"enabled"`
	// DurationSeconds is how long, 1 to 604800.
	DurationSeconds int64 `json:"durationSeconds"`
}

// SMITrafficRouting names a TrafficSplit.
type SMITrafficRouting struct {
	// RootService is the Service that clients call. Without it: the stable one.
	// +optional
	RootService string `json:"rootService,omitempty"`
	// TrafficSplitName is its name. Without it: that of the Rollout.
	// +optional
	TrafficSplitName string `json:"trafficSplitName,omitempty"`
}

// AmbassadorTrafficRouting names Mappings.
type AmbassadorTrafficRouting struct {
	// Mappings of the stable Service.
	// +listType=atomic
	Mappings []string `json:"mappings"`
}

// AppMeshTrafficRouting names what of App Mesh is written.
type AppMeshTrafficRouting struct {
	// VirtualService whose routes are written.
	// +optional
	VirtualService *AppMeshVirtualService `json:"virtualService,omitempty"`
	// VirtualNodeGroup are the nodes of both sides.
	// +optional
	VirtualNodeGroup *AppMeshVirtualNodeGroup `json:"virtualNodeGroup,omitempty"`
}

// AppMeshVirtualService names a VirtualService of App Mesh and routes of its router.
type AppMeshVirtualService struct {
	// Name of it.
	Name string `json:"name"`
	// Routes by name. Without any: all.
	// +listType=atomic
	// +optional
	Routes []string `json:"routes,omitempty"`
}

// AppMeshVirtualNodeGroup names the nodes of both sides.
type AppMeshVirtualNodeGroup struct {
	// CanaryVirtualNodeRef is the node of the new revision.
	CanaryVirtualNodeRef *AppMeshVirtualNodeReference `json:"canaryVirtualNodeRef"`
	// StableVirtualNodeRef is the node of the stable revision.
	StableVirtualNodeRef *AppMeshVirtualNodeReference `json:"stableVirtualNodeRef"`
}

// AppMeshVirtualNodeReference names a VirtualNode.
type AppMeshVirtualNodeReference struct {
	// Name of it.
	Name string `json:"name"`
}

// TraefikTrafficRouting names a TraefikService.
type TraefikTrafficRouting struct {
	// WeightedTraefikServiceName is its name.
	WeightedTraefikServiceName string `json:"weightedTraefikServiceName"`
}

// ApisixTrafficRouting names what of APISIX is written.
type ApisixTrafficRouting struct {
	// Route whose weights are written.
	// +optional
	Route *ApisixRoute `json:"route,omitempty"`
}

// ApisixRoute names an ApisixRoute and its rules.
type ApisixRoute struct {
	// Name of it.
	Name string `json:"name"`
	// Rules by name. Without any it must have exactly one.
	// +listType=atomic
	// +optional
	Rules []string `json:"rules,omitempty"`
}
