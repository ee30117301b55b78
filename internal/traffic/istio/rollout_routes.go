package istio

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The fields that Serin writes in the routes of steps and the destinations of experiments. The destinations of a mirror route
// are copied from the user's.
var (
	experimentFields = traffic.Fields{"destination": {Fields: traffic.WholeFields("host")}, "weight": {}}
	conditionFields  = traffic.WholeFields("exact", "prefix", "regex")
	canaryFields     = traffic.Fields{"host": {}, "subset": {}, "port": {Fields: traffic.WholeFields("number")}}
	stepMatches      = traffic.Field{Fields: traffic.Fields{
		"headers": {}, "method": {Fields: conditionFields}, "uri": {Fields: conditionFields},
	}}
	headerRouteFields = traffic.Fields{
		"name": {}, "match": stepMatches,
		"route": {Fields: traffic.Fields{"destination": {Fields: canaryFields}, "weight": {}}, Same: traffic.OnlyItem},
	}
	mirrorRouteFields = traffic.Fields{
		"name": {}, "match": stepMatches, "route": {}, "mirror": {Fields: canaryFields}, "mirrorPercentage": {Fields: traffic.WholeFields("value")},
	}
)

// editor edits objects of the user.
type editor struct {
	t traffic.Target
	// added are the Services of experiments that the Rollout added to the object.
	added []string
	// ruleHost is the host of the DestinationRule, if there is one.
	ruleHost string
}

// side is the role of a destination in the Rollout.
type side int

const (
	// otherSide is a destination of the user, whose weight is unchanged.
	otherSide side = iota
	canarySide
	stableSide
	experiment
)

// sideOf determines the side of a destination by its subset, if subsets are used, or else by the first label of its host.
func (e editor) sideOf(destination map[string]any) side {
	host, _, _ := unstructured.NestedString(destination, "destination", "host")
	subset, _, _ := unstructured.NestedString(destination, "destination", "subset")
	host, _, _ = strings.Cut(host, ".")
	if rule := ruleOf(e.t); rule != nil && subset != "" {
		switch {
		case subset == rule.CanarySubsetName:
			return canarySide
		case subset == rule.StableSubsetName:
			return stableSide
		case slices.Contains(rule.AdditionalSubsetNames, subset):
			return otherSide
		}
	}
	switch {
	case host == "":
		return otherSide
	case host == e.t.CanaryService:
		return canarySide
	case host == e.t.StableService:
		return stableSide
	case slices.Contains(e.added, host):
		return experiment
	default:
		return otherSide
	}
}

// chosen are the routes of a VirtualService to which weights are written.
type chosen struct {
	all []map[string]any
	// http is the first of them that is an HTTP route; managed routes are derived from it.
	http map[string]any
}

// The protocols of routes: the field of the spec, and the name in messages.
var protocols = []struct{ field, name string }{{"http", "HTTP"}, {"tls", "TLS"}, {"tcp", "TCP"}}

// choose returns the routes that the spec selects: the named ones, or, of a protocol without names, the only one.
func (e editor) choose(service argov1.IstioVirtualService, spec map[string]any) (chosen, error) {
	named := len(service.Routes)+len(service.TLSRoutes)+len(service.TCPRoutes) > 0
	var out chosen
	for _, protocol := range protocols {
		routes := traffic.Maps(spec[protocol.field])
		if len(routes) == 0 {
			continue // without routes of this protocol, their names are ignored
		}
		routes = slices.DeleteFunc(routes, e.managed)
		found, byName, err := selectRoutes(service, protocol.field, routes)
		for i := 0; err == nil && i < len(found); i++ {
			err = e.hasBoth(found[i])
		}
		if err != nil && named && !byName {
			continue // the spec names routes of another protocol only
		}
		if err != nil {
			return out, traffic.Refuse(traffic.ErrInvalid, textInvalidRoutes, protocol.name, err)
		}
		out.all = append(out.all, found...)
		if protocol.field == "http" && len(found) > 0 {
			out.http = found[0]
		}
	}
	if len(out.all) == 0 {
		return out, traffic.Refuse(traffic.ErrInvalid, textInvalidRoutes, "HTTP", "there is none")
	}
	return out, nil
}

func selectRoutes(service argov1.IstioVirtualService, field string, routes []map[string]any) (found []map[string]any, byName bool, err error) {
	find := func(what string, is func(map[string]any) bool) {
		byName = true
		i := slices.IndexFunc(routes, is)
		if i < 0 {
			err = cmp.Or(err, fmt.Errorf("route %s is not found", what))
			return
		}
		found = append(found, routes[i])
	}
	switch field {
	case "http":
		for _, name := range service.Routes {
			find("'"+name+"'", func(route map[string]any) bool { return route["name"] == name })
		}
	case "tls":
		for _, want := range service.TLSRoutes {
			find(fmt.Sprintf("of port %d and hosts %v", want.Port, want.SNIHosts), func(route map[string]any) bool { return matchesTLS(route, want) })
		}
	case "tcp":
		for _, want := range service.TCPRoutes {
			find(fmt.Sprintf("of port %d", want.Port), func(route map[string]any) bool { return matchesTCP(route, want) })
		}
	}
	if byName || err != nil {
		return found, byName, err
	}
	if len(routes) > 1 {
		return nil, false, errors.New("there are several: name the ones to use")
	}
	return routes, false, nil
}

func matchesTLS(route map[string]any, want argov1.TLSRoute) bool {
	return slices.ContainsFunc(traffic.Maps(route["match"]), func(match map[string]any) bool {
		var hosts []string
		list, _ := match["sniHosts"].([]any)
		for _, host := range list {
			if text, ok := host.(string); ok {
				hosts = append(hosts, text)
			}
		}
		wanted := slices.Sorted(slices.Values(want.SNIHosts))
		return isPort(match, want.Port) && (len(wanted) == 0 || slices.Equal(wanted, slices.Sorted(slices.Values(hosts))))
	})
}

func matchesTCP(route map[string]any, want argov1.TCPRoute) bool {
	return slices.ContainsFunc(traffic.Maps(route["match"]), func(match map[string]any) bool { return isPort(match, want.Port) })
}

// isPort reports whether a match is for the port; 0 means any.
func isPort(match map[string]any, port int64) bool {
	number, err := traffic.Number(match["port"])
	return port == 0 || err == nil && int64(number) == port
}

// hasBoth returns an error that names the side that a route lacks.
func (e editor) hasBoth(route map[string]any) error {
	canary, stable := false, false
	for _, d := range traffic.Maps(route["route"]) {
		canary = canary || e.sideOf(d) == canarySide
		stable = stable || e.sideOf(d) == stableSide
	}
	rule := ruleOf(e.t)
	switch {
	case !canary && rule != nil:
		return traffic.Refuse(traffic.ErrInvalid, textNoCanarySubset, rule.CanarySubsetName)
	case !canary:
		return traffic.Refuse(traffic.ErrInvalid, textNoCanaryService, e.t.CanaryService)
	case !stable && rule != nil:
		return traffic.Refuse(traffic.ErrInvalid, textNoStableSubset, rule.StableSubsetName)
	case !stable:
		return traffic.Refuse(traffic.ErrInvalid, textNoStableService, e.t.StableService)
	default:
		return nil
	}
}

// managed reports whether an HTTP route belongs to the Rollout.
func (e editor) managed(route map[string]any) bool {
	name := nameOf(route)
	return name != "" && slices.Contains(e.t.ManagedRoutes(), name)
}

func nameOf(route map[string]any) string {
	name, _ := route["name"].(string)
	return name
}

// routes writes weights, experiments and managed routes into a VirtualService.
func (e editor) routes(x traffic.Lookup, r release.Route, obj *unstructured.Unstructured) error {
	e.added = traffic.ExperimentServices(e.t, obj)
	spec := traffic.Spec(obj)
	found, err := e.choose(serviceFor(e.t, x.Ref), spec)
	if err != nil {
		return fmt.Errorf("%s: %w", x.Ref, err)
	}
	for _, route := range found.all {
		if err := e.setWeights(route, r); err != nil {
			return fmt.Errorf("%s: %w", x.Ref, err)
		}
	}
	traffic.RecordExperiments(e.t, obj, r.Others)
	if len(r.HeaderRoutes)+len(r.MirrorRoutes) > 0 && found.http == nil {
		return traffic.Refuse(traffic.ErrInvalid, "%s has no HTTP route for the steps setHeaderRoute and setMirrorRoute", x.Ref)
	}
	if _, had := spec["http"]; !had && found.http == nil {
		return nil
	}
	all := traffic.Maps(spec["http"])
	users := slices.DeleteFunc(slices.Clone(all), e.managed)
	spec["http"] = traffic.List(append(e.managedRoutes(r, found.http, all), users...))
	return nil
}

// setWeights sets the weight of each destination of a route. Other destinations keep their weights, which are subtracted from
// that of the stable side.
func (e editor) setWeights(route map[string]any, r release.Route) error {
	all := traffic.Maps(route["route"])
	remaining := slices.DeleteFunc(slices.Clone(all), func(d map[string]any) bool { return e.sideOf(d) == experiment })
	stable := r.Stable()
	for _, d := range remaining {
		if e.sideOf(d) != otherSide {
			continue
		}
		weight, err := traffic.Number(d["weight"])
		if err != nil || weight < 0 {
			return fmt.Errorf("the weight of %v is %v, which is not a non-negative number", d["destination"], d["weight"])
		}
		stable -= int(weight)
	}
	for _, d := range remaining {
		switch e.sideOf(d) {
		case canarySide:
			d["weight"] = int64(r.Canary)
		case stableSide:
			d["weight"] = int64(max(stable, 0))
		case otherSide, experiment:
		}
	}
	for _, d := range slices.SortedFunc(slices.Values(r.Others), func(a, b release.Destination) int { return cmp.Compare(a.Service, b.Service) }) {
		created := map[string]any{"destination": map[string]any{"host": d.Service}, "weight": int64(d.Weight)}
		was := slices.IndexFunc(all, func(was map[string]any) bool { return e.sideOf(was) == experiment && hostOf(was) == d.Service })
		if was >= 0 {
			created = traffic.PreserveUnknownFields(created, all[was], experimentFields)
		}
		remaining = append(remaining, created)
	}
	route["route"] = traffic.List(remaining)
	return nil
}

// managedRoutes are the routes of steps, derived from the HTTP route with the weights. Fields that other tools added to
// existing ones are preserved.
func (e editor) managedRoutes(r release.Route, from map[string]any, existing []map[string]any) []map[string]any {
	var out []map[string]any
	add := func(route map[string]any, fields traffic.Fields) {
		if i := slices.IndexFunc(existing, func(was map[string]any) bool { return was["name"] == route["name"] }); i >= 0 {
			route = traffic.PreserveUnknownFields(route, existing[i], fields)
		}
		out = append(out, route)
	}
	for _, route := range r.HeaderRoutes {
		if len(route.Match) > 0 {
			add(e.headerRoute(route, from), headerRouteFields)
		}
	}
	for _, route := range r.MirrorRoutes {
		if len(route.Match) > 0 {
			add(e.mirrorRoute(route, from), mirrorRouteFields)
		}
	}
	slices.SortStableFunc(out, func(a, b map[string]any) int {
		before, _ := a["name"].(string)
		after, _ := b["name"].(string)
		return e.t.CompareManagedRoutes(before, after)
	})
	return out
}

func (e editor) headerRoute(route release.HeaderRoute, from map[string]any) map[string]any {
	matches := make([]any, len(route.Match))
	for i, m := range route.Match {
		matches[i] = map[string]any{"headers": conditions(m.Headers)}
	}
	return map[string]any{
		"name": route.Name, "match": matches,
		"route": []any{map[string]any{"destination": e.canary(from), "weight": int64(release.Total)}},
	}
}

func (e editor) mirrorRoute(route release.MirrorRoute, from map[string]any) map[string]any {
	matches := make([]any, len(route.Match))
	for i, m := range route.Match {
		match := map[string]any{}
		if m.Method != nil {
			match["method"] = condition(*m.Method)
		}
		if m.Path != nil {
			match["uri"] = condition(*m.Path)
		}
		if len(m.Headers) > 0 {
			match["headers"] = conditions(m.Headers)
		}
		matches[i] = match
	}
	shared, _ := from["route"].([]any)
	return map[string]any{
		"name": route.Name, "match": matches, "route": runtime.DeepCopyJSONValue(shared),
		"mirror": e.canary(from), "mirrorPercentage": map[string]any{"value": int64(route.Percent)},
	}
}

// canary is the destination of managed routes, with the port of the first destination in the route with the weights.
func (e editor) canary(from map[string]any) map[string]any {
	out := map[string]any{"host": e.t.CanaryService}
	if rule := ruleOf(e.t); rule != nil {
		out["host"], out["subset"] = e.ruleHost, rule.CanarySubsetName
	}
	if shared := traffic.Maps(from["route"]); len(shared) > 0 {
		if port, ok, _ := unstructured.NestedMap(shared[0], "destination", "port"); ok {
			out["port"] = port
		}
	}
	return out
}

func conditions(headers map[string]release.StringMatch) map[string]any {
	out := make(map[string]any, len(headers))
	for name, value := range headers {
		out[name] = condition(value)
	}
	return out
}

func condition(m release.StringMatch) map[string]any {
	switch {
	case m.Exact != "":
		return map[string]any{"exact": m.Exact}
	case m.Prefix != "":
		return map[string]any{"prefix": m.Prefix}
	default:
		return map[string]any{"regex": m.Regex}
	}
}

// weights returns the weights of one route: the canary's, and those of experiments.
func (e editor) weights(route map[string]any) (canary int, others []release.Destination, err error) {
	for _, d := range traffic.Maps(route["route"]) {
		destinationSide := e.sideOf(d)
		if destinationSide != canarySide && destinationSide != experiment {
			continue
		}
		weight, err := traffic.Number(d["weight"])
		if err != nil || weight < 0 {
			return 0, nil, fmt.Errorf("the weight of %v is %v, which is not a non-negative number", d["destination"], d["weight"])
		}
		if destinationSide == canarySide {
			canary = int(weight)
			continue
		}
		host, _, _ := unstructured.NestedString(d, "destination", "host")
		others = append(others, release.Destination{Service: host, Weight: int(weight)})
	}
	return canary, others, nil
}

// restoreRoutes removes managed routes and experiments.
func (e editor) restoreRoutes(spec map[string]any) {
	if spec["http"] != nil {
		spec["http"] = traffic.List(slices.DeleteFunc(traffic.Maps(spec["http"]), e.managed))
	}
	for _, protocol := range protocols {
		for _, route := range traffic.Maps(spec[protocol.field]) {
			all := traffic.Maps(route["route"])
			remaining := slices.DeleteFunc(slices.Clone(all), func(d map[string]any) bool { return e.sideOf(d) == experiment })
			if len(remaining) < len(all) {
				route["route"] = traffic.List(remaining)
			}
		}
	}
}
