package gloo

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// PluginName is the name of the router of Rollouts under plugins.
const PluginName = "solo-io/glooedge"

var virtualServiceKind = schema.GroupVersionKind{Group: "gateway.solo.io", Version: "v1", Kind: "VirtualService"}

// RolloutRenderer writes weights into a VirtualService or RouteTables of the user.
type RolloutRenderer struct{ traffic.WeightEditor }

// NewRollout returns the renderer of the plugin PluginName.
func NewRollout() RolloutRenderer {
	return RolloutRenderer{traffic.WeightEditor{Plugin: PluginName, Objects: routingObjects, Pairs: pairs, CanaryWeight: canaryWeight}}
}

// pluginConfig is the configuration of the plugin in a Rollout.
type pluginConfig struct {
	RouteTable     *objectSelector `json:"routeTable"`
	VirtualService *objectSelector `json:"virtualService"`
	// Routes are the names of the routes to use. An object with a single route needs none.
	Routes []string `json:"routes"`
}

// objectSelector selects one object by its name, or else several by their labels.
type objectSelector struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
}

// ref is the reference to the selected objects. The default namespace is that of the Rollout.
func (s objectSelector) ref(t traffic.Target, kind schema.GroupVersionKind) traffic.Ref {
	ref := traffic.Ref{GVK: kind, Namespace: t.Namespace, Name: s.Name, Shared: true}
	if s.Namespace != "" {
		ref.Namespace = s.Namespace
	}
	if s.Name == "" {
		ref.Selector = labels.SelectorFromSet(s.Labels).String()
	}
	return ref
}

// routingObjects are the VirtualService or the RouteTables in the configuration.
func routingObjects(t traffic.Target) ([]traffic.Ref, error) {
	var config pluginConfig
	if err := t.ReadPluginConfig(PluginName, &config); err != nil {
		return nil, err
	}
	table, service := config.RouteTable, config.VirtualService
	switch {
	case (table == nil) == (service == nil):
		return nil, traffic.Refuse(traffic.ErrInvalid, "the configuration of plugin %s needs either virtualService or routeTable: set one of them", PluginName)
	case table != nil && table.Name == "" && len(table.Labels) == 0:
		return nil, traffic.Refuse(traffic.ErrInvalid, "routeTable of plugin %s selects nothing: set name or labels", PluginName)
	case table != nil:
		return []traffic.Ref{table.ref(t, routeTableKind)}, nil
	case service.Name == "":
		return nil, traffic.Refuse(traffic.ErrInvalid, "virtualService of plugin %s selects nothing: set name", PluginName)
	default:
		return []traffic.Ref{service.ref(t, virtualServiceKind)}, nil
	}
}

// pairs returns the destinations of both sides in the routes to use. As with the original plugin, a route may have only the
// stable destination.
func pairs(t traffic.Target, obj *unstructured.Unstructured) (found []traffic.Pair, fault string) {
	var config pluginConfig
	if err := t.ReadPluginConfig(PluginName, &config); err != nil {
		return nil, "is not used: " + err.Error()
	}
	path := []string{"spec", "routes"}
	if obj.GetKind() == virtualServiceKind.Kind {
		path = []string{"spec", "virtualHost", "routes"}
	}
	list, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	routes := traffic.Maps(list)
	if len(config.Routes) == 0 && len(routes) > 1 {
		return nil, "has several routes: name those to use in routes of plugin " + PluginName
	}
	var names []string
	for _, route := range routes {
		name, _ := route["name"].(string)
		if len(config.Routes) > 0 && !slices.Contains(config.Routes, name) {
			continue
		}
		if pair := pairOf(t, route); pair.Stable != nil {
			found, names = append(found, pair), append(names, name)
		}
	}
	for _, name := range config.Routes {
		selected := config.RouteTable != nil && config.RouteTable.Name == "" // the routes may be in other tables
		if !selected && !slices.Contains(names, name) {
			return nil, fmt.Sprintf("has no route %s to Upstream %s", name, t.StableService)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Sprintf("has no route to Upstream %s", t.StableService)
	}
	return found, ""
}

// pairOf returns the destinations of both sides in a route, and adds what is missing: a copy of the stable destination for the
// canary, in a list instead of a single destination. Both are nil if the route does not name the stable Upstream.
func pairOf(t traffic.Target, route map[string]any) traffic.Pair {
	action, _ := route["routeAction"].(map[string]any)
	if single, ok := action["single"].(map[string]any); ok && upstreamOf(map[string]any{"destination": single}) == t.StableService {
		delete(action, "single")
		action["multi"] = map[string]any{"destinations": []any{map[string]any{"destination": single, "weight": int64(release.Total)}}}
	}
	all := destinations(route)
	named := func(upstream string) map[string]any {
		i := slices.IndexFunc(all, func(to map[string]any) bool { return upstreamOf(to) == upstream })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	pair := traffic.Pair{Stable: named(t.StableService), Canary: named(t.CanaryService)}
	if pair.Stable == nil || pair.Canary != nil {
		return pair
	}
	pair.Canary = runtime.DeepCopyJSON(pair.Stable)
	pair.Canary["destination"].(map[string]any)["upstream"].(map[string]any)["name"] = t.CanaryService
	pair.Canary["weight"] = int64(0)
	action["multi"].(map[string]any)["destinations"] = traffic.List(append(all, pair.Canary))
	return pair
}

func canaryWeight(pair traffic.Pair) (int, error) {
	return traffic.Weight(upstreamOf(pair.Canary), pair.Canary["weight"])
}
