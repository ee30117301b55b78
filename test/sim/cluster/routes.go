package cluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim/store"
)

// This file contains what a gateway reads from routes. It follows the documentation of the two APIs and shares no code with the
// renderers.

var (
	virtualServiceKind = schema.GroupKind{Group: "networking.istio.io", Kind: "VirtualService"}
	httpRouteKind      = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}
)

// rule is one rule of a route.
type rule struct {
	weights  []weight
	mirrored []string
}

type weight struct {
	service string
	share   int
}

// rulesOf returns the rules of a route. The first match applies; the last rule matches all requests.
func rulesOf(v *store.Version) []rule {
	if v == nil {
		return nil
	}
	spec, namespace := object(v.Content(), "spec"), v.Key().Namespace
	if v.Kind() == httpRouteKind {
		return gatewayRules(spec, namespace)
	}
	return istioRules(spec, namespace)
}

func istioRules(spec map[string]any, namespace string) []rule {
	from := objects(spec, "http")
	if len(from) == 0 {
		from = objects(spec, "tcp")
	}
	var rules []rule
	for _, one := range from {
		var r rule
		to := objects(one, "route")
		for _, destination := range to {
			share := number(destination, "weight", 0)
			if len(to) == 1 {
				share = 100 // a single destination receives all requests, regardless of its weight
			}
			r.weights = append(r.weights, weight{serviceOf(text(object(destination, "destination"), "host"), namespace), share})
		}
		if host := text(object(one, "mirror"), "host"); host != "" {
			r.mirrored = append(r.mirrored, serviceOf(host, namespace))
		}
		rules = append(rules, r)
	}
	return rules
}

func gatewayRules(spec map[string]any, namespace string) []rule {
	var rules []rule
	for _, one := range objects(spec, "rules") {
		var r rule
		for _, ref := range objects(one, "backendRefs") {
			if name := backendOf(ref, namespace); name != "" {
				r.weights = append(r.weights, weight{name, number(ref, "weight", 1)})
			}
		}
		for _, filter := range objects(one, "filters") {
			if name := backendOf(object(filter, "requestMirror", "backendRef"), namespace); name != "" {
				r.mirrored = append(r.mirrored, name)
			}
		}
		rules = append(rules, r)
	}
	return rules
}

// backendOf returns the Service that a reference names, or "" if it names something else.
func backendOf(ref map[string]any, namespace string) string {
	kind, elsewhere := text(ref, "kind"), text(ref, "namespace")
	if text(ref, "group") != "" || kind != "" && kind != "Service" || elsewhere != "" && elsewhere != namespace {
		return ""
	}
	return text(ref, "name")
}

// serviceOf returns the Service of a short or full host name. The host name of another namespace is returned unchanged.
func serviceOf(host, namespace string) string {
	name, rest, qualified := strings.Cut(host, ".")
	if !qualified || rest == namespace || strings.HasPrefix(rest, namespace+".svc") {
		return name
	}
	return host
}
