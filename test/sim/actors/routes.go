package actors

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The traffic providers that are simulated. Without one, the numbers of pods, or the selectors of Services, determine the
// traffic. Those after GatewayAPI are simulated for Rollouts only.
const (
	NoRouter   = "kubernetes"
	Istio      = "istio"
	GatewayAPI = "gatewayapi:v1"
	OpenShift  = "openshift"
	Contour    = "contour"
	Gloo       = "gloo"
	Consul     = "consul"
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
)

// WeightKinds are the kinds of the objects that contain weights.
var WeightKinds = []schema.GroupKind{VirtualServiceKind, HTTPRouteKind, OpenShiftRouteKind, HTTPProxyKind, RouteTableKind, ServiceSplitterKind}

// SubsetKinds are the kinds of the objects that contain subsets of pods.
var SubsetKinds = []schema.GroupKind{DestinationRuleKind, ServiceResolverKind}

// RouteKind returns the kind of the object that contains the weights of a provider, or false if there is none.
func RouteKind(provider string) (schema.GroupKind, bool) {
	i := slices.Index([]string{Istio, GatewayAPI, OpenShift, Contour, Gloo, Consul}, provider)
	if i < 0 {
		return schema.GroupKind{}, false
	}
	return WeightKinds[i], true
}

// Destinations returns the destinations of each rule of a route with their weights, without mirrors. They are not copied, so
// that the caller can modify them.
func Destinations(content map[string]any) [][]map[string]any {
	spec, _ := content["spec"].(map[string]any)
	var out [][]map[string]any
	for _, place := range [][]string{
		{"http", "route"}, {"rules", "backendRefs"}, {"routes", "services"}, {"routes", "routeAction", "multi", "destinations"},
	} {
		for _, rule := range Items(spec[place[0]]) {
			list, found, _ := unstructured.NestedFieldNoCopy(rule, place[1:]...)
			if found || place[0] != "routes" { // an entry of routes has only one of the two forms
				out = append(out, slices.DeleteFunc(Items(list), func(to map[string]any) bool { return to["mirror"] == true }))
			}
		}
	}
	if splits := Items(spec["splits"]); len(splits) > 0 {
		out = append(out, splits)
	}
	if to, ok := spec["to"].(map[string]any); ok {
		out = append(out, append([]map[string]any{to}, Items(spec["alternateBackends"])...))
	}
	return out
}

// SetCanaryWeight sets the weight of the canary, and the remaining weight of the stable side, in each rule that has both. It
// reports whether there is such a rule.
func SetCanaryWeight(content map[string]any, canary func(destination map[string]any) bool, weight int64) bool {
	changed := false
	for _, to := range Destinations(content) {
		if len(to) != 2 {
			continue
		}
		for _, destination := range to {
			destination["weight"] = 100 - weight
			if canary(destination) {
				destination["weight"] = weight
			}
		}
		changed = true
	}
	return changed
}
