package istio

import (
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The fields of the specs that Serin writes. Other tools may write subsets, exportTo and all other fields.
var (
	destinationRuleFields = traffic.WholeFields("host", "trafficPolicy")

	addressFields = traffic.Fields{"host": {}, "port": {Fields: traffic.WholeFields("number")}}
	headerFields  = traffic.FieldsOf[flaggerv1.Headers]()
)

// virtualServiceFields are the fields that Serin writes. Rules are identified by their role, and their destinations by the
// host.
func virtualServiceFields(t traffic.Target) traffic.Fields {
	rules := traffic.Field{
		Fields: traffic.Fields{
			"match":      {Fields: traffic.FieldsOf[flaggerv1.HTTPMatchRequest]()},
			"rewrite":    {Fields: traffic.FieldsOf[flaggerv1.HTTPRewrite]()},
			"timeout":    {},
			"retries":    {Fields: traffic.FieldsOf[flaggerv1.HTTPRetry]()},
			"corsPolicy": {Fields: traffic.FieldsOf[flaggerv1.CorsPolicy]()},
			"headers":    {Fields: headerFields},
			"route": {
				Fields: traffic.Fields{"destination": {Fields: addressFields}, "weight": {}, "headers": {Fields: headerFields}},
				Same:   func(was, now map[string]any) bool { return hostOf(was) == hostOf(now) },
			},
			"mirror":           {Fields: addressFields},
			"mirrorPercentage": {Fields: traffic.WholeFields("value")},
		},
		Same: func(was, now map[string]any) bool { return role(t, was) == role(t, now) },
	}
	return traffic.Fields{"hosts": {}, "gateways": {}, "http": rules, "tcp": rules}
}

func hostOf(destination map[string]any) string {
	host, _, _ := unstructured.NestedString(destination, "destination", "host")
	return host
}

// cookieHeader is the name of the header in the match of a session affinity rule. Istio ignores the case of names.
const cookieHeader = "Cookie"

func renderDestinationRule(t traffic.Target, existing traffic.Lookup) (*unstructured.Unstructured, error) {
	obj, err := existing.Adopt(t)
	if err != nil {
		return nil, err
	}
	want := map[string]any{"host": existing.Ref.Name}
	if policy := t.Canary.Spec.Service.TrafficPolicy; policy != nil {
		if want["trafficPolicy"], err = traffic.Value(policy); err != nil {
			return nil, err
		}
	}
	traffic.WriteFields(traffic.Spec(obj), want, destinationRuleFields)
	return obj, nil
}

func renderVirtualService(t traffic.Target, r release.Route, existing traffic.Lookup) (*unstructured.Unstructured, error) {
	service := t.Canary.Spec.Service
	if service.Delegation && len(service.Hosts)+len(service.Gateways) > 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid,
			"reconcileVirtualService failed: %s cannot have hosts and gateways when delegation enabled", existing.Ref)
	}
	obj, err := existing.Adopt(t)
	if err != nil {
		return nil, err
	}
	traffic.SetApexMetadata(t, obj)

	spec := traffic.Spec(obj)
	want := map[string]any{"hosts": []any{}}
	if !service.Delegation {
		want["hosts"] = hosts(t)
		want["gateways"] = gateways(t)
	}
	ours, other := "http", "tcp"
	if tcp(t) {
		ours, other = other, ours
	}
	rules, err := renderRules(t, r)
	if err != nil {
		return nil, err
	}
	want[ours] = traffic.List(rules)
	if existing := traffic.Maps(spec[other]); !slices.ContainsFunc(existing, func(rule map[string]any) bool { return role(t, rule) != "" }) {
		if value, ok := spec[other]; ok {
			want[other] = value // routes of the other protocol that do not belong to this release
		}
	}
	traffic.WriteFields(spec, want, virtualServiceFields(t))
	return obj, nil
}

func hosts(t traffic.Target) []any {
	out := []any{}
	for _, host := range t.Canary.Spec.Service.Hosts {
		out = append(out, host)
	}
	if !slices.Contains(out, any(t.Apex)) && !slices.Contains(out, any("*")) {
		out = append(out, t.Apex)
	}
	return out
}

func gateways(t traffic.Target) []any {
	out := []any{}
	for _, gateway := range t.Canary.Spec.Service.Gateways {
		out = append(out, gateway)
	}
	if len(out) == 0 {
		out = append(out, "mesh")
	}
	return out
}

// renderRules renders the rules; the first match is used.
func renderRules(t traffic.Target, r release.Route) ([]map[string]any, error) {
	if tcp(t) {
		return []map[string]any{tcpRule(t, r)}, nil
	}
	base, err := baseRule(t)
	if err != nil {
		return nil, err
	}
	weighted := maps.Clone(base)
	weighted["route"] = split(t, r.Canary)

	switch {
	case len(r.Matches) > 0: // an A/B test has precedence over affinity
		if weighted["match"], err = cross(t, r.Matches); err != nil {
			return nil, err
		}
		rest := maps.Clone(base)
		rest["route"] = []any{destination(t, t.StableService, release.Total)}
		return []map[string]any{weighted, rest}, nil
	case r.Sticky != nil:
		return stickyRules(t, r, base, weighted)
	}
	if r.Mirror.Enabled {
		mirror(t, r.Mirror, weighted)
	}
	return []map[string]any{weighted}, nil
}

// stickyRules inserts rules for clients with a cookie before the weighted rule. Without traffic to the canary, the cookie is
// expired for clients that still have it.
func stickyRules(t traffic.Target, r release.Route, base, weighted map[string]any) ([]map[string]any, error) {
	if r.Mirror.Enabled {
		mirror(t, r.Mirror, weighted)
	}
	var rules []map[string]any
	cookieRule := func(c release.Cookie, canary int) error {
		rule := maps.Clone(base)
		var err error
		rule["match"], err = cross(t, []release.Match{{
			Headers: map[string]release.StringMatch{cookieHeader: {Regex: traffic.CookiePattern(c)}},
		}})
		rule["route"] = split(t, canary)
		rules = append(rules, rule)
		return err
	}
	if r.Canary == 0 {
		if c, ok := traffic.ExpiredCookie(r.Sticky); ok {
			if err := cookieRule(c, 0); err != nil {
				return nil, err
			}
			rules[0]["headers"] = addSetCookie(rules[0]["headers"], c)
		}
		return append(rules, weighted), nil
	}

	route := traffic.Maps(weighted["route"])
	if c := r.Sticky.Canary; c.Name != "" {
		if err := cookieRule(c, release.Total); err != nil {
			return nil, err
		}
		route[1]["headers"] = addSetCookie(nil, c)
	}
	if c := r.Sticky.Primary; c.Name != "" {
		if err := cookieRule(c, 0); err != nil {
			return nil, err
		}
		route[0]["headers"] = addSetCookie(nil, c)
	}
	return append(rules, weighted), nil
}

// baseRule is the common part of all rules.
func baseRule(t traffic.Target) (map[string]any, error) {
	service := t.Canary.Spec.Service
	rule := map[string]any{}
	set := func(key string, v any) error {
		value, err := traffic.Value(v)
		if err == nil {
			rule[key] = value
		}
		return err
	}
	var err error
	try := func(given bool, key string, v any) {
		if given && err == nil {
			err = set(key, v)
		}
	}
	try(len(service.Match) > 0, "match", service.Match)
	if rewrite := service.Rewrite; rewrite != nil { // its type is for Gateway API
		try(true, "rewrite", flaggerv1.HTTPRewrite{URI: rewrite.URI, Authority: rewrite.Authority})
	}
	try(service.Timeout != "", "timeout", service.Timeout)
	try(service.Retries != nil, "retries", service.Retries)
	try(service.CorsPolicy != nil, "corsPolicy", service.CorsPolicy)
	try(service.Headers != nil, "headers", service.Headers)
	return rule, err
}

func tcpRule(t traffic.Target, r release.Route) map[string]any {
	rule := map[string]any{"route": split(t, r.Canary)}
	var ports []any
	for _, m := range t.Canary.Spec.Service.Match {
		if m.Port != 0 { // port 0 would match nothing
			ports = append(ports, map[string]any{"port": int64(m.Port)})
		}
	}
	if len(ports) > 0 {
		rule["match"] = ports
	}
	return rule
}

// split returns the destinations of primary and canary, in this order.
func split(t traffic.Target, canary int) []any {
	return []any{destination(t, t.StableService, release.Total-canary), destination(t, t.CanaryService, canary)}
}

func destination(t traffic.Target, host string, weight int) map[string]any {
	return map[string]any{"destination": address(t, host), "weight": int64(weight)}
}

// address names the port if a Service may have several ports and a gateway could not determine the right one.
func address(t traffic.Target, host string) map[string]any {
	out := map[string]any{"host": host}
	service := t.Canary.Spec.Service
	fromGateway := len(service.Gateways) > 0 && service.Gateways[0] != "mesh"
	if service.PortDiscovery && (fromGateway || service.Delegation) {
		out["port"] = map[string]any{"number": int64(service.Port)}
	}
	return out
}

func mirror(t traffic.Target, m release.Mirror, rule map[string]any) {
	rule["mirror"] = address(t, t.CanaryService)
	if m.Percent > 0 {
		rule["mirrorPercentage"] = map[string]any{"value": int64(m.Percent)}
	}
}

// addSetCookie adds the cookie to header operations. The operations themselves are not modified, because rules share them.
func addSetCookie(headers any, c release.Cookie) map[string]any {
	out := cloneMap(headers)
	response := cloneMap(out["response"])
	add := cloneMap(response["add"])
	add["Set-Cookie"] = traffic.SetCookie(c)
	response["add"] = add
	out["response"] = response
	return out
}

func cloneMap(v any) map[string]any {
	if m, ok := v.(map[string]any); ok {
		return maps.Clone(m)
	}
	return map[string]any{}
}

// cross combines every match of the analysis with every match of the service, in this order. Headers, query parameters and
// source labels of the analysis replace those of the service.
func cross(t traffic.Target, matches []release.Match) ([]any, error) {
	service := t.Canary.Spec.Service.Match
	if len(service) == 0 {
		service = []flaggerv1.HTTPMatchRequest{{}}
	}
	var out []flaggerv1.HTTPMatchRequest
	for _, m := range matches {
		for _, pair := range service {
			if len(m.Headers) > 0 {
				pair.Headers = stringMatches(m.Headers)
			}
			if len(m.QueryParams) > 0 {
				pair.QueryParams = stringMatches(m.QueryParams)
			}
			if len(m.SourceLabels) > 0 {
				pair.SourceLabels = m.SourceLabels
			}
			out = append(out, pair)
		}
	}
	value, err := traffic.Value(out)
	list, _ := value.([]any)
	return list, err
}

func stringMatches(in map[string]release.StringMatch) map[string]flaggerv1.StringMatch {
	out := make(map[string]flaggerv1.StringMatch, len(in))
	for name, m := range in {
		match := flaggerv1.StringMatch{Exact: m.Exact, Prefix: m.Prefix, Regex: m.Regex}
		if m.Suffix != "" { // Istio has no suffix, and a match without a condition would match always
			match.Regex = ".*" + regexp.QuoteMeta(m.Suffix)
		}
		out[name] = match
	}
	return out
}

// role distinguishes the rules of a release: the pattern of the cookie rules, weighted, or primary; empty for a rule that
// does not belong to the release.
func role(t traffic.Target, rule map[string]any) string {
	toCanary, toPrimary := false, false
	for _, d := range traffic.Maps(rule["route"]) {
		host, _, _ := unstructured.NestedString(d, "destination", "host")
		toCanary = toCanary || host == t.CanaryService
		toPrimary = toPrimary || host == t.StableService
	}
	if !toCanary && !toPrimary {
		return ""
	}
	for _, m := range traffic.Maps(rule["match"]) {
		if pattern, _, _ := unstructured.NestedString(m, "headers", cookieHeader, "regex"); pattern != "" {
			return "cookie " + pattern
		}
	}
	if toCanary {
		return "weighted"
	}
	return "primary"
}
