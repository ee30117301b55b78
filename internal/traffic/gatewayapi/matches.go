package gatewayapi

import (
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// serviceMatches are the matches of spec.service.match; if there are none, all paths.
func serviceMatches(t traffic.Target) ([]gatewayv1.HTTPRouteMatch, error) {
	const where = "spec.service.match"
	if len(t.Canary.Spec.Service.Match) == 0 {
		return []gatewayv1.HTTPRouteMatch{{Path: pathMatch(nil)}}, nil
	}
	var out []gatewayv1.HTTPRouteMatch
	for i, m := range t.Canary.Spec.Service.Match {
		if field := unsupportedField(m); field != "" {
			return nil, traffic.Refuse(traffic.ErrUnsupported,
				"%s[%d].%s: an HTTPRoute matches requests by path, method, headers and query parameters only, and would serve more requests "+
					"than are meant: remove %s, or choose another provider", where, i, field, field)
		}
		match := gatewayv1.HTTPRouteMatch{Path: pathMatch(m.URI)}
		if m.Method != nil {
			if m.Method.Exact == "" {
				return nil, traffic.Refuse(traffic.ErrUnsupported,
					"%s: an HTTPRoute matches a method by exact only: write exact, or leave it out", where)
			}
			method := gatewayv1.HTTPMethod(m.Method.Exact)
			match.Method = &method
		}
		var err error
		if match.Headers, err = headerMatches(where, stringMatches(m.Headers)); err != nil {
			return nil, err
		}
		if match.QueryParams, err = queryMatches(where, stringMatches(m.QueryParams)); err != nil {
			return nil, err
		}
		out = append(out, match)
	}
	return out, nil
}

// unsupportedField is the first field of a match that an HTTPRoute does not support; empty if there is none. The name does
// not affect matching.
func unsupportedField(m flaggerv1.HTTPMatchRequest) string {
	switch {
	case m.Scheme != nil:
		return "scheme"
	case m.Authority != nil:
		return "authority"
	case len(m.WithoutHeaders) > 0:
		return "withoutHeaders"
	case m.Port != 0:
		return "port"
	case len(m.Gateways) > 0:
		return "gateways"
	case len(m.SourceLabels) > 0:
		return "sourceLabels"
	case m.SourceNamespace != "":
		return "sourceNamespace"
	case m.IgnoreURICase:
		return "ignoreUriCase"
	default:
		return ""
	}
}

// cross combines every match of the analysis with every match of the service, in this order. Headers and query parameters of
// the analysis replace those of the service.
func cross(t traffic.Target, matches []release.Match) ([]gatewayv1.HTTPRouteMatch, error) {
	const where = "spec.analysis.match"
	service, err := serviceMatches(t)
	if err != nil {
		return nil, err
	}
	var out []gatewayv1.HTTPRouteMatch
	for _, m := range matches {
		headers, err := headerMatches(where, m.Headers)
		if err != nil {
			return nil, err
		}
		params, err := queryMatches(where, m.QueryParams)
		if err != nil {
			return nil, err
		}
		for _, pair := range service {
			if len(headers) > 0 {
				pair.Headers = headers
			}
			if len(params) > 0 {
				pair.QueryParams = params
			}
			out = append(out, pair)
		}
	}
	return out, nil
}

// pathMatch uses the first of regex, exact and prefix that is set.
func pathMatch(uri *flaggerv1.StringMatch) *gatewayv1.HTTPPathMatch {
	kind, value := gatewayv1.PathMatchPathPrefix, "/"
	switch {
	case uri == nil:
	case uri.Regex != "":
		kind, value = gatewayv1.PathMatchRegularExpression, uri.Regex
	case uri.Exact != "":
		kind, value = gatewayv1.PathMatchExact, uri.Exact
	case uri.Prefix != "":
		value = uri.Prefix
	}
	return &gatewayv1.HTTPPathMatch{Type: &kind, Value: &value}
}

// headerMatches are sorted by name, so that the result does not depend on the order of the map.
func headerMatches(where string, headers map[string]release.StringMatch) ([]gatewayv1.HTTPHeaderMatch, error) {
	var out []gatewayv1.HTTPHeaderMatch
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		kind, value, err := exactOrRegex[gatewayv1.HeaderMatchType](where, "header", name, headers[name])
		if err != nil {
			return nil, err
		}
		out = append(out, gatewayv1.HTTPHeaderMatch{Type: &kind, Name: gatewayv1.HTTPHeaderName(name), Value: value})
	}
	return out, nil
}

func queryMatches(where string, params map[string]release.StringMatch) ([]gatewayv1.HTTPQueryParamMatch, error) {
	var out []gatewayv1.HTTPQueryParamMatch
	for _, name := range slices.Sorted(maps.Keys(params)) {
		kind, value, err := exactOrRegex[gatewayv1.QueryParamMatchType](where, "query parameter", name, params[name])
		if err != nil {
			return nil, err
		}
		out = append(out, gatewayv1.HTTPQueryParamMatch{Type: &kind, Name: gatewayv1.HTTPHeaderName(name), Value: value})
	}
	return out, nil
}

// exactOrRegex returns the type and the value of a match. The two kinds of match have separate types with the same values.
func exactOrRegex[T ~string](where, what, name string, m release.StringMatch) (kind T, value string, err error) {
	switch {
	case m.Exact != "":
		return T(gatewayv1.HeaderMatchExact), m.Exact, nil
	case m.Regex != "":
		return T(gatewayv1.HeaderMatchRegularExpression), m.Regex, nil
	default:
		return "", "", traffic.Refuse(traffic.ErrUnsupported,
			"%s: an HTTPRoute matches %s %s by exact or regex only: write one of these", where, what, name)
	}
}

func stringMatches(in map[string]flaggerv1.StringMatch) map[string]release.StringMatch {
	out := make(map[string]release.StringMatch, len(in))
	for name, m := range in {
		out[name] = release.StringMatch{Exact: m.Exact, Prefix: m.Prefix, Regex: m.Regex}
	}
	return out
}
