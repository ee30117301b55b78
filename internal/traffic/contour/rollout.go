package contour

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// PluginName is the name of the router of Rollouts under plugins.
const PluginName = "argoproj-labs/contour"

// RolloutRenderer writes weights into HTTPProxies of the user.
type RolloutRenderer struct{ traffic.WeightEditor }

// NewRollout returns the renderer of the plugin PluginName.
func NewRollout() RolloutRenderer {
	return RolloutRenderer{traffic.WeightEditor{
		Plugin: PluginName, Objects: httpProxies, Pairs: pairs, CanaryWeight: canaryWeight, Confirm: confirmed,
	}}
}

// httpProxies are the HTTPProxies in the configuration. The first versions of the plugin had a single one.
func httpProxies(t traffic.Target) ([]traffic.Ref, error) {
	var config struct {
		HTTPProxies []string `json:"httpProxies"`
		HTTPProxy   string   `json:"httpProxy"`
	}
	if err := t.ReadPluginConfig(PluginName, &config); err != nil {
		return nil, err
	}
	var refs []traffic.Ref
	for _, name := range traffic.UniqueNames(config.HTTPProxy, config.HTTPProxies) {
		refs = append(refs, traffic.Ref{GVK: httpProxyKind, Namespace: t.Namespace, Name: name, Shared: true})
	}
	if len(refs) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "the configuration of plugin %s names no HTTPProxy: set httpProxies", PluginName)
	}
	return refs, nil
}

// pairs returns the services of both sides in every route that has both, and in the TCP proxy.
func pairs(t traffic.Target, proxy *unstructured.Unstructured) (found []traffic.Pair, fault string) {
	spec := traffic.Spec(proxy)
	lists := []any{}
	for _, route := range traffic.Maps(spec["routes"]) {
		lists = append(lists, route["services"])
	}
	if tcp, ok := spec["tcpproxy"].(map[string]any); ok {
		lists = append(lists, tcp["services"])
	}
	for _, services := range lists {
		var pair traffic.Pair
		for _, service := range traffic.Maps(services) {
			switch {
			case service["mirror"] == true: // it gets copies, whatever its weight
			case service["name"] == t.StableService:
				pair.Stable = service
			case service["name"] == t.CanaryService:
				pair.Canary = service
			}
		}
		if pair.Stable != nil && pair.Canary != nil {
			found = append(found, pair)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Sprintf("has no route with both Services %s and %s", t.StableService, t.CanaryService)
	}
	return found, ""
}

// canaryWeight is the weight of the canary. Contour splits requests evenly between services without weights.
func canaryWeight(pair traffic.Pair) (int, error) {
	stable, err := traffic.Weight(pair.Stable["name"], pair.Stable["weight"])
	if err != nil {
		return 0, err
	}
	canary, err := traffic.Weight(pair.Canary["name"], pair.Canary["weight"])
	if err == nil && stable+canary == 0 {
		return release.Total / 2, nil
	}
	return canary, err
}

// confirmed reports whether Contour accepted the current generation of an HTTPProxy. It does not report what its Envoys serve.
func confirmed(ref traffic.Ref, proxy *unstructured.Unstructured) (confirmation traffic.Confirmation, reason string) {
	list, _, _ := unstructured.NestedFieldNoCopy(proxy.Object, "status", "conditions")
	for _, condition := range traffic.Maps(list) {
		if condition["type"] != "Valid" {
			continue
		}
		generation, err := traffic.Number(condition["observedGeneration"])
		if condition["status"] == "True" && err == nil && int64(generation) >= proxy.GetGeneration() {
			return traffic.ConfirmedYes, ""
		}
		reason = fmt.Sprintf("%s is not accepted by Contour (status: %v, observed generation: %d, current generation: %d)",
			ref, condition["status"], int64(generation), proxy.GetGeneration())
		for _, fault := range traffic.Maps(condition["errors"]) {
			reason += fmt.Sprintf(": %v", fault["message"])
		}
		return traffic.ConfirmedNo, reason
	}
	return traffic.CannotTell, ""
}
