package cluster

import (
	"cmp"
	"strings"

	"github.com/serin-dev/serin/test/sim/store"
)

// This file contains what a gateway reads from routes. It follows the documentation of their APIs and shares no code with the
// renderers.

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
// upstreams are the Upstreams of Gloo Edge by name.
func rulesOf(v *store.Version, upstreams map[string]*store.Version) []rule {
	if v == nil {
		return nil
	}
	spec, namespace := object(v.Content(), "spec"), v.Key().Namespace
	switch v.Kind() {
	case HTTPRouteKind:
		return gatewayRules(spec, namespace)
	case OpenShiftRouteKind:
		return openShiftRules(spec)
	case HTTPProxyKind:
		return contourRules(spec)
	case RouteTableKind:
		return glooRules(spec, upstreams)
	case ServiceSplitterKind:
		return consulRules(spec, v.Key().Name)
	default:
		return istioRules(spec, namespace)
	}
}

// openShiftRules returns the only rule of a Route of OpenShift. A backend without a weight has 100.
func openShiftRules(spec map[string]any) []rule {
	var r rule
	for _, backend := range append([]map[string]any{object(spec, "to")}, objects(spec, "alternateBackends")...) {
		r.weights = append(r.weights, weight{text(backend, "name"), number(backend, "weight", 100)})
	}
	return []rule{r}
}

// contourRules returns the rules of an HTTPProxy. The most specific prefix applies first, which the last rule does not have.
func contourRules(spec map[string]any) []rule {
	var rules []rule
	for _, one := range objects(spec, "routes") {
		var r rule
		sum := 0
		for _, service := range objects(one, "services") {
			if service["mirror"] == true {
				r.mirrored = append(r.mirrored, text(service, "name"))
				continue
			}
			share := number(service, "weight", 0)
			sum += share
			r.weights = append(r.weights, weight{text(service, "name"), share})
		}
		for i := range r.weights {
			if sum == 0 {
				r.weights[i].share = 1 // services without weights receive the same number of requests
			}
		}
		rules = append(rules, r)
	}
	return rules
}

// glooRules returns the rules of a RouteTable. An Upstream names its Service. Those that do not exist have the names of their
// Services, as the ones that Gloo Edge discovers may have.
func glooRules(spec map[string]any, upstreams map[string]*store.Version) []rule {
	var rules []rule
	for _, one := range objects(spec, "routes") {
		var r rule
		for _, to := range objects(object(one, "routeAction", "multi"), "destinations") {
			service := text(object(to, "destination", "upstream"), "name")
			if upstream := upstreams[service]; upstream != nil {
				service = text(object(upstream.Content(), "spec", "kube"), "serviceName")
			}
			r.weights = append(r.weights, weight{service, number(to, "weight", 0)})
		}
		rules = append(rules, r)
	}
	return rules
}

// consulRules returns the only rule of a ServiceSplitter. A split without a service is for the service of the same name.
func consulRules(spec map[string]any, name string) []rule {
	var r rule
	for _, split := range objects(spec, "splits") {
		r.weights = append(r.weights, weight{cmp.Or(text(split, "service"), name), number(split, "weight", 0)})
	}
	return []rule{r}
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
