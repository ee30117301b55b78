// Package openshift routes traffic with a Route of OpenShift, whose router splits requests between the default backend and
// alternative ones.
//
// It must not know other providers, clients, or the reason for a weight.
package openshift

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/traffic"
)

// PluginName is the name of this router under plugins.
const PluginName = "argoproj-labs/openshift"

var routeKind = schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"}

const (
	// maxAlternatives is the number of alternateBackends that the API allows.
	maxAlternatives = 3
	// defaultWeight is the weight of a backend without one.
	defaultWeight = 100
)

// RolloutRenderer writes weights into Routes of the user.
type RolloutRenderer struct{ traffic.WeightEditor }

// NewRollout returns the renderer of the plugin PluginName.
func NewRollout() RolloutRenderer {
	return RolloutRenderer{traffic.WeightEditor{Plugin: PluginName, Objects: routes, Pairs: pairs, CanaryWeight: canaryWeight}}
}

// routes are the Routes in the configuration. A name may include the namespace: namespace/name.
func routes(t traffic.Target) ([]traffic.Ref, error) {
	var config struct {
		Routes []string `json:"routes"`
	}
	if err := t.ReadPluginConfig(PluginName, &config); err != nil {
		return nil, err
	}
	var refs []traffic.Ref
	for _, name := range traffic.UniqueNames("", config.Routes) {
		ref := traffic.Ref{GVK: routeKind, Namespace: t.Namespace, Name: name, Shared: true}
		if namespace, inside, found := strings.Cut(name, "/"); found {
			ref.Namespace, ref.Name = namespace, inside
		}
		refs = append(refs, ref)
	}
	if len(refs) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "the configuration of plugin %s names no Route: set routes", PluginName)
	}
	return refs, nil
}

// pairs returns the backends of both Services. One for the canary is added if it is missing, as by the original plugin, but
// it remains with weight 0, so that other tools may set its fields.
func pairs(t traffic.Target, route *unstructured.Unstructured) (found []traffic.Pair, fault string) {
	spec := traffic.Spec(route)
	alternatives := traffic.Maps(spec["alternateBackends"])
	backends := alternatives
	if to, ok := spec["to"].(map[string]any); ok {
		backends = append([]map[string]any{to}, alternatives...)
	}
	var pair traffic.Pair
	for _, backend := range backends {
		switch kind := backend["kind"]; {
		case kind != nil && kind != "" && kind != "Service":
		case backend["name"] == t.StableService:
			pair.Stable = backend
		case backend["name"] == t.CanaryService:
			pair.Canary = backend
		}
	}
	switch {
	case pair.Stable == nil:
		return nil, fmt.Sprintf("does not route to Service %s: name it in spec.to", t.StableService)
	case pair.Canary == nil && len(alternatives) >= maxAlternatives:
		return nil, fmt.Sprintf("has %d alternateBackends without Service %s, and the API does not allow more: remove one", len(alternatives), t.CanaryService)
	case pair.Canary == nil:
		pair.Canary = map[string]any{"kind": "Service", "name": t.CanaryService, "weight": int64(0)}
		spec["alternateBackends"] = traffic.List(append(alternatives, pair.Canary))
	}
	return []traffic.Pair{pair}, ""
}

func canaryWeight(pair traffic.Pair) (int, error) {
	if pair.Canary["weight"] == nil {
		return defaultWeight, nil
	}
	return traffic.Weight(pair.Canary["name"], pair.Canary["weight"])
}
