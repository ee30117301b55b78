package gatewayapi

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// kindOf is the kind of a Canary's route: an HTTPRoute, unless an annotation selects another one. Errors: ErrInvalid.
func (r Renderer) kindOf(t traffic.Target) (schema.GroupVersionKind, error) {
	http := schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: string(r.version), Kind: httpKind.Kind}
	kind := t.Canary.Annotations[traffic.RouteKindAnnotation]
	for _, other := range []schema.GroupVersionKind{grpcKind, tcpKind} {
		switch {
		case kind != other.Kind:
		case r.version != V1:
			return http, traffic.Refuse(traffic.ErrInvalid, "annotation %s is %s, which provider %s does not support: use provider gatewayapi:v1",
				traffic.RouteKindAnnotation, kind, t.Provider)
		default:
			return other, nil
		}
	}
	if kind != "" && kind != http.Kind {
		return http, traffic.Refuse(traffic.ErrInvalid, "annotation %s is %q, which is not a supported kind: use %s, %s or %s",
			traffic.RouteKindAnnotation, kind, httpKind.Kind, grpcKind.Kind, tcpKind.Kind)
	}
	return http, nil
}

// routeValues are the rules of a route of that kind, as typed values of its API.
func (r Renderer) routeValues(t traffic.Target, route release.Route, kind schema.GroupVersionKind) (any, error) {
	if field := unsupportedServiceField(t.Canary.Spec.Service, kind); field != "" {
		return nil, traffic.Refuse(traffic.ErrUnsupported, "spec.service.%s: a %s does not support it: remove %s, or the annotation %s",
			field, kind.Kind, field, traffic.RouteKindAnnotation)
	}
	switch kind {
	case grpcKind:
		return r.grpcRules(t, route)
	case tcpKind:
		return tcpRules(t, route), nil
	default:
		return r.renderRules(t, route)
	}
}

// unsupportedServiceField is a field that an HTTPRoute supports, and a route of this kind does not; empty if there is none.
func unsupportedServiceField(s flaggerv1.CanaryService, kind schema.GroupVersionKind) string {
	tcp := kind == tcpKind
	for _, field := range []struct {
		name        string
		unsupported bool
	}{
		{"rewrite", s.Rewrite != nil},
		{"corsPolicy", s.CorsPolicy != nil},
		{"timeout", s.Timeout != ""},
		{"backendTimeout", s.BackendTimeout != ""},
		{"hosts", tcp && len(s.Hosts) > 0},
		{"match", tcp && len(s.Match) > 0},
		{"headers", tcp && s.Headers != nil},
		{"mirror", tcp && len(s.Mirror) > 0},
	} {
		if field.unsupported && kind.Kind != httpKind.Kind {
			return field.name
		}
	}
	return ""
}

// grpcRules renders the rules of a GRPCRoute, the more specific one first.
func (r Renderer) grpcRules(t traffic.Target, route release.Route) ([]gatewayv1.GRPCRouteRule, error) {
	matches, err := grpcServiceMatches(t)
	if err != nil {
		return nil, err
	}
	filters, err := r.filters(t)
	if err != nil {
		return nil, err
	}
	rest := gatewayv1.GRPCRouteRule{Matches: matches, Filters: grpcFilters(filters)}
	if route.Mirror.Enabled {
		filters = append(filters, mirror(t))
	}
	weighted := gatewayv1.GRPCRouteRule{Matches: matches, Filters: grpcFilters(filters), BackendRefs: grpcBackends(split(t, route.Canary))}
	if len(route.Matches) == 0 {
		return []gatewayv1.GRPCRouteRule{weighted}, nil
	}
	if len(matches) == 0 {
		matches = []gatewayv1.GRPCRouteMatch{{}}
	}
	weighted.Matches = nil
	for _, m := range route.Matches {
		headers, err := grpcHeaders("spec.analysis.match", m.Headers)
		if err != nil {
			return nil, err
		}
		for _, match := range matches {
			if len(headers) > 0 {
				match.Headers = headers
			}
			weighted.Matches = append(weighted.Matches, match)
		}
	}
	rest.BackendRefs = grpcBackends([]gatewayv1.HTTPBackendRef{backend(t, t.StableService, release.Total)})
	return []gatewayv1.GRPCRouteRule{weighted, rest}, nil
}

// grpcServiceMatches are the matches of spec.service.match; none: all requests.
func grpcServiceMatches(t traffic.Target) ([]gatewayv1.GRPCRouteMatch, error) {
	var out []gatewayv1.GRPCRouteMatch
	for i, m := range t.Canary.Spec.Service.Match {
		where := fmt.Sprintf("spec.service.match[%d]", i)
		field := unsupportedField(m)
		switch {
		case field != "":
		case m.Method != nil:
			field = "method"
		case len(m.QueryParams) > 0:
			field = "queryParams"
		}
		if field != "" {
			return nil, traffic.Refuse(traffic.ErrUnsupported,
				"%s.%s: a GRPCRoute matches requests by uri and headers only, and would serve more requests than are meant: remove %s", where, field, field)
		}
		method, err := grpcMethod(where, m.URI)
		if err != nil {
			return nil, err
		}
		headers, err := grpcHeaders(where, stringMatches(m.Headers))
		if err != nil {
			return nil, err
		}
		out = append(out, gatewayv1.GRPCRouteMatch{Method: method, Headers: headers})
	}
	return out, nil
}

// grpcMethod converts the path of a gRPC request, which is /SERVICE/METHOD; nil: all requests.
func grpcMethod(where string, uri *flaggerv1.StringMatch) (*gatewayv1.GRPCMethodMatch, error) {
	if uri == nil || *uri == (flaggerv1.StringMatch{Prefix: defaultPath}) {
		return nil, nil
	}
	out := &gatewayv1.GRPCMethodMatch{Type: new(gatewayv1.GRPCMethodMatchExact)}
	service, method, _ := strings.Cut(strings.TrimPrefix(uri.Exact+uri.Prefix, "/"), "/")
	switch {
	case uri.Regex == "" && uri.Exact != "" && service != "" && method != "":
		out.Service, out.Method = &service, &method
	case uri.Regex == "" && uri.Exact == "" && service != "" && method == "":
		out.Service = &service
	default:
		return nil, traffic.Refuse(traffic.ErrUnsupported,
			"%s.uri: a GRPCRoute matches a service or a method: write prefix /SERVICE/ or exact /SERVICE/METHOD", where)
	}
	return out, nil
}

func grpcHeaders(where string, headers map[string]release.StringMatch) ([]gatewayv1.GRPCHeaderMatch, error) {
	matches, err := headerMatches(where, headers)
	var out []gatewayv1.GRPCHeaderMatch
	for _, m := range matches {
		kind := gatewayv1.GRPCHeaderMatchType(*m.Type)
		out = append(out, gatewayv1.GRPCHeaderMatch{Type: &kind, Name: gatewayv1.GRPCHeaderName(m.Name), Value: m.Value})
	}
	return out, err
}

// grpcFilters converts filters: those that a GRPCRoute supports have the same form.
func grpcFilters(filters []gatewayv1.HTTPRouteFilter) []gatewayv1.GRPCRouteFilter {
	var out []gatewayv1.GRPCRouteFilter
	for _, f := range filters {
		out = append(out, gatewayv1.GRPCRouteFilter{
			Type: gatewayv1.GRPCRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier,
			ResponseHeaderModifier: f.ResponseHeaderModifier, RequestMirror: f.RequestMirror,
		})
	}
	return out
}

func grpcBackends(backends []gatewayv1.HTTPBackendRef) []gatewayv1.GRPCBackendRef {
	out := make([]gatewayv1.GRPCBackendRef, len(backends))
	for i, b := range backends {
		out[i] = gatewayv1.GRPCBackendRef{BackendRef: b.BackendRef}
	}
	return out
}

// tcpRule is the part of a rule of a TCPRoute that is written; its Go types are experimental.
type tcpRule struct {
	BackendRefs []gatewayv1.BackendRef `json:"backendRefs"`
}

func tcpRules(t traffic.Target, route release.Route) []tcpRule {
	var rule tcpRule
	for _, b := range split(t, route.Canary) {
		rule.BackendRefs = append(rule.BackendRefs, b.BackendRef)
	}
	return []tcpRule{rule}
}
