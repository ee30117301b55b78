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
	return backendOf(t, rule, t.StableService) != nil && backendOf(t, rule, t.CanaryService) != nil
}

// backendOf is the backend of a rule for a Service; nil if it has none.
func backendOf(t traffic.Target, rule map[string]any, name string) map[string]any {
	for _, ref := range traffic.Maps(rule["backendRefs"]) {
		if isBackend(t, ref, name) {
			return ref
		}
	}
	return nil
}

// rules returns the rules of the user with the weights of the route, and the managed rules. Those that mirror precede the user's:
// they may have the same matches, and then the first rule wins. A header makes a match more specific than the user's.
func (e editor) rules(spec map[string]any, r release.Route, existing traffic.Objects) ([]map[string]any, error) {
	before := slices.Clone(traffic.Maps(runtime.DeepCopyJSONValue(spec["rules"])))
	rules := e.users(spec)
	users := slices.DeleteFunc(slices.Clone(before), e.managed)
	for i, rule := range rules {
		if shares(e.t, rule) {
			e.setWeights(rule, traffic.Maps(users[i]["backendRefs"]), r, existing)
		}
	}
	managed, err := e.managedRules(rules, r)
	if err != nil {
		return nil, err
	}
	var first, last []map[string]any
	count := map[string]int{}
	for _, m := range managed {
		for _, created := range e.render(m) {
			created["name"] = m.route
			if n := count[m.route]; n > 0 {
				created["name"] = m.route + "-" + strconv.Itoa(n)
			}
			count[m.route]++
			if m.mirror != nil || m.overMirror {
				preserveMirror(created, before, m.mirror != nil)
				first = append(first, created)
			} else {
				preserveHeaders(created, m.users, before)
				last = append(last, created)
			}
		}
	}
	return slices.Concat(first, rules, last), nil
}

// managedRule is a rule for some requests of a rule of the user.
type managedRule struct {
	route   string
	users   map[string]any
	matches []map[string]any
	// mirror is nil for a header route.
	mirror *release.MirrorRoute
	// overMirror is true for a header route that takes precedence over a mirror route for its requests.
	overMirror bool
}

// managedRules returns the managed rules, highest precedence first. A gateway selects the most specific rule, whatever the order of
// routes in the Rollout. For requests that match two routes, there is therefore a rule with the matches of both.
func (e editor) managedRules(rules []map[string]any, r release.Route) ([]managedRule, error) {
	headers := map[string]release.HeaderRoute{}
	mirrors := map[string]release.MirrorRoute{}
	var names []string
	for _, route := range r.HeaderRoutes {
		headers[route.Name], names = route, append(names, route.Name)
	}
	for _, route := range r.MirrorRoutes {
		mirrors[route.Name], names = route, append(names, route.Name)
	}
	slices.SortStableFunc(names, e.t.CompareManagedRoutes)
	var out []managedRule
	for _, name := range slices.Backward(slices.Compact(names)) {
		var created []managedRule
		for _, rule := range rules {
			if shares(e.t, rule) {
				created = append(created, managedRule{route: name, users: rule, matches: alternatives(rule)})
			}
		}
		mirror, mirrored := mirrors[name]
		ofUsers := len(created)
		for _, lower := range out {
			if mirrored || lower.mirror != nil {
				created = append(created, managedRule{route: name, users: lower.users, matches: lower.matches, overMirror: !mirrored})
			}
		}
		for i := range created {
			if !mirrored {
				created[i].matches = headerMatchesOf(created[i].matches, headers[name])
				continue
			}
			matches, err := mirrorMatches(created[i].matches, mirror, replacesPrefix(created[i].users))
			if err != nil && i < ofUsers {
				return nil, err
			}
			// Where the matches of two routes cannot be combined, the first of the two rules serves the requests.
			created[i].matches, created[i].mirror = matches, &mirror
		}
		created = slices.DeleteFunc(created, func(m managedRule) bool { return len(m.matches) == 0 })
		out = append(created, out...)
	}
	return out, nil
}

// users returns the rules without managed rules and without experiments.
func (e editor) users(spec map[string]any) []map[string]any {
	rules := slices.DeleteFunc(traffic.Maps(spec["rules"]), e.managed)
	for _, rule := range rules {
		refs := traffic.Maps(rule["backendRefs"])
		remaining := slices.DeleteFunc(slices.Clone(refs), func(ref map[string]any) bool {
			name, _ := ref["name"].(string)
			return slices.Contains(e.added, name) && isBackend(e.t, ref, name)
		})
		if len(remaining) < len(refs) {
			rule["backendRefs"] = traffic.List(remaining)
		}
	}
	return rules
}

func (e editor) setWeights(rule map[string]any, before []map[string]any, r release.Route, existing traffic.Objects) {
	backendOf(e.t, rule, e.t.CanaryService)["weight"] = int64(r.Canary)
	backendOf(e.t, rule, e.t.StableService)["weight"] = int64(r.Stable())
	if len(r.Others) == 0 {
		return
	}
	refs := traffic.Maps(rule["backendRefs"])
	for _, d := range r.Others {
		created := map[string]any{
			"group": "", "kind": serviceKind, "name": d.Service, "namespace": e.t.Namespace,
			"port": portOf(existing.Get(serviceKind, e.t.Namespace, d.Service)), "weight": int64(d.Weight),
		}
		if i := slices.IndexFunc(before, func(was map[string]any) bool { return isBackend(e.t, was, d.Service) }); i >= 0 {
			created = traffic.PreserveUnknownFields(created, before[i], backendFields.With(traffic.WholeFields("weight")))
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

// headerMatchesOf are the matches of requests that have one of the headers of a route in addition. There are none without a
// header: all requests would match.
func headerMatchesOf(matches []map[string]any, route release.HeaderRoute) []map[string]any {
	var out []map[string]any
	for _, match := range matches {
		for _, m := range route.Match {
			out = append(out, withHeaders(match, m.Headers))
		}
	}
	return out
}

// render returns the rules of a managed rule: several if the API allows only one match in a rule.
func (e editor) render(m managedRule) []map[string]any {
	create := func(matches []any) map[string]any {
		if m.mirror != nil {
			return e.toMirror(m.users, *m.mirror, matches)
		}
		return e.toCanary(m.users, matches)
	}
	if !replacesPrefix(m.users) {
		return []map[string]any{create(traffic.List(m.matches))}
	}
	var out []map[string]any
	for _, match := range m.matches {
		out = append(out, create([]any{match}))
	}
	return out
}

// toCanary returns a copy of a rule that sends its requests to the canary, whatever its weight.
func (e editor) toCanary(rule map[string]any, matches []any) map[string]any {
	out := runtime.DeepCopyJSON(rule)
	canary := runtime.DeepCopyJSON(backendOf(e.t, rule, e.t.CanaryService))
	canary["weight"] = int64(1) // the default of a single backend
	out["matches"], out["backendRefs"] = matches, []any{canary}
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
// no names of rules, by the match of a step. False: it is the user's.
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
	if shares(e.t, rule) {
		return e.mirrorRouteOf(rule)
	}
	if refs := traffic.Maps(rule["backendRefs"]); len(refs) != 1 || !isBackend(e.t, refs[0], e.t.CanaryService) || e.t.Rollout.Spec.Strategy.Canary == nil {
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
