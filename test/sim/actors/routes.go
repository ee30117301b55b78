package actors

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The traffic providers that are simulated. Without one, the numbers of pods, or the selectors of Services, determine the
// traffic. OpenShift and Consul are routers of Rollouts only.
const (
	NoRouter   = "kubernetes"
	Istio      = "istio"
	GatewayAPI = "gatewayapi:v1"
	OpenShift  = "openshift"
	Contour    = "contour"
	Gloo       = "gloo"
	Consul     = "consul"
)

// Destinations returns the destinations of each rule of a route with their weights, without mirrors. They are not copied, so
// that the caller can modify them.
func Destinations(content map[string]any) [][]map[string]any {
	spec, _ := content["spec"].(map[string]any)
	var out [][]map[string]any
	for _, place := range [][]string{
		{"http", "route"}, {"tcp", "route"}, {"rules", "backendRefs"}, {"routes", "services"}, {"routes", "routeAction", "multi", "destinations"},
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
