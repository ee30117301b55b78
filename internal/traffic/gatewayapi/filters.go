package gatewayapi

import (
	"maps"
	"slices"
	"strings"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// defaultCORSMaxAge is the default of the API, in seconds.
const defaultCORSMaxAge = 5

// filters are the filters of spec.service, in Flagger's order.
func (r Renderer) filters(t traffic.Target) ([]gatewayv1.HTTPRouteFilter, error) {
	service := t.Canary.Spec.Service
	var out []gatewayv1.HTTPRouteFilter
	if service.Headers != nil && service.Headers.Request != nil {
		out = append(out, gatewayv1.HTTPRouteFilter{
			Type:                  gatewayv1.HTTPRouteFilterRequestHeaderModifier,
			RequestHeaderModifier: headerFilter(service.Headers.Request),
		})
	}
	if service.Headers != nil && service.Headers.Response != nil {
		out = append(out, gatewayv1.HTTPRouteFilter{
			Type:                   gatewayv1.HTTPRouteFilterResponseHeaderModifier,
			ResponseHeaderModifier: headerFilter(service.Headers.Response),
		})
	}
	if service.Rewrite != nil {
		out = append(out, rewriteFilter(service.Rewrite))
	}
	for i, m := range service.Mirror {
		if m.BackendRef == nil {
			return nil, traffic.Refuse(traffic.ErrInvalid, "spec.service.mirror[%d] names no backend: add backendRef, or remove the entry", i)
		}
		out = append(out, mirrorFilter(*m.BackendRef))
	}
	if service.CorsPolicy != nil && r.version == V1 {
		filter, err := corsFilter(service.CorsPolicy)
		if err != nil {
			return nil, err
		}
		out = append(out, filter)
	}
	return out, nil
}

func headerFilter(operations *flaggerv1.HeaderOperations) *gatewayv1.HTTPHeaderFilter {
	return &gatewayv1.HTTPHeaderFilter{
		Add:    headerList(operations.Add),
		Set:    headerList(operations.Set),
		Remove: slices.Clone(operations.Remove),
	}
}

func headerList(headers map[string]string) []gatewayv1.HTTPHeader {
	var out []gatewayv1.HTTPHeader
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		out = append(out, gatewayv1.HTTPHeader{Name: gatewayv1.HTTPHeaderName(name), Value: headers[name]})
	}
	return out
}

func rewriteFilter(rewrite *flaggerv1.HTTPRewrite) gatewayv1.HTTPRouteFilter {
	out := &gatewayv1.HTTPURLRewriteFilter{}
	if rewrite.Authority != "" {
		hostname := gatewayv1.PreciseHostname(rewrite.Authority)
		out.Hostname = &hostname
	}
	switch {
	case rewrite.URI == "":
	case rewrite.Type == string(gatewayv1.PrefixMatchHTTPPathModifier):
		out.Path = &gatewayv1.HTTPPathModifier{Type: gatewayv1.PrefixMatchHTTPPathModifier, ReplacePrefixMatch: &rewrite.URI}
	default:
		out.Path = &gatewayv1.HTTPPathModifier{Type: gatewayv1.FullPathHTTPPathModifier, ReplaceFullPath: &rewrite.URI}
	}
	return gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterURLRewrite, URLRewrite: out}
}

// corsFilter uses exact origins of both fields; patterns are for Istio only.
func corsFilter(policy *flaggerv1.CorsPolicy) (gatewayv1.HTTPRouteFilter, error) {
	out := &gatewayv1.HTTPCORSFilter{MaxAge: defaultCORSMaxAge}
	for _, origin := range policy.AllowOrigin {
		out.AllowOrigins = append(out.AllowOrigins, gatewayv1.CORSOrigin(origin))
	}
	for _, origin := range policy.AllowOrigins {
		if origin.Exact != "" && !slices.Contains(out.AllowOrigins, gatewayv1.CORSOrigin(origin.Exact)) {
			out.AllowOrigins = append(out.AllowOrigins, gatewayv1.CORSOrigin(origin.Exact))
		}
	}
	for _, method := range policy.AllowMethods {
		out.AllowMethods = append(out.AllowMethods, gatewayv1.HTTPMethodWithWildcard(method))
	}
	for _, header := range policy.AllowHeaders {
		out.AllowHeaders = append(out.AllowHeaders, gatewayv1.HTTPHeaderName(header))
	}
	for _, header := range policy.ExposeHeaders {
		out.ExposeHeaders = append(out.ExposeHeaders, gatewayv1.HTTPHeaderName(header))
	}
	if policy.AllowCredentials != nil && *policy.AllowCredentials {
		out.AllowCredentials = policy.AllowCredentials
	}
	if policy.MaxAge != "" {
		age, err := time.ParseDuration(policy.MaxAge)
		if err != nil || age < time.Second {
			return gatewayv1.HTTPRouteFilter{}, traffic.Refuse(traffic.ErrInvalid,
				"spec.service.corsPolicy.maxAge is %q, which is not a duration of at least 1s: write for example 24h", policy.MaxAge)
		}
		out.MaxAge = int32(min(age/time.Second, 1<<31-1)) // #nosec G115 -- bounded
	}
	return gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterCORS, CORS: out}, nil
}

// withSetCookie adds the cookie to the response headers. A rule may have only one filter that modifies them, so the cookie is
// added to an existing one. The filters themselves are not modified, because rules share them.
func withSetCookie(filters []gatewayv1.HTTPRouteFilter, c release.Cookie) []gatewayv1.HTTPRouteFilter {
	const name = "Set-Cookie"
	header := gatewayv1.HTTPHeader{Name: name, Value: traffic.SetCookie(c)}
	out := slices.Clone(filters)
	i := slices.IndexFunc(out, func(f gatewayv1.HTTPRouteFilter) bool { return f.ResponseHeaderModifier != nil })
	if i < 0 {
		return append(out, gatewayv1.HTTPRouteFilter{
			Type:                   gatewayv1.HTTPRouteFilterResponseHeaderModifier,
			ResponseHeaderModifier: &gatewayv1.HTTPHeaderFilter{Add: []gatewayv1.HTTPHeader{header}},
		})
	}
	modifier := out[i].ResponseHeaderModifier.DeepCopy()
	modifier.Add = slices.DeleteFunc(modifier.Add, func(h gatewayv1.HTTPHeader) bool {
		return strings.EqualFold(string(h.Name), name) // the API allows each name once
	})
	modifier.Add = append(modifier.Add, header)
	out[i].ResponseHeaderModifier = modifier
	return out
}
