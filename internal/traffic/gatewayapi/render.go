package gatewayapi

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The fields of the spec that Serin writes. Other tools may write names of rules, retries and all other fields.
var (
	backendFields  = traffic.WholeFields("group", "kind", "name", "namespace", "port")
	headerFields   = traffic.WholeFields("type", "name", "value")
	modifierFields = traffic.Fields{
		"add": {Fields: headerFields, Same: traffic.SameField("name")}, "set": {Fields: headerFields, Same: traffic.SameField("name")}, "remove": {},
	}
	filters = traffic.Field{
		Fields: traffic.Fields{
			"type":                   {},
			"requestHeaderModifier":  {Fields: modifierFields},
			"responseHeaderModifier": {Fields: modifierFields},
			"urlRewrite": {Fields: traffic.Fields{
				"hostname": {}, "path": {Fields: traffic.WholeFields("type", "replaceFullPath", "replacePrefixMatch")},
			}},
			"requestMirror": {Fields: traffic.Fields{"backendRef": {Fields: backendFields}}},
			"cors":          {Fields: traffic.FieldsOf[gatewayv1.HTTPCORSFilter]()},
		},
		Same: sameFilter,
	}
	matchFields = traffic.Fields{
		"path": {Fields: traffic.WholeFields("type", "value")}, "method": {},
		"headers":     {Fields: headerFields, Same: traffic.SameField("name")},
		"queryParams": {Fields: headerFields, Same: traffic.SameField("name")},
	}
	grpcMatchFields = traffic.Fields{
		"method":  {Fields: traffic.WholeFields("type", "service", "method")},
		"headers": {Fields: headerFields, Same: traffic.SameField("name")},
	}
)

// specFields are the fields of the spec that Serin writes. Rules are identified by their role.
func (r Renderer) specFields(t traffic.Target, kind schema.GroupVersionKind) traffic.Fields {
	matches := matchFields
	if kind == grpcKind {
		matches = grpcMatchFields
	}
	rules := traffic.Fields{
		"matches":     {Fields: matches},
		"filters":     filters,
		"backendRefs": {Fields: backendFields.With(traffic.Fields{"weight": {}, "filters": filters}), Same: traffic.SameField("name")},
	}
	if r.version == V1 && kind.Kind == httpKind.Kind {
		rules["timeouts"] = traffic.Field{Fields: traffic.WholeFields("request", "backendRequest")}
	}
	return traffic.Fields{
		"parentRefs": {Fields: backendFields.With(traffic.WholeFields("sectionName"))},
		"hostnames":  {},
		"rules":      {Fields: rules, Same: func(was, now map[string]any) bool { return role(t, was) == role(t, now) }},
	}
}

// sameFilter identifies filters by their type. A rule has at most one of each type, except for mirrors.
func sameFilter(was, now map[string]any) bool {
	to := func(filter map[string]any) string {
		name, _, _ := unstructured.NestedString(filter, "requestMirror", "backendRef", "name")
		return name
	}
	return was["type"] == now["type"] && to(was) == to(now)
}

const (
	serviceKind  = "Service"
	cookieHeader = "Cookie"
)

// renderSpec writes the route into the spec. It sets every default of the API explicitly: a route that an API server has
// defaulted is then equal to the desired one, and is not written again.
func (r Renderer) renderSpec(t traffic.Target, route release.Route, kind schema.GroupVersionKind, spec map[string]any) error {
	service := t.Canary.Spec.Service
	rules, err := r.routeValues(t, route, kind)
	if err != nil {
		return err
	}
	values, err := traffic.Value(rules)
	if err != nil {
		return err
	}
	want := map[string]any{"rules": values}
	if want["parentRefs"], err = traffic.Value(parents(t)); err != nil {
		return err
	}
	if len(service.Hosts) > 0 {
		if want["hostnames"], err = traffic.Value(service.Hosts); err != nil {
			return err
		}
	}
	traffic.WriteFields(spec, want, r.specFields(t, kind))
	return nil
}

func parents(t traffic.Target) []gatewayv1.ParentReference {
	out := make([]gatewayv1.ParentReference, 0, len(t.Canary.Spec.Service.GatewayRefs))
	for _, ref := range t.Canary.Spec.Service.GatewayRefs {
		out = append(out, gatewayv1.ParentReference{
			Group:       pointer[gatewayv1.Group](ref.Group, gatewayv1.GroupName),
			Kind:        pointer[gatewayv1.Kind](ref.Kind, "Gateway"),
			Namespace:   converted[gatewayv1.Namespace](ref.Namespace),
			Name:        gatewayv1.ObjectName(ref.Name),
			SectionName: converted[gatewayv1.SectionName](ref.SectionName),
			Port:        ref.Port,
		})
	}
	return out
}

// renderRules renders the rules, the more specific ones first. According to the API, a rule that replaces a prefix may have
// only one match; in that case each match gets a separate rule.
func (r Renderer) renderRules(t traffic.Target, route release.Route) ([]gatewayv1.HTTPRouteRule, error) {
	rules, err := r.rulesByRole(t, route)
	if rewrite := t.Canary.Spec.Service.Rewrite; err != nil || rewrite == nil || rewrite.Type != string(gatewayv1.PrefixMatchHTTPPathModifier) {
		return rules, err
	}
	var out []gatewayv1.HTTPRouteRule
	for _, rule := range rules {
		for _, match := range rule.Matches {
			single := rule
			single.Matches = []gatewayv1.HTTPRouteMatch{match}
			out = append(out, single)
		}
	}
	return out, nil
}

func (r Renderer) rulesByRole(t traffic.Target, route release.Route) ([]gatewayv1.HTTPRouteRule, error) {
	base, err := r.baseRule(t)
	if err != nil {
		return nil, err
	}
	weighted := base
	weighted.BackendRefs = split(t, route.Canary)
	if route.Mirror.Enabled {
		weighted.Filters = append(slices.Clone(base.Filters), mirror(t))
	}

	switch {
	case len(route.Matches) > 0: // an A/B test has precedence over affinity
		if weighted.Matches, err = cross(t, route.Matches); err != nil {
			return nil, err
		}
		rest := base
		rest.BackendRefs = []gatewayv1.HTTPBackendRef{backend(t, t.StableService, release.Total)}
		return []gatewayv1.HTTPRouteRule{weighted, rest}, nil
	case route.Sticky != nil:
		return stickyRules(t, route, base, weighted)
	default:
		return []gatewayv1.HTTPRouteRule{weighted}, nil
	}
}

// stickyRules inserts rules for clients with a cookie before the weighted rule. Without traffic to the canary, the cookie is
// expired for clients that still have it.
func stickyRules(t traffic.Target, route release.Route, base, weighted gatewayv1.HTTPRouteRule) ([]gatewayv1.HTTPRouteRule, error) {
	cookieRule := func(c release.Cookie, canary int) (gatewayv1.HTTPRouteRule, error) {
		rule := base
		rule.BackendRefs = split(t, canary)
		var err error
		rule.Matches, err = cross(t, []release.Match{{
			Headers: map[string]release.StringMatch{cookieHeader: {Regex: traffic.CookiePattern(c)}},
		}})
		return rule, err
	}
	if route.Canary == 0 {
		c, ok := traffic.ExpiredCookie(route.Sticky)
		if !ok {
			return []gatewayv1.HTTPRouteRule{weighted}, nil
		}
		rule, err := cookieRule(c, 0)
		rule.Filters = withSetCookie(base.Filters, c)
		return []gatewayv1.HTTPRouteRule{rule, weighted}, err
	}

	var rules []gatewayv1.HTTPRouteRule
	if c := route.Sticky.Canary; c.Name != "" {
		rule, err := cookieRule(c, release.Total)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
		weighted.BackendRefs[1].Filters = withSetCookie(nil, c)
	}
	if c := route.Sticky.Primary; c.Name != "" {
		rule, err := cookieRule(c, 0)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
		weighted.BackendRefs[0].Filters = withSetCookie(nil, c)
	}
	return append(rules, weighted), nil
}

// baseRule is the common part of all rules.
func (r Renderer) baseRule(t traffic.Target) (gatewayv1.HTTPRouteRule, error) {
	service := t.Canary.Spec.Service
	var rule gatewayv1.HTTPRouteRule
	var err error
	if rule.Matches, err = serviceMatches(t); err != nil {
		return rule, err
	}
	if rule.Filters, err = r.filters(t); err != nil {
		return rule, err
	}
	if r.version == V1 && (service.Timeout != "" || service.BackendTimeout != "") {
		rule.Timeouts = &gatewayv1.HTTPRouteTimeouts{}
		if rule.Timeouts.Request, err = duration("spec.service.timeout", service.Timeout); err != nil {
			return rule, err
		}
		rule.Timeouts.BackendRequest, err = duration("spec.service.backendTimeout", service.BackendTimeout)
	}
	return rule, err
}

// plainDuration matches durations in the format of the API.
var plainDuration = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

// duration returns the text itself if the API accepts it, or else an equal duration in its format, which has no fractions.
func duration(where, text string) (*gatewayv1.Duration, error) {
	if text == "" {
		return nil, nil
	}
	if plainDuration.MatchString(text) {
		return new(gatewayv1.Duration(text)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 99999*time.Second {
		return nil, traffic.Refuse(traffic.ErrInvalid, "%s is %q, which is not a duration of an HTTPRoute: write for example 15s", where, text)
	}
	return new(gatewayv1.Duration(fmt.Sprintf("%ds%dms", d/time.Second, d%time.Second/time.Millisecond))), nil
}

// split returns the backends of primary and canary, in this order.
func split(t traffic.Target, canary int) []gatewayv1.HTTPBackendRef {
	return []gatewayv1.HTTPBackendRef{backend(t, t.StableService, release.Total-canary), backend(t, t.CanaryService, canary)}
}

func backend(t traffic.Target, name string, weight int) gatewayv1.HTTPBackendRef {
	w := int32(weight) // #nosec G115 -- 0 to 100
	return gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{BackendObjectReference: address(t, name), Weight: &w}}
}

func address(t traffic.Target, name string) gatewayv1.BackendObjectReference {
	group, kind := gatewayv1.Group(""), gatewayv1.Kind(serviceKind)
	port := gatewayv1.PortNumber(t.Canary.Spec.Service.Port)
	return gatewayv1.BackendObjectReference{Group: &group, Kind: &kind, Name: gatewayv1.ObjectName(name), Port: &port}
}

// role distinguishes the rules of a release: the pattern of the cookie rules, weighted, or primary; empty for a rule that
// does not belong to the release.
func role(t traffic.Target, rule map[string]any) string {
	toCanary, toPrimary := false, false
	for _, ref := range traffic.Maps(rule["backendRefs"]) {
		toCanary = toCanary || isService(ref, t.CanaryService)
		toPrimary = toPrimary || isService(ref, t.StableService)
	}
	if !toCanary && !toPrimary {
		return ""
	}
	for _, m := range traffic.Maps(rule["matches"]) {
		for _, header := range traffic.Maps(m["headers"]) {
			if pattern, _, _ := unstructured.NestedString(header, "value"); header["name"] == cookieHeader {
				return "cookie " + pattern
			}
		}
	}
	if toCanary {
		return "weighted"
	}
	return "primary"
}

// isService reports whether a reference names the Service of that name; group and kind may be omitted.
func isService(ref map[string]any, name string) bool {
	group, _ := ref["group"].(string)
	kind, given := ref["kind"].(string)
	return ref["name"] == name && group == "" && (!given || kind == serviceKind)
}

// isBackend reports whether a reference names the Service of that name in the namespace of the release. One without a namespace
// does, whatever the namespace of the route.
func isBackend(t traffic.Target, ref map[string]any, name string) bool {
	namespace, _ := ref["namespace"].(string)
	return isService(ref, name) && (namespace == "" || namespace == t.Namespace)
}

// pointer returns the given text, or the default of the API.
func pointer[T ~string](given *string, otherwise T) *T {
	if given == nil {
		return &otherwise
	}
	return converted[T](given)
}

func converted[T ~string](given *string) *T {
	if given == nil {
		return nil
	}
	out := T(*given)
	return &out
}

// mirrorFilter returns the filter of one entry of spec.service.mirror.
func mirrorFilter(ref flaggerv1.MirrorBackendReference) gatewayv1.HTTPRouteFilter {
	return requestMirror(gatewayv1.BackendObjectReference{
		Group:     pointer[gatewayv1.Group](ref.Group, ""),
		Kind:      pointer[gatewayv1.Kind](ref.Kind, serviceKind),
		Namespace: converted[gatewayv1.Namespace](ref.Namespace),
		Name:      gatewayv1.ObjectName(ref.Name),
		Port:      ref.Port,
	})
}

func mirror(t traffic.Target) gatewayv1.HTTPRouteFilter {
	return requestMirror(address(t, t.CanaryService))
}

func requestMirror(to gatewayv1.BackendObjectReference) gatewayv1.HTTPRouteFilter {
	return gatewayv1.HTTPRouteFilter{
		Type:          gatewayv1.HTTPRouteFilterRequestMirror,
		RequestMirror: &gatewayv1.HTTPRequestMirrorFilter{BackendRef: to},
	}
}
