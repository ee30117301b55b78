package apisix

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// RolloutRenderer writes weights into an ApisixRoute of the user, and creates another ApisixRoute for each managed route.
type RolloutRenderer struct{}

// NewRollout returns the router apisix.
func NewRollout() RolloutRenderer { return RolloutRenderer{} }

// Features are weights and routes by header.
func (RolloutRenderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, HeaderRoutes: true}
}

// configuredRoute returns the ApisixRoute and the rules that the spec names.
func configuredRoute(t traffic.Target) (route string, rules []string) {
	apisix := t.Routing().Apisix
	if apisix == nil || apisix.Route == nil {
		return "", nil
	}
	return apisix.Route.Name, apisix.Route.Rules
}

// Refs are the user's ApisixRoute, and the ApisixRoutes of managed routes, which are named after them.
func (RolloutRenderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	name, _ := configuredRoute(t)
	if name == "" {
		return nil
	}
	refs := []traffic.Ref{{GVK: apisixRouteKind, Namespace: t.Namespace, Name: name, Shared: true}}
	for _, managed := range t.ManagedRoutes() {
		if managed != name {
			refs = append(refs, traffic.Ref{GVK: apisixRouteKind, Namespace: t.Namespace, Name: managed, Owned: true, Derived: true})
		}
	}
	return refs
}

// Render writes the weights, and creates and deletes the ApisixRoutes of managed routes.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	if len(existing) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, textNoRoute)
	}
	users, err := existing[0].EditShared()
	if err != nil {
		return nil, err
	}
	rules, fault := rulesOf(t, users)
	if fault != "" {
		return nil, traffic.Refuse(traffic.ErrInvalid, "%s %s", existing[0].Ref, fault)
	}
	for _, rule := range rules {
		backendOf(rule, t.CanaryService)["weight"] = int64(r.Canary)
		backendOf(rule, t.StableService)["weight"] = int64(r.Stable())
	}
	out := existing.Unchanged()
	out[0] = users
	for i, x := range existing[1:] {
		if out[i+1], err = renderManaged(t, r, x, users, rules); err != nil {
			return nil, err
		}
	}
	return out, nil
}

const textNoRoute = "spec.strategy.canary.trafficRouting.apisix names no route: set apisix.route.name"

// rulesOf returns the rules that the spec selects, which are not copies, or why they cannot be used.
func rulesOf(t traffic.Target, users *unstructured.Unstructured) (rules []map[string]any, fault string) {
	name, wanted := configuredRoute(t)
	list, _, _ := unstructured.NestedFieldNoCopy(users.Object, "spec", "http")
	all := traffic.Maps(list)
	if len(wanted) == 0 {
		wanted = []string{name}
		if len(all) == 1 { // the only rule needs no name
			only, _ := all[0]["name"].(string)
			wanted = []string{only}
		}
	}
	for _, name := range wanted {
		i := slices.IndexFunc(all, func(rule map[string]any) bool { return rule["name"] == name })
		if i < 0 {
			return nil, fmt.Sprintf("has no rule %s in spec.http", name)
		}
		for _, service := range []string{t.CanaryService, t.StableService} {
			if backendOf(all[i], service) == nil {
				return nil, fmt.Sprintf("has no backend %s in rule %s", service, name)
			}
		}
		rules = append(rules, all[i])
	}
	return rules, ""
}

func backendOf(rule map[string]any, service string) map[string]any {
	for _, backend := range traffic.Maps(rule["backends"]) {
		if backend["serviceName"] == service {
			return backend
		}
	}
	return nil
}

// renderManaged creates the ApisixRoute of an active managed route, and deletes that of another. An object of that name with
// another owner is an error only if the route is active.
func renderManaged(t traffic.Target, r release.Route, x traffic.Lookup, users *unstructured.Unstructured, rules []map[string]any) (*unstructured.Unstructured, error) {
	i := slices.IndexFunc(r.HeaderRoutes, func(route release.HeaderRoute) bool { return route.Name == x.Ref.Name && len(route.Match) > 0 })
	if i < 0 {
		if x.Object != nil && t.Owns(x.Object) {
			return nil, nil
		}
		return x.Object, nil
	}
	obj, err := x.EditOwned(t)
	if err != nil {
		return nil, err
	}
	var copies []map[string]any
	for _, rule := range rules {
		copied, err := byHeader(t, rule, r.HeaderRoutes[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.Ref, err)
		}
		copies = append(copies, copied)
	}
	writeCopy(obj, users, copies)
	return obj, nil
}

// byHeader returns a copy of a rule for matching requests, all of which are sent to the canary.
func byHeader(t traffic.Target, rule map[string]any, route release.HeaderRoute) (map[string]any, error) {
	out := runtime.DeepCopyJSON(rule)
	priority, err := traffic.Number(rule["priority"])
	if err != nil {
		return nil, fmt.Errorf("priority of rule %v: %w", rule["name"], err)
	}
	out["priority"] = int64(priority) + 1
	backends := slices.DeleteFunc(traffic.Maps(out["backends"]), func(b map[string]any) bool { return b["serviceName"] == t.StableService })
	out["backends"] = traffic.List(backends)
	backendOf(out, t.CanaryService)["weight"] = int64(release.Total)
	match, ok := out["match"].(map[string]any)
	if !ok {
		match = map[string]any{}
		out["match"] = match
	}
	exprs, _ := match["exprs"].([]any)
	match["exprs"] = append(slices.Clone(exprs), conditions(route)...)
	return out, nil
}

// conditions are the headers of a managed route, all of which must match.
func conditions(route release.HeaderRoute) []any {
	var out []any
	for _, m := range route.Match {
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			op, value := "RegexMatch", m.Headers[name].Regex
			switch h := m.Headers[name]; {
			case h.Exact != "":
				op, value = "Equal", h.Exact
			case h.Prefix != "":
				value = "^" + regexp.QuoteMeta(h.Prefix) + ".*"
			}
			out = append(out, map[string]any{"subject": map[string]any{"scope": "Header", "name": name}, "op": op, "value": value})
		}
	}
	return out
}

// Read reads the weights from the user's ApisixRoute. APISIX reports that it has processed a route, but not which version of
// it.
func (RolloutRenderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if len(existing) == 0 || existing[0].Object == nil {
		return out, nil
	}
	for _, x := range existing[1:] {
		if x.Object != nil && t.Owns(x.Object) {
			out.ManagedRoutes = append(out.ManagedRoutes, x.Ref.Name)
		}
	}
	rules, fault := rulesOf(t, existing[0].Object)
	if fault != "" {
		return out, nil
	}
	for _, rule := range rules {
		given := backendOf(rule, t.CanaryService)["weight"]
		weight, err := traffic.Number(given)
		if err != nil || weight < 0 {
			return traffic.Observed{Confirmed: traffic.CannotTell},
				fmt.Errorf("read %s: the weight of %s is %v, which is not a non-negative number", existing[0].Ref, t.CanaryService, given)
		}
		out.Found, out.Route.Canary = true, max(out.Route.Canary, int(weight))
	}
	return out, nil
}

// Validate finds an ApisixRoute that is missing, or whose rules do not name both Services.
func (RolloutRenderer) Validate(t traffic.Target, existing traffic.Objects) field.ErrorList {
	path := traffic.RoutingPath().Child("apisix", "route", "name")
	if len(existing) == 0 {
		return field.ErrorList{field.Invalid(path, "", textNoRoute)}
	}
	x := existing[0]
	fault := "not found"
	if x.Object != nil {
		_, fault = rulesOf(t, x.Object)
	}
	if fault == "" {
		return nil
	}
	return field.ErrorList{field.Invalid(path, x.Ref.Name, x.Ref.String()+" "+fault)}
}

// Restore has nothing to restore: weights remain, and created objects are deleted with the Rollout.
func (RolloutRenderer) Restore(_ traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return existing.Unchanged(), nil
}
