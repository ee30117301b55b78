package cluster

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds of objects that routers read.
var (
	VirtualServiceKind  = schema.GroupKind{Group: "networking.istio.io", Kind: "VirtualService"}
	DestinationRuleKind = schema.GroupKind{Group: "networking.istio.io", Kind: "DestinationRule"}
	HTTPRouteKind       = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}
	OpenShiftRouteKind  = schema.GroupKind{Group: "route.openshift.io", Kind: "Route"}
	HTTPProxyKind       = schema.GroupKind{Group: "projectcontour.io", Kind: "HTTPProxy"}
	RouteTableKind      = schema.GroupKind{Group: "gateway.solo.io", Kind: "RouteTable"}
	ServiceResolverKind = schema.GroupKind{Group: "consul.hashicorp.com", Kind: "ServiceResolver"}
	ServiceSplitterKind = schema.GroupKind{Group: "consul.hashicorp.com", Kind: "ServiceSplitter"}
	UpstreamKind        = schema.GroupKind{Group: "gloo.solo.io", Kind: "Upstream"}
)

// WeightKinds are the kinds of the objects that contain weights.
var WeightKinds = []schema.GroupKind{VirtualServiceKind, HTTPRouteKind, OpenShiftRouteKind, HTTPProxyKind, RouteTableKind, ServiceSplitterKind}

// SubsetKinds are the kinds of the objects that contain subsets of pods.
var SubsetKinds = []schema.GroupKind{DestinationRuleKind, ServiceResolverKind}

// RouterKinds are all kinds of objects that routers read.
var RouterKinds = slices.Concat(WeightKinds, SubsetKinds, []schema.GroupKind{UpstreamKind})

// routeKinds are the kinds of WeightKinds, by provider without its version.
var routeKinds = map[string]schema.GroupKind{
	"istio": VirtualServiceKind, "gatewayapi": HTTPRouteKind, "openshift": OpenShiftRouteKind, "contour": HTTPProxyKind,
	"gloo": RouteTableKind, "consul": ServiceSplitterKind,
}

// RouteKind returns the kind of the object that contains the weights of a provider, or false if there is none.
func RouteKind(provider string) (schema.GroupKind, bool) {
	name, _, _ := strings.Cut(provider, ":")
	kind, ok := routeKinds[name]
	return kind, ok
}
