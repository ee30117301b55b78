package gatewayapi

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// defaultPort is the port of an experiment's Service for which no port is specified.
const defaultPort = 8080

// editor edits the rules of a route of the user.
type editor struct {
	t traffic.Target
	// added are the Services of experiments that the Rollout added to the route.
	added []string
}

// shares reports whether a rule refers to both sides, so that its requests can be split.
func shares(t traffic.Target, rule map[string]any) bool {
	return backendOf(rule, t.StableService) != nil && backendOf(rule, t.CanaryService) != nil
}

// backendOf is the backend of a rule for a Service; nil if it has none.
func backendOf(rule map[string]any, name string) map[string]any {
	for _, ref := range traffic.Maps(rule["backendRefs"]) {
		if isService(ref, name) {
			return ref
		}
	}
	return nil
}

// rules returns the rules of the user with the weights of the route, followed by the managed rules.
func (e editor) rules(spec map[string]any, r release.Route, existing traffic.Objects) []map[string]any {
	before := slices.Clone(traffic.Maps(runtime.DeepCopyJSONValue(spec["rules"])))
	rules := e.users(spec)
	var managed []map[string]any
	for _, route := range e.byPrecedence(r.HeaderRoutes) {
		count := 0
		for _, rule := range rules {
			if !shares(e.t, rule) {
				continue
			}
			for _, created := range e.byHeader(rule, route) {
				created["name"] = route.Name
				if count > 0 {
					created["name"] = route.Name + "-" + strconv.Itoa(count)
				}
				count++
				preserveHeaders(created, rule, before)
				managed = append(managed, created)
			}
		}
	}
	before = slices.DeleteFunc(before, e.managed)
	for i, rule := range rules {
		if shares(e.t, rule) {
			e.setWeights(rule, traffic.Maps(before[i]["backendRefs"]), r, existing)
		}
	}
	return append(rules, managed...)
}

func (e editor) byPrecedence(routes []release.HeaderRoute) []release.HeaderRoute {
	return slices.SortedStableFunc(slices.Values(routes), func(a, b release.HeaderRoute) int { return e.t.CompareManagedRoutes(a.Name, b.Name) })
}

// users returns the rules without managed rules and without experiments.
func (e editor) users(spec map[string]any) []map[string]any {
	rules := slices.DeleteFunc(traffic.Maps(spec["rules"]), e.managed)
	for _, rule := range rules {
		refs := traffic.Maps(rule["backendRefs"])
		remaining := slices.DeleteFunc(slices.Clone(refs), func(ref map[string]any) bool {
			name, _ := ref["name"].(string)
			return slices.Contains(e.added, name) && isService(ref, name)
		})
		if len(remaining) < len(refs) {
			rule["backendRefs"] = traffic.List(remaining)
		}
	}
	return rules
}

func (e editor) setWeights(rule map[string]any, before []map[string]any, r release.Route, existing traffic.Objects) {
	backendOf(rule, e.t.CanaryService)["weight"] = int64(r.Canary)
	backendOf(rule, e.t.StableService)["weight"] = int64(r.Stable())
	if len(r.Others) == 0 {
		return
	}
	refs := traffic.Maps(rule["backendRefs"])
	for _, d := range r.Others {
		created := map[string]any{
			"group": "", "kind": serviceKind, "name": d.Service, "namespace": e.t.Namespace,
			"port": portOf(existing.Get(serviceKind, e.t.Namespace, d.Service)), "weight": int64(d.Weight),
		}
		if i := slices.IndexFunc(before, func(was map[string]any) bool { return isService(was, d.Service) }); i >= 0 {
			created = traffic.PreserveUnknownFields(created, before[i], backendFields.With(traffic.Whole("weight")))
		}
		refs = append(refs, created)
	}
	rule["backendRefs"] = traffic.List(refs)
}

// portOf is the port of a Service with the name http, or else its first port.
func portOf(service *unstructured.Unstructured) int64 {
	if service == nil {
		return defaultPort
	}
	list, _, _ := unstructured.NestedFieldNoCopy(service.Object, "spec", "ports")
	ports := traffic.Maps(list)
	i := max(0, slices.IndexFunc(ports, func(port map[string]any) bool { return port["name"] == "http" }))
	if i >= len(ports) {
		return defaultPort
	}
	if number, err := traffic.Number(ports[i]["port"]); err == nil && number > 0 {
		return int64(number)
	}
	return defaultPort
}

// byHeader returns the rules that send matching requests of a rule to the canary, whatever its weight. All other fields are
// copies of the rule's.
func (e editor) byHeader(rule map[string]any, route release.HeaderRoute) []map[string]any {
	var matches []any
	for _, match := range alternatives(rule) {
		for _, m := range route.Match {
			matches = append(matches, withHeaders(match, m.Headers))
		}
	}
	if len(matches) == 0 {
		return nil // without a header, all requests would match
	}
	toCanary := func(matches []any) map[string]any {
		out := runtime.DeepCopyJSON(rule)
		canary := runtime.DeepCopyJSON(backendOf(rule, e.t.CanaryService))
		canary["weight"] = int64(1) // the default of a single backend
		out["matches"], out["backendRefs"] = matches, []any{canary}
		return out
	}
	if !replacesPrefix(rule) {
		return []map[string]any{toCanary(matches)}
	}
	var out []map[string]any
	for _, match := range matches { // the API allows only one match
		out = append(out, toCanary([]any{match}))
	}
	return out
}

// preserveHeaders preserves, in an existing managed rule, fields that other tools added to the headers of a step. All other
// fields are copied from the user's rule.
func preserveHeaders(created, users map[string]any, before []map[string]any) {
	i := slices.IndexFunc(before, func(was map[string]any) bool { return was["name"] == created["name"] })
	if i < 0 {
		return
	}
	was := traffic.Maps(before[i]["matches"])
	matches := traffic.Maps(created["matches"])
	for j, match := range matches {
		k := slices.IndexFunc(was, func(existing map[string]any) bool { return sameHeaders(existing, match) })
		switch {
		case k < 0:
			continue
		case len(traffic.Maps(users["matches"])) == 0: // the user's rule has no match that was copied
			matches[j] = traffic.PreserveUnknownFields(match, was[k], matchFields)
		default:
			merged := traffic.PreserveUnknownFields(map[string]any{"headers": match["headers"]}, map[string]any{"headers": was[k]["headers"]}, matchFields)
			match["headers"] = merged["headers"]
		}
		was = slices.Delete(was, k, k+1)
	}
	created["matches"] = traffic.List(matches)
}

// sameHeaders reports whether two matches have the same headers.
func sameHeaders(a, b map[string]any) bool {
	return slices.EqualFunc(traffic.Maps(a["headers"]), traffic.Maps(b["headers"]), func(x, y map[string]any) bool {
		return x["name"] == y["name"] && x["type"] == y["type"] && x["value"] == y["value"]
	})
}

// alternatives are the matches of a rule. A rule without matches has one, which matches everything.
func alternatives(rule map[string]any) []map[string]any {
	matches := traffic.Maps(rule["matches"])
	if len(matches) == 0 {
		return []map[string]any{{}}
	}
	return matches
}

func withHeaders(match map[string]any, headers map[string]release.StringMatch) map[string]any {
	out := runtime.DeepCopyJSON(match)
	remaining := slices.DeleteFunc(traffic.Maps(out["headers"]), func(h map[string]any) bool {
		name, _ := h["name"].(string)
		_, replaced := headers[name]
		return replaced || slices.ContainsFunc(slices.Collect(maps.Keys(headers)), func(other string) bool { return strings.EqualFold(name, other) })
	})
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		kind, value := headerValue(headers[name])
		remaining = append(remaining, map[string]any{"type": kind, "name": name, "value": value})
	}
	out["headers"] = traffic.List(remaining)
	return out
}

func headerValue(m release.StringMatch) (kind, value string) {
	switch {
	case m.Exact != "":
		return string(gatewayv1.HeaderMatchExact), m.Exact
	case m.Prefix != "":
		return string(gatewayv1.HeaderMatchRegularExpression), regexp.QuoteMeta(m.Prefix) + ".*"
	default:
		return string(gatewayv1.HeaderMatchRegularExpression), m.Regex
	}
}

// replacesPrefix reports whether a filter of the rule depends on the matched prefix.
func replacesPrefix(rule map[string]any) bool {
	return slices.ContainsFunc(traffic.Maps(rule["filters"]), func(filter map[string]any) bool {
		for _, kind := range []string{"urlRewrite", "requestRedirect"} {
			if how, _, _ := unstructured.NestedString(filter, kind, "path", "type"); how == string(gatewayv1.PrefixMatchHTTPPathModifier) {
				return true
			}
		}
		return false
	})
}

// managed reports whether a rule was created for a step.
func (e editor) managed(rule map[string]any) bool {
	_, managed := e.routeOf(rule)
	return managed
}

// routeOf is the managed route for which a rule was created, by its name, or, if the cluster's CustomResourceDefinition has
// no names of rules, by the headers of a step. False: it is the user's.
func (e editor) routeOf(rule map[string]any) (route string, managed bool) {
	name, _ := rule["name"].(string)
	if name != "" {
		all := e.t.ManagedRoutes()
		i := slices.IndexFunc(all, func(route string) bool { return isNamed(name, route) })
		if i < 0 {
			return "", false
		}
		return all[i], true
	}
	if refs := traffic.Maps(rule["backendRefs"]); len(refs) != 1 || !isService(refs[0], e.t.CanaryService) || e.t.Rollout.Spec.Strategy.Canary == nil {
		return "", false
	}
	for _, step := range e.t.Rollout.Spec.Strategy.Canary.Steps {
		if step.SetHeaderRoute != nil && asksFor(traffic.HeaderRoute(*step.SetHeaderRoute), rule) {
			return step.SetHeaderRoute.Name, true
		}
	}
	return "", false
}

// isNamed reports whether a rule has the name of a route, with or without a number.
func isNamed(rule, route string) bool {
	number, ok := strings.CutPrefix(rule, route+"-")
	if !ok {
		return rule == route
	}
	_, err := strconv.Atoi(number)
	return err == nil
}

// asksFor reports whether every match of the rule has the headers of one match of the route.
func asksFor(route release.HeaderRoute, rule map[string]any) bool {
	matches := traffic.Maps(rule["matches"])
	return len(matches) > 0 && !slices.ContainsFunc(matches, func(match map[string]any) bool {
		return !slices.ContainsFunc(route.Match, func(m release.Match) bool { return hasHeaders(match, m.Headers) })
	})
}

func hasHeaders(match map[string]any, headers map[string]release.StringMatch) bool {
	present := traffic.Maps(match["headers"])
	for name, value := range headers {
		kind, text := headerValue(value)
		if !slices.ContainsFunc(present, func(h map[string]any) bool {
			return h["name"] == name && h["type"] == kind && h["value"] == text
		}) {
			return false
		}
	}
	return len(headers) > 0
}
