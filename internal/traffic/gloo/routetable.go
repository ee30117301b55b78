package gloo

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// specFields are what of a RouteTable Serin writes. Options and all else may be written by others. Routes are told apart by
// what they do.
func specFields(refs []traffic.Ref) traffic.Fields {
	destinations := traffic.Field{
		Fields: traffic.Fields{
			"destination": {Fields: traffic.Fields{"upstream": {Fields: traffic.Whole("name", "namespace")}}},
			"weight":      {},
		},
		Same: func(was, now map[string]any) bool { return upstreamOf(was) == upstreamOf(now) },
	}
	return traffic.Fields{"routes": {
		Fields: traffic.Fields{
			"inheritablePathMatchers": {},
			"matchers": {Fields: traffic.Fields{
				"headers": {Fields: traffic.Whole("name", "value", "regex"), Same: traffic.By("name")},
			}},
			"routeAction": {Fields: traffic.Fields{"multi": {Fields: traffic.Fields{"destinations": destinations}}}},
		},
		Same: func(was, now map[string]any) bool { return role(refs, was) == role(refs, now) },
	}}
}

func renderRouteTable(t traffic.Target, r release.Route, refs []traffic.Ref, existing *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	obj, err := traffic.Desired(t, refs[routeTable], existing)
	if err != nil {
		return nil, err
	}
	traffic.SetApexMetadata(t, obj)

	var routes []map[string]any
	if len(r.Matches) > 0 {
		matched := route(refs, r.Canary)
		matched["matchers"] = matchers(r.Matches)
		routes = append(routes, matched, route(refs, 0))
	} else {
		routes = append(routes, route(refs, r.Canary))
	}
	traffic.Write(traffic.Spec(obj), map[string]any{"routes": traffic.List(routes)}, specFields(refs))
	return obj, nil
}

// route leads to both sides whatever path the user's VirtualService delegates.
func route(refs []traffic.Ref, canary int) map[string]any {
	destination := func(i, weight int) any {
		return map[string]any{
			"destination": map[string]any{"upstream": map[string]any{"name": refs[i].Name, "namespace": refs[i].Namespace}},
			"weight":      int64(weight),
		}
	}
	return map[string]any{
		"inheritablePathMatchers": true,
		"routeAction": map[string]any{"multi": map[string]any{"destinations": []any{
			destination(primaryUpstream, release.Total-canary), destination(canaryUpstream, canary),
		}}},
	}
}

// matchers are one for each match, of which one has to hold. Headers are sorted by name, and Gloo holds a regular
// expression to the whole value.
func matchers(matches []release.Match) []any {
	var out []any
	for _, m := range matches {
		var headers []any
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			header := map[string]any{"name": name}
			switch value := m.Headers[name]; {
			case value.Exact != "":
				header["value"] = value.Exact
			case value.Prefix != "":
				header["value"], header["regex"] = regexp.QuoteMeta(value.Prefix)+".*", true
			case value.Suffix != "":
				header["value"], header["regex"] = ".*"+regexp.QuoteMeta(value.Suffix), true
			default:
				header["value"], header["regex"] = value.Regex, true
			}
			headers = append(headers, header)
		}
		out = append(out, map[string]any{"headers": headers})
	}
	return out
}

// role tells the routes of a release from each other and from those of others, whose role is empty.
func role(refs []traffic.Ref, route map[string]any) string {
	ours := slices.ContainsFunc(destinations(route), func(to map[string]any) bool {
		name := upstreamOf(to)
		return name == refs[primaryUpstream].Name || name == refs[canaryUpstream].Name
	})
	switch {
	case !ours:
		return ""
	case len(traffic.Maps(route["matchers"])) > 0:
		return "matched"
	default:
		return "rest"
	}
}

func destinations(route map[string]any) []map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(route, "routeAction", "multi", "destinations")
	return traffic.Maps(list)
}

func upstreamOf(destination map[string]any) string {
	name, _, _ := unstructured.NestedString(destination, "destination", "upstream", "name")
	return name
}

// Read takes the weights from the first route that names the release: in an A/B test that is the one for requests that
// match. Gloo reports whether a RouteTable is valid, and not what its Envoys serve.
func (r *Renderer) Read(t traffic.Target, existing []*unstructured.Unstructured) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	table := existing[routeTable]
	if table == nil {
		return out, nil
	}
	refs := r.Refs(t)
	routes, _, _ := unstructured.NestedFieldNoCopy(table.Object, "spec", "routes")
	for _, route := range traffic.Maps(routes) {
		if role(refs, route) == "" {
			continue
		}
		weights := map[string]int{}
		for _, to := range destinations(route) {
			weight, err := traffic.Number(to["weight"])
			if err != nil || weight < 0 {
				return out, fmt.Errorf("read %s: the weight of %s is %v, which is not a number from 0", refs[routeTable], upstreamOf(to), to["weight"])
			}
			weights[upstreamOf(to)] = int(weight)
		}
		primary, canary := weights[refs[primaryUpstream].Name], weights[refs[canaryUpstream].Name]
		if primary+canary == 0 {
			return out, fmt.Errorf("read %s: the weights of %s and %s are both 0: give one of them requests",
				refs[routeTable], refs[primaryUpstream].Name, refs[canaryUpstream].Name)
		}
		out.Found, out.Route.Canary = true, traffic.Share(primary, canary)
		return out, nil
	}
	return out, nil
}
