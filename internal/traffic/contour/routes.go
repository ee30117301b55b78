package contour

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The fields of a route that Serin writes.
var routeFields = traffic.Fields{
	"conditions": {Fields: traffic.Fields{
		"prefix": {}, "header": {Fields: traffic.WholeFields("name", "exact", "contains", "regex")},
	}},
	"services": {
		Fields: traffic.Fields{
			"name": {}, "port": {}, "weight": {},
			"requestHeadersPolicy": {Fields: traffic.Fields{
				"set": {Fields: traffic.WholeFields("name", "value"), Same: traffic.SameField("name")},
			}},
		},
		Same: traffic.SameField("name"),
	},
	"timeoutPolicy": {Fields: traffic.WholeFields("response", "idle")},
	"retryPolicy":   {Fields: traffic.WholeFields("count", "perTryTimeout", "retryOn")},
}

// idleTimeout is Contour's default. It is set explicitly together with a response timeout, so that the one does not change
// the effective value of the other.
const idleTimeout = "5m"

// renderRoutes renders a route for each match before the route for all other requests.
func renderRoutes(t traffic.Target, r release.Route) []map[string]any {
	if len(r.Matches) == 0 {
		return []map[string]any{route(t, nil, r.Canary)}
	}
	var out []map[string]any
	for _, m := range r.Matches {
		out = append(out, route(t, m.Headers, r.Canary))
	}
	return append(out, route(t, nil, 0))
}

func route(t traffic.Target, headers map[string]release.StringMatch, canary int) map[string]any {
	out := map[string]any{
		"conditions": conditions(t, headers),
		"services":   []any{service(t, t.StableService, release.Total-canary), service(t, t.CanaryService, canary)},
	}
	s := t.Canary.Spec.Service
	if s.Timeout != "" {
		out["timeoutPolicy"] = map[string]any{"response": s.Timeout, "idle": idleTimeout}
	}
	if s.Retries != nil {
		policy := map[string]any{"count": int64(s.Retries.Attempts)}
		if s.Retries.PerTryTimeout != "" {
			policy["perTryTimeout"] = s.Retries.PerTryTimeout
		}
		if on := words(s.Retries.RetryOn); len(on) > 0 {
			policy["retryOn"] = on
		}
		out["retryPolicy"] = policy
	}
	return out
}

func words(list string) []any {
	var out []any
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}

// conditions are a prefix, of which Contour supports one, and one condition for each header, sorted by name.
func conditions(t traffic.Target, headers map[string]release.StringMatch) []any {
	prefix := "/"
	if matches := t.Canary.Spec.Service.Match; len(matches) > 0 && matches[0].URI != nil && matches[0].URI.Prefix != "" {
		prefix = matches[0].URI.Prefix
	}
	out := []any{map[string]any{"prefix": prefix}}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		header := map[string]any{"name": name}
		switch m := headers[name]; {
		case m.Exact != "":
			header["exact"] = m.Exact
		case m.Prefix != "":
			header["contains"] = m.Prefix // Contour supports neither prefixes nor suffixes
		case m.Suffix != "":
			header["contains"] = m.Suffix
		default:
			header["regex"] = m.Regex
		}
		out = append(out, map[string]any{"header": header})
	}
	return out
}

func service(t traffic.Target, name string, weight int) map[string]any {
	port := t.Canary.Spec.Service.Port
	return map[string]any{
		"name": name, "port": int64(port), "weight": int64(weight),
		// If the request passes Linkerd afterwards, it must reach the side that was chosen here.
		"requestHeadersPolicy": map[string]any{"set": []any{map[string]any{
			"name": "l5d-dst-override", "value": fmt.Sprintf("%s.%s.svc.cluster.local:%d", name, t.Namespace, port),
		}}},
	}
}

// Read reads the weights from the first route that names the canary: in an A/B test this is a route for matching requests.
// If a later route gives the canary a weight as well, the weight applies to all requests. It reports whether an HTTPProxy is valid, but
// not what its Envoys serve.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if existing[0].Object == nil {
		return out, nil
	}
	ref := existing[0].Ref
	routes, _, _ := unstructured.NestedFieldNoCopy(existing[0].Object.Object, "spec", "routes")
	for _, route := range traffic.Maps(routes) {
		if role(t, route) == "" {
			continue
		}
		share, err := readShare(t, ref, route)
		switch {
		case out.Found: // another route for matching requests, or the one for all others
			out.Matched = out.Matched || err != nil || share.Route.Canary == 0
		case err != nil:
			return share, err
		default:
			out = share
		}
	}
	return out, nil
}

// readShare reads the weights of one route. Contour splits requests evenly between services without weights.
func readShare(t traffic.Target, ref traffic.Ref, route map[string]any) (traffic.Observed, error) {
	weights, total := map[string]int{}, 0
	for _, service := range traffic.Maps(route["services"]) {
		weight, err := traffic.Weight(service["name"], service["weight"])
		if err != nil {
			return traffic.Observed{Confirmed: traffic.CannotTell}, fmt.Errorf("read %s: %w", ref, err)
		}
		name, _ := service["name"].(string)
		weights[name], total = weight, total+weight
	}
	if total == 0 {
		for name := range weights {
			weights[name] = 1
		}
	}
	return traffic.ObserveShare(ref, weights, t.StableService, t.CanaryService)
}
