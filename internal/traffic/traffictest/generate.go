package traffictest

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// rollout is a Rollout with the two Services and managed routes.
func rollout() *argov1.Rollout {
	ro := &argov1.Rollout{}
	ro.Name, ro.Namespace, ro.UID = "cart", "web", "0d3a5fd7-uid"
	ro.Spec.Strategy.Canary = &argov1.CanaryStrategy{
		CanaryService: "cart-canary", StableService: "cart-stable",
		TrafficRouting: &argov1.RolloutTrafficRouting{ManagedRoutes: []argov1.ManagedRoute{{Name: "testers"}, {Name: "shadow"}, {Name: "beta"}}},
	}
	return ro
}

// canaries draws a Canary with fields that every provider with a mesh must support or ignore.
func canaries(t *rapid.T) *flaggerv1.Canary {
	c := &flaggerv1.Canary{}
	c.Name, c.Namespace, c.UID = "cart", "web", "0d3a5fd7-uid"
	c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	s := &c.Spec.Service
	s.Port = 80
	s.Name = rapid.SampledFrom([]string{"", "basket"}).Draw(t, "service name")
	s.Hosts = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"shop.example.com", "cart.example.com"}), 0, 2, rapid.ID[string]).Draw(t, "hosts")
	s.Match = rapid.SliceOfN(rapid.Custom(serviceMatch), 0, 2).Draw(t, "service match")
	s.PortDiscovery = rapid.Bool().Draw(t, "port discovery")
	s.Timeout = rapid.SampledFrom([]string{"", "5s"}).Draw(t, "timeout")
	if rapid.Bool().Draw(t, "rewrite") {
		s.Rewrite = &flaggerv1.HTTPRewrite{URI: "/", Authority: rapid.SampledFrom([]string{"", "cart.internal"}).Draw(t, "authority")}
	}
	if rapid.Bool().Draw(t, "retries") {
		s.Retries = &flaggerv1.HTTPRetry{Attempts: 3, PerTryTimeout: "1s", RetryOn: "5xx"}
	}
	if rapid.Bool().Draw(t, "headers") {
		s.Headers = &flaggerv1.Headers{
			Request:  rapid.Ptr(rapid.Custom(headerOperations), true).Draw(t, "request headers"),
			Response: rapid.Ptr(rapid.Custom(headerOperations), true).Draw(t, "response headers"),
		}
	}
	if rapid.Bool().Draw(t, "cors") {
		s.CorsPolicy = &flaggerv1.CorsPolicy{
			AllowOrigin: []string{"https://example.com"}, AllowMethods: []string{"GET", "POST"},
			MaxAge:           rapid.SampledFrom([]string{"", "24h", "90s"}).Draw(t, "cors max age"),
			AllowCredentials: rapid.Ptr(rapid.Bool(), true).Draw(t, "cors credentials"),
		}
	}
	if rapid.Bool().Draw(t, "apex") {
		s.Apex = &flaggerv1.CustomMetadata{
			Labels:      map[string]string{"tier": "apex"},
			Annotations: rapid.SampledFrom([]map[string]string{nil, {"note": "apex"}}).Draw(t, "apex annotations"),
		}
	}
	c.Spec.Analysis = rapid.Ptr(rapid.Custom(analyses), true).Draw(t, "analysis")
	return c
}

func serviceMatch(t *rapid.T) flaggerv1.HTTPMatchRequest {
	var m flaggerv1.HTTPMatchRequest
	m.URI = rapid.SampledFrom([]*flaggerv1.StringMatch{
		nil, {Prefix: "/cart"}, {Exact: "/basket"}, {Regex: "/[a-z]+"},
	}).Draw(t, "uri")
	m.Method = rapid.SampledFrom([]*flaggerv1.StringMatch{nil, {Exact: "GET"}}).Draw(t, "method")
	m.Headers = rapid.SampledFrom([]map[string]flaggerv1.StringMatch{
		nil, {"x-tenant": {Exact: "one"}}, {"x-tenant": {Regex: "o.*"}, "x-b": {Exact: "two"}, "x-a": {Exact: "one"}},
	}).Draw(t, "headers")
	m.QueryParams = rapid.SampledFrom([]map[string]flaggerv1.StringMatch{
		nil, {"v": {Exact: "1"}, "u": {Exact: "2"}},
	}).Draw(t, "query parameters")
	m.Port = rapid.SampledFrom([]int32{0, 8080}).Draw(t, "port")
	return m
}

func headerOperations(t *rapid.T) flaggerv1.HeaderOperations {
	headers := rapid.SampledFrom([]map[string]string{nil, {"x-c": "3", "x-a": "1", "x-b": "2"}, {"Set-Cookie": "theme=dark"}})
	return flaggerv1.HeaderOperations{
		Add:    headers.Draw(t, "add"),
		Set:    rapid.SampledFrom([]map[string]string{nil, {"x-served-by": "cart"}}).Draw(t, "set"),
		Remove: []string{"x-debug"},
	}
}

func analyses(t *rapid.T) flaggerv1.CanaryAnalysis {
	return flaggerv1.CanaryAnalysis{
		Interval:   "10s",
		Iterations: rapid.SampledFrom([]int{0, 3}).Draw(t, "iterations"),
	}
}

// route draws a route that the renderer declares to support, in a form that the provider accepts.
func (f *fixture) route(t *rapid.T, label string) release.Route {
	draw := f.rolloutRoute
	if f.target.Canary != nil {
		draw = f.canaryRoute
	}
	r := rapid.Custom(draw).Draw(t, label)
	if f.options.Route != nil {
		f.options.Route(t, &r)
	}
	return r
}

func (f *fixture) canaryRoute(t *rapid.T) release.Route {
	can := f.Features(f.target)
	iterations := 0
	if analysis := f.target.Canary.Spec.Analysis; analysis != nil {
		iterations = analysis.Iterations
	}
	var r release.Route
	if can.Weights {
		r.Canary = rapid.OneOf(rapid.SampledFrom([]int{0, 1, 50, 99, 100}), rapid.IntRange(0, 100)).Draw(t, "weight")
	} else {
		r.Canary = rapid.SampledFrom([]int{0, 100}).Draw(t, "weight")
	}
	if can.Matches && rapid.Bool().Draw(t, "A/B") {
		r.Matches = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) release.Match { return match(t, can) }), 1, 2).Draw(t, "matches")
		return r
	}
	if mirrors := iterations > 0 && can.Mirror || iterations == 0 && can.WeightedMirror; mirrors && rapid.Bool().Draw(t, "mirror") {
		r.Mirror.Enabled = true
		if can.MirrorPercent {
			r.Mirror.Percent = rapid.IntRange(0, 100).Draw(t, "mirror percent")
		}
	}
	if can.Sticky && rapid.Bool().Draw(t, "sticky") {
		r.Sticky = &release.Sticky{
			Canary:   rapid.OneOf(rapid.Just(release.Cookie{}), rapid.Custom(cookies)).Draw(t, "cookie"),
			Previous: rapid.OneOf(rapid.Just(release.Cookie{}), rapid.Custom(cookies)).Draw(t, "previous cookie"),
		}
		if can.PrimarySticky {
			r.Sticky.Primary = rapid.OneOf(rapid.Just(release.Cookie{}), rapid.Custom(cookies)).Draw(t, "primary cookie")
			r.Sticky.Primary.Name += "-primary"
			if r.Sticky.Primary.Value == "" {
				r.Sticky.Primary.Name = ""
			}
		}
	}
	return r
}

func (f *fixture) rolloutRoute(t *rapid.T) release.Route {
	can, r := f.Features(f.target), release.Route{Total: release.Total}
	if can.MaxWeight {
		r.Total = rapid.SampledFrom([]int{100, 1000}).Draw(t, "total")
	}
	rest := r.Total
	if can.Others {
		for _, name := range rapid.SampledFrom([][]string{nil, {"cart-exp"}, {"cart-exp", "another-exp"}}).Draw(t, "experiments") {
			d := release.Destination{Service: name, Weight: rapid.IntRange(1, 20).Draw(t, "weight of "+name), Revision: "58b1"}
			r.Others, rest = append(r.Others, d), rest-d.Weight
		}
	}
	r.Canary = rapid.OneOf(rapid.SampledFrom([]int{0, 1, rest}), rapid.IntRange(0, rest)).Draw(t, "weight")
	if can.HeaderRoutes {
		for _, name := range rapid.SampledFrom([][]string{nil, {"testers"}, {"beta"}, {"testers", "beta"}}).Draw(t, "header routes") {
			r.HeaderRoutes = append(r.HeaderRoutes, release.HeaderRoute{Name: name, Match: f.headers(t)})
		}
	}
	if can.MirrorRoutes && rapid.Bool().Draw(t, "mirrors") {
		r.MirrorRoutes = []release.MirrorRoute{{Name: "shadow", Percent: rapid.IntRange(1, 100).Draw(t, "percent"), Match: rapid.SampledFrom([][]release.Match{
			{{Method: &release.StringMatch{Exact: "GET"}, Path: &release.StringMatch{Prefix: "/cart"}}},
			{{Headers: map[string]release.StringMatch{"x-tester": {Regex: ".+"}}}, {Path: &release.StringMatch{Exact: "/"}}},
		}).Draw(t, "mirrored")}}
	}
	return r
}

func (f *fixture) headers(t *rapid.T) []release.Match {
	values := []release.StringMatch{{Exact: "1"}, {Exact: "yes"}}
	if !f.options.ExactOnly {
		values = append(values, release.StringMatch{Prefix: "in."}, release.StringMatch{Regex: "^[a-z]+$"})
	}
	var out []release.Match
	for _, name := range rapid.SampledFrom([][]string{{"x-tester"}, {"x-tester", "x-group"}, {"x-tester", "x-tester"}}).Draw(t, "names of headers") {
		out = append(out, release.Match{Headers: map[string]release.StringMatch{name: rapid.SampledFrom(values).Draw(t, "value of "+name)}})
	}
	return out
}

func match(t *rapid.T, f traffic.Features) release.Match {
	m := release.Match{Headers: rapid.SampledFrom([]map[string]release.StringMatch{
		{"x-canary": {Exact: "insider"}},
		{"cookie": {Regex: "^(.*?;)?(canary=always)(;.*)?$"}},
		{"x-b": {Exact: "two"}, "x-a": {Exact: "one"}},
	}).Draw(t, "match headers")}
	if f.QueryParams && rapid.Bool().Draw(t, "match query parameters") {
		m.QueryParams = map[string]release.StringMatch{"canary": {Exact: "yes"}}
	}
	if f.SourceLabels && rapid.Bool().Draw(t, "match source labels") {
		m.SourceLabels = map[string]string{"zone": "a"}
	}
	return m
}

func cookies(t *rapid.T) release.Cookie {
	return release.Cookie{
		Name:   rapid.SampledFrom([]string{"ship", "my.ship"}).Draw(t, "cookie name"),
		Value:  rapid.StringMatching("[a-zA-Z]{10}").Draw(t, "cookie value"),
		MaxAge: rapid.IntRange(1, 86400).Draw(t, "max age"),
		Path:   rapid.SampledFrom([]string{"", "/cart"}).Draw(t, "path"),
		Secure: rapid.Bool().Draw(t, "secure"),
	}
}

// garble puts a value of any kind somewhere into the spec or the annotations of an object, as a user without a schema might.
func garble(t *rapid.T, object map[string]any) {
	garbage := rapid.SampledFrom([]any{nil, "", "text", true, int64(-1), 0.5, map[string]any{}, map[string]any{"name": int64(1)}, []any{}, []any{nil, "text"}})
	if rapid.Bool().Draw(t, "an annotation") {
		metadata, _ := object["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			annotations[key] = rapid.SampledFrom([]string{"", "text", "-1", "{", "null", "[]", `{"a":"b"}`}).Draw(t, key)
		}
		return
	}
	at := object
	key := "spec"
	for {
		inside, ok := at[key].(map[string]any)
		if list, isList := at[key].([]any); isList && len(list) > 0 {
			i := rapid.IntRange(0, len(list)-1).Draw(t, "element")
			if inside, ok = list[i].(map[string]any); !ok || rapid.Bool().Draw(t, "garble element") {
				list[i] = garbage.Draw(t, "garbage")
				return
			}
		}
		if !ok || len(inside) == 0 || rapid.IntRange(0, 4).Draw(t, "here") == 0 {
			at[key] = garbage.Draw(t, "garbage")
			return
		}
		at, key = inside, rapid.SampledFrom(slices.Sorted(maps.Keys(inside))).Draw(t, "field")
	}
}
