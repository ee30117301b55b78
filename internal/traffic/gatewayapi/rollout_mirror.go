package gatewayapi

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// defaultPath is the path of a match without one: all paths.
const defaultPath = "/"

// toMirror returns a copy of a rule for some of its requests, of which a share is mirrored to the canary.
func (e editor) toMirror(rule map[string]any, route release.MirrorRoute, matches []any) map[string]any {
	out := runtime.DeepCopyJSON(rule)
	backend := map[string]any{}
	for name, value := range backendOf(e.t, rule, e.t.CanaryService) {
		if _, ok := backendFields[name]; ok {
			backend[name] = value
		}
	}
	mirrored := map[string]any{"backendRef": backend}
	if route.Percent < release.Total {
		mirrored["percent"] = int64(route.Percent)
	}
	filter := map[string]any{"type": string(gatewayv1.HTTPRouteFilterRequestMirror), "requestMirror": mirrored}
	out["matches"], out["filters"] = matches, traffic.List(append(traffic.Maps(out["filters"]), filter))
	return out
}

// mirrorMatches returns the matches of the requests that match both a rule and a mirror route; none if there are no such requests.
// The path of a rule that replaces the matched prefix must remain: another one would change the result.
func mirrorMatches(matches []map[string]any, route release.MirrorRoute, replacesPrefix bool) ([]map[string]any, error) {
	var out []map[string]any
	for _, match := range matches {
		for _, m := range route.Match {
			both, possible, err := intersect(match, m)
			if possible && replacesPrefix && !reflect.DeepEqual(both["path"], match["path"]) {
				err = traffic.Refuse(traffic.ErrUnsupported, "the rule replaces the matched prefix, so that its path cannot be changed")
			}
			switch {
			case err != nil:
				return nil, traffic.Refuse(traffic.ErrUnsupported, "the match of setMirrorRoute %s cannot be combined with a rule of the HTTPRoute: %v", route.Name, err)
			case possible:
				out = append(out, both)
			}
		}
	}
	return out, nil
}

// intersect returns the match of the requests that two matches have in common. It is not possible if there are none, and an error
// if an HTTPRoute cannot express it.
func intersect(match map[string]any, m release.Match) (both map[string]any, possible bool, err error) {
	both = runtime.DeepCopyJSON(match)
	if m.Method != nil {
		if m.Method.Exact == "" {
			return nil, false, traffic.Refuse(traffic.ErrUnsupported, "an HTTPRoute matches a method by exact only")
		}
		if method, given := match["method"].(string); given && method != m.Method.Exact {
			return nil, false, nil
		}
		both["method"] = m.Method.Exact
	}
	if m.Path != nil {
		users, _ := match["path"].(map[string]any)
		path, possible, err := intersectPaths(users, *m.Path)
		if !possible || err != nil {
			return nil, false, err
		}
		both["path"] = path
	}
	for name, value := range m.Headers {
		kind, text := headerValue(value)
		header := map[string]any{"type": kind, "name": name, "value": text}
		headers := traffic.Maps(both["headers"])
		i := slices.IndexFunc(headers, func(h map[string]any) bool {
			other, _ := h["name"].(string)
			return strings.EqualFold(other, name)
		})
		if i < 0 {
			both["headers"] = traffic.List(append(headers, header))
			continue
		}
		common, possible, err := intersectValues(condition{headers[i]}, condition{header})
		if !possible || err != nil {
			return nil, false, err
		}
		headers[i] = common.fields
		both["headers"] = traffic.List(headers)
	}
	sortHeaders(both)
	return both, true, nil
}

// sortHeaders makes the order of headers independent of the order in a map.
func sortHeaders(match map[string]any) {
	headers := traffic.Maps(match["headers"])
	if len(headers) == 0 {
		return
	}
	slices.SortStableFunc(headers, func(a, b map[string]any) int {
		x, _ := a["name"].(string)
		y, _ := b["name"].(string)
		return strings.Compare(x, y)
	})
	match["headers"] = traffic.List(headers)
}

// condition is a path or a header of a match: its type, and the value to compare with.
type condition struct{ fields map[string]any }

func (c condition) kind() string {
	kind, _ := c.fields["type"].(string)
	if kind == "" {
		return string(gatewayv1.HeaderMatchExact) // the default for headers; that of paths is set before
	}
	return kind
}

func (c condition) value() string {
	value, _ := c.fields["value"].(string)
	return value
}

const (
	exact   = string(gatewayv1.PathMatchExact)
	prefix  = string(gatewayv1.PathMatchPathPrefix)
	pattern = string(gatewayv1.PathMatchRegularExpression)
)

// intersectPaths returns the path that a rule and a mirror route have in common. A prefix means whole elements, as in all of the
// Gateway API.
func intersectPaths(users map[string]any, m release.StringMatch) (path map[string]any, possible bool, err error) {
	rule := condition{map[string]any{"type": prefix, "value": defaultPath}}
	maps.Copy(rule.fields, users)
	route := condition{map[string]any{"type": prefix, "value": m.Prefix}}
	switch {
	case m.Exact != "":
		route.fields["type"], route.fields["value"] = exact, m.Exact
	case m.Regex != "":
		route.fields["type"], route.fields["value"] = pattern, m.Regex
	}
	if route.kind() != pattern && !strings.HasPrefix(route.value(), "/") {
		return nil, false, traffic.Refuse(traffic.ErrUnsupported, "path %q does not begin with /", route.value())
	}
	common, possible, err := intersectValues(rule, route)
	return common.fields, possible, err
}

// intersectValues returns the condition that accepts what both accept.
func intersectValues(a, b condition) (common condition, possible bool, err error) {
	switch {
	case a.kind() == b.kind() && a.value() == b.value(), b.kind() == prefix && b.value() == defaultPath:
		return a, true, nil
	case a.kind() == prefix && a.value() == defaultPath:
		return b, true, nil
	case a.kind() == exact && b.kind() == exact:
		return a, false, nil
	case a.kind() == exact:
		return accepts(b, a)
	case b.kind() == exact:
		return accepts(a, b)
	case a.kind() == prefix && b.kind() == prefix:
		if hasPathPrefix(a.value(), b.value()) {
			return a, true, nil
		}
		return b, hasPathPrefix(b.value(), a.value()), nil
	default:
		return a, false, traffic.Refuse(traffic.ErrUnsupported, "no single condition matches both %q and %q", a.value(), b.value())
	}
}

// accepts returns an exact condition, and whether a prefix or a pattern accepts it.
func accepts(c, one condition) (common condition, possible bool, err error) {
	if c.kind() == prefix {
		return one, hasPathPrefix(one.value(), c.value()), nil
	}
	compiled, err := regexp.Compile("^(?:" + c.value() + ")$")
	if err != nil {
		return one, false, traffic.Refuse(traffic.ErrUnsupported, "%q is not a regular expression", c.value())
	}
	return one, compiled.MatchString(one.value()), nil
}

func hasPathPrefix(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// mirrorRouteOf is the mirror route of a step for which an unnamed rule was created: the rule mirrors to the canary, and all its
// requests match the step. The share is not compared, because older definitions drop it, too.
func (e editor) mirrorRouteOf(rule map[string]any) (route string, managed bool) {
	mirrors := slices.ContainsFunc(traffic.Maps(rule["filters"]), func(filter map[string]any) bool {
		to, ok, _ := unstructured.NestedMap(filter, "requestMirror", "backendRef")
		return ok && isBackend(e.t, to, e.t.CanaryService)
	})
	if !mirrors || e.t.Rollout.Spec.Strategy.Canary == nil {
		return "", false
	}
	for _, step := range e.t.Rollout.Spec.Strategy.Canary.Steps {
		if step.SetMirrorRoute != nil && impliesMirror(alternatives(rule), traffic.MirrorRoute(*step.SetMirrorRoute)) {
			return step.SetMirrorRoute.Name, true
		}
	}
	return "", false
}

// impliesMirror reports whether every match has the conditions of a mirror route.
func impliesMirror(matches []map[string]any, route release.MirrorRoute) bool {
	return len(route.Match) > 0 && !slices.ContainsFunc(matches, func(match map[string]any) bool {
		return !slices.ContainsFunc(route.Match, func(m release.Match) bool {
			both, possible, err := intersect(match, m)
			same := runtime.DeepCopyJSON(match)
			sortHeaders(same)
			return err == nil && possible && reflect.DeepEqual(both, same)
		})
	})
}

// mirrorFields are the fields of a mirror route that are not copied from the rule of the user.
var mirrorFields = traffic.Fields{
	"matches": {Fields: matchFields},
	"filters": {
		Fields: traffic.Fields{"type": {}, "requestMirror": {Fields: traffic.Fields{"backendRef": {Fields: backendFields}, "percent": {}}}},
		Same:   sameFilter,
	},
}

// preserveMirror preserves, in an existing managed rule, fields that other tools added to the matches of a mirror route and, where the
// rule mirrors, to its filter, which is the last one.
func preserveMirror(created map[string]any, before []map[string]any, mirrors bool) {
	i := slices.IndexFunc(before, func(was map[string]any) bool { return was["name"] == created["name"] })
	if i < 0 {
		return
	}
	own := map[string]any{"matches": created["matches"]}
	filters := traffic.Maps(created["filters"])
	if mirrors {
		own["filters"] = []any{filters[len(filters)-1]}
	}
	merged := traffic.PreserveUnknownFields(own, map[string]any{"matches": before[i]["matches"], "filters": before[i]["filters"]}, mirrorFields)
	created["matches"] = merged["matches"]
	if mirrors {
		filters[len(filters)-1] = traffic.Maps(merged["filters"])[0]
		created["filters"] = traffic.List(filters)
	}
}
