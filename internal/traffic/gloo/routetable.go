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

// specFields are the fields of a RouteTable that Serin writes. Other tools may write options and all other fields. Routes are
// identified by their role.
func specFields(existing traffic.Objects) traffic.Fields {
	destinations := traffic.Field{
		Fields: traffic.Fields{
			"destination": {Fields: traffic.Fields{"upstream": {Fields: traffic.WholeFields("name", "namespace")}}},
			"weight":      {},
		},
		Same: func(was, now map[string]any) bool { return upstreamOf(was) == upstreamOf(now) },
	}
	return traffic.Fields{"routes": {
		Fields: traffic.Fields{
			"inheritablePathMatchers": {},
			"matchers": {Fields: traffic.Fields{
				"headers": {Fields: traffic.WholeFields("name", "value", "regex"), Same: traffic.SameField("name")},
			}},
			"routeAction": {Fields: traffic.Fields{"multi": {Fields: traffic.Fields{"destinations": destinations}}}},
		},
		Same: func(was, now map[string]any) bool { return role(existing, was) == role(existing, now) },
	}}
}

func renderRouteTable(t traffic.Target, r release.Route, existing traffic.Objects) (*unstructured.Unstructured, error) {
	obj, err := existing[routeTable].Adopt(t)
	if err != nil {
		return nil, err
	}
	traffic.SetApexMetadata(t, obj)

	var routes []map[string]any
	if len(r.Matches) > 0 {
		matched := route(existing, r.Canary)
		matched["matchers"] = matchers(r.Matches)
		routes = append(routes, matched, route(existing, 0))
	} else {
		routes = append(routes, route(existing, r.Canary))
	}
	traffic.WriteFields(traffic.Spec(obj), map[string]any{"routes": traffic.List(routes)}, specFields(existing))
	return obj, nil
}

// route sends requests to both sides, for any path that the user's VirtualService delegates.
func route(existing traffic.Objects, canary int) map[string]any {
	destination := func(i, weight int) any {
		return map[string]any{
			"destination": map[string]any{"upstream": map[string]any{"name": existing[i].Ref.Name, "namespace": existing[i].Ref.Namespace}},
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

// routeToPrimary removes the Upstream of the canary, and the route for matching requests of an A/B test.
func routeToPrimary(existing traffic.Objects, spec map[string]any) {
	var routes []map[string]any
	for _, route := range traffic.Maps(spec["routes"]) {
		switch role(existing, route) {
		case "matched":
			continue
		case "rest":
			remaining := slices.DeleteFunc(destinations(route), func(to map[string]any) bool { return upstreamOf(to) == existing[canaryUpstream].Ref.Name })
			for _, to := range remaining {
				to["weight"] = int64(release.Total)
			}
			_ = unstructured.SetNestedSlice(route, traffic.List(remaining), "routeAction", "multi", "destinations") // it was read from there
		default: // of the user
		}
		routes = append(routes, route)
	}
	spec["routes"] = traffic.List(routes)
}

// matchers returns one matcher for each match, of which one must match. Headers are sorted by name, and Gloo compares a
// regular expression with the whole value.
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

// role distinguishes the routes of a release from each other and from other routes, whose role is empty.
func role(existing traffic.Objects, route map[string]any) string {
	ours := slices.ContainsFunc(destinations(route), func(to map[string]any) bool {
		name := upstreamOf(to)
		return name == existing[primaryUpstream].Ref.Name || name == existing[canaryUpstream].Ref.Name
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

// Read reads the weights from the first route that names the release: in an A/B test this is the route for matching requests.
// If a later route gives the canary a weight as well, the weight applies to all requests. Gloo reports whether a RouteTable is valid, but not what its Envoys serve.
func (r *Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	table := existing[routeTable]
	if table.Object == nil {
		return out, nil
	}
	routes, _, _ := unstructured.NestedFieldNoCopy(table.Object.Object, "spec", "routes")
	for _, route := range traffic.Maps(routes) {
		role := role(existing, route)
		if role == "" {
			continue
		}
		share, err := readShare(existing, route)
		switch {
		case out.Found: // the route for all other requests
			out.Matched = out.Matched && (err != nil || share.Route.Canary == 0)
			return out, nil
		case err != nil:
			return share, err
		}
		out = share
		out.Matched = role == "matched"
	}
	return out, nil
}

// readShare reads the weights of one route.
func readShare(existing traffic.Objects, route map[string]any) (traffic.Observed, error) {
	weights := map[string]int{}
	for _, to := range destinations(route) {
		weight, err := traffic.Weight(upstreamOf(to), to["weight"])
		if err != nil {
			return traffic.Observed{Confirmed: traffic.CannotTell}, fmt.Errorf("read %s: %w", existing[routeTable].Ref, err)
		}
		weights[upstreamOf(to)] = weight
	}
	return traffic.ObserveShare(existing[routeTable].Ref, weights, existing[primaryUpstream].Ref.Name, existing[canaryUpstream].Ref.Name)
}
