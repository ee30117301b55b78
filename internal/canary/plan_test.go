package canary_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// spec is a valid Canary with a change.
func spec(change func(*flaggerv1.CanarySpec)) *flaggerv1.Canary {
	c := &flaggerv1.Canary{Spec: flaggerv1.CanarySpec{
		TargetRef: flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"},
		Analysis:  &flaggerv1.CanaryAnalysis{Interval: "1m", Threshold: 2, StepWeight: 20},
	}}
	c.Name, c.Namespace = "cart", "shop"
	change(&c.Spec)
	return c
}

func settings() canary.Settings {
	return canary.Settings{Provider: "istio", MinInterval: 10 * time.Second, Drain: 5 * time.Second, Features: testFeatures}
}

func TestPlanDefaults(t *testing.T) {
	seconds := int32(30)
	for _, test := range []struct {
		name   string
		change func(*flaggerv1.CanarySpec)
		get    func(canary.Plan) any
		want   any
	}{
		{"interval", func(s *flaggerv1.CanarySpec) {}, func(p canary.Plan) any { return p.Interval }, time.Minute},
		{"no interval", func(s *flaggerv1.CanarySpec) { s.Analysis.Interval = "" }, func(p canary.Plan) any { return p.Interval }, time.Minute},
		{"unreadable interval", func(s *flaggerv1.CanarySpec) { s.Analysis.Interval = "1d" }, func(p canary.Plan) any { return p.Interval }, time.Minute},
		{"negative interval", func(s *flaggerv1.CanarySpec) { s.Analysis.Interval = "-1m" }, func(p canary.Plan) any { return p.Interval }, time.Minute},
		{"short interval", func(s *flaggerv1.CanarySpec) { s.Analysis.Interval = "100ms" }, func(p canary.Plan) any { return []any{p.Interval, p.IntervalRaised} }, []any{10 * time.Second, true}},
		{"interval at the minimum", func(s *flaggerv1.CanarySpec) { s.Analysis.Interval = "10s" }, func(p canary.Plan) any { return []any{p.Interval, p.IntervalRaised} }, []any{10 * time.Second, false}},
		{"no threshold", func(s *flaggerv1.CanarySpec) { s.Analysis.Threshold = 0 }, func(p canary.Plan) any { return p.Threshold }, 1},
		{"negative threshold", func(s *flaggerv1.CanarySpec) { s.Analysis.Threshold = -3 }, func(p canary.Plan) any { return p.Threshold }, 1},
		{"no deadline", func(s *flaggerv1.CanarySpec) {}, func(p canary.Plan) any { return p.Deadline }, 10 * time.Minute},
		{"deadline", func(s *flaggerv1.CanarySpec) { s.ProgressDeadlineSeconds = &seconds }, func(p canary.Plan) any { return p.Deadline }, 30 * time.Second},
		{"default provider", func(s *flaggerv1.CanarySpec) {}, func(p canary.Plan) any { return []any{p.Provider, p.HasRouter} }, []any{"istio", true}},
		{"own provider", func(s *flaggerv1.CanarySpec) { s.Provider, s.Analysis.Iterations = "kubernetes", 3 }, func(p canary.Plan) any { return []any{p.Provider, p.HasRouter, p.Iterations} }, []any{"kubernetes", false, 3}},
		{"weighted", func(s *flaggerv1.CanarySpec) {}, func(p canary.Plan) any { return p.Strategy }, canary.Weighted},
		{"match alone is weighted", func(s *flaggerv1.CanarySpec) { s.Analysis.Match = match() }, func(p canary.Plan) any { return p.Strategy }, canary.Weighted},
		{"iterations", func(s *flaggerv1.CanarySpec) { s.Analysis.Iterations = 1 }, func(p canary.Plan) any { return p.Strategy }, canary.BlueGreen},
		{"match and iterations", func(s *flaggerv1.CanarySpec) { s.Analysis.Iterations, s.Analysis.Match = 1, match() }, func(p canary.Plan) any { return p.Strategy }, canary.ABTesting},
		{"kubernetes is blue/green", func(s *flaggerv1.CanarySpec) { s.Provider = "kubernetes" }, func(p canary.Plan) any { return []any{p.Strategy, p.Iterations} }, []any{canary.BlueGreen, 10}},
		{"no analysis is skipped", func(s *flaggerv1.CanarySpec) { s.Analysis = nil }, func(p canary.Plan) any { return p.SkipAnalysis }, true},
		{"old analysis", func(s *flaggerv1.CanarySpec) { s.Analysis, s.CanaryAnalysis = nil, s.Analysis }, func(p canary.Plan) any { return []any{p.SkipAnalysis, p.StepWeight} }, []any{false, 20}},
		{"hook without type", func(s *flaggerv1.CanarySpec) { s.Analysis.Webhooks = []flaggerv1.CanaryWebhook{{Name: "load"}} }, func(p canary.Plan) any { return p.Hooks[0].Type }, flaggerv1.RolloutHook},
		{"steps that would overflow", func(s *flaggerv1.CanarySpec) { s.Analysis.StepWeight, s.Analysis.StepWeightPromotion = 1<<62, 1<<62 }, func(p canary.Plan) any { return []any{p.StepWeight, p.PromotionStep} }, []any{100, 100}},
		{"negative promotion step", func(s *flaggerv1.CanarySpec) { s.Analysis.StepWeightPromotion = -5 }, func(p canary.Plan) any { return p.PromotionStep }, 0},
		{"cookies", func(s *flaggerv1.CanarySpec) {
			s.Analysis.SessionAffinity = &flaggerv1.SessionAffinity{CookieName: "a", PrimaryCookieName: "b"}
		}, func(p canary.Plan) any { return p.Cookie + p.PrimaryCookie }, "ab"},
	} {
		plan := canary.NewPlan(spec(test.change), settings())
		if diff := cmp.Diff(test.want, test.get(plan)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if len(plan.ValidationErrors) > 0 {
			t.Errorf("%s: blocked by %v", test.name, plan.ValidationErrors)
		}
	}
}

// TestPlanChecks: an entry may be several checks; builtin and inline ones come before templates.
func TestPlanChecks(t *testing.T) {
	ref := &flaggerv1.CrossNamespaceObjectReference{Name: "t"}
	for _, test := range []struct {
		name    string
		metrics []flaggerv1.CanaryMetric
		want    []string
	}{
		{"none", nil, nil},
		{"builtin", []flaggerv1.CanaryMetric{{Name: canary.SuccessRate}}, []string{"0 builtin request-success-rate 1m"}},
		{
			"old names",
			[]flaggerv1.CanaryMetric{{Name: "istio_requests_total", Interval: "30s"}, {Name: "istio_request_duration_seconds_bucket", Threshold: 5}},
			[]string{"0 builtin request-success-rate 30s", "1 builtin request-duration 1m"},
		},
		{"an old name with a query of its own", []flaggerv1.CanaryMetric{{Name: "istio_requests_total", Query: "q"}}, []string{"0 inline  1m"}},
		{
			"a name with a query and a template",
			[]flaggerv1.CanaryMetric{{Name: canary.SuccessRate, Query: "q", TemplateRef: ref}},
			[]string{"0 builtin request-success-rate 1m", "0 inline  1m", "0 template  1m"},
		},
		{
			"templates last",
			[]flaggerv1.CanaryMetric{{Name: "x", TemplateRef: ref, Interval: "bad"}, {Name: canary.SuccessRate}},
			[]string{"1 builtin request-success-rate 1m", "0 template  1m"},
		},
	} {
		plan := canary.NewPlan(spec(func(s *flaggerv1.CanarySpec) { s.Analysis.Metrics = test.metrics }), settings())
		var got []string
		for _, c := range plan.Checks {
			got = append(got, strings.Join([]string{string(rune('0' + c.Index)), string(c.Source), c.Canonical, c.Interval}, " "))
		}
		if diff := cmp.Diff(test.want, got); diff != "" || len(plan.ValidationErrors) > 0 {
			t.Errorf("%s: blocks %v (-want +got):\n%s", test.name, plan.ValidationErrors, diff)
		}
	}
}

// TestPlanWarnings: settings that the kubernetes provider does not support are replaced, and reported.
func TestPlanWarnings(t *testing.T) {
	plan := canary.NewPlan(spec(func(s *flaggerv1.CanarySpec) {
		s.Provider, s.Analysis.Match, s.Analysis.Mirror = "kubernetes", match(), true
	}), settings())
	want := []string{
		"A/B testing is not supported when using the kubernetes provider", "Progressive traffic is not supported when using the kubernetes provider",
		"Setting canaryAnalysis.iterations: 10",
	}
	if diff := cmp.Diff(want, plan.Warnings); diff != "" || plan.Mirror || len(plan.ValidationErrors) > 0 {
		t.Errorf("mirror %v, blocks %v (-want +got):\n%s", plan.Mirror, plan.ValidationErrors, diff)
	}
}

// TestIgnoredMatchesOfTheServiceAreReported: a route that matches more requests than spec.service.match is not rendered in silence.
func TestIgnoredMatchesOfTheServiceAreReported(t *testing.T) {
	prefix := flaggerv1.HTTPMatchRequest{Name: "api", URI: &flaggerv1.StringMatch{Prefix: "/api"}}
	exact := flaggerv1.HTTPMatchRequest{URI: &flaggerv1.StringMatch{Exact: "/api"}}
	method := flaggerv1.HTTPMatchRequest{URI: prefix.URI, Method: &flaggerv1.StringMatch{Exact: "GET"}}
	const ignored = "provider istio does not use spec.service.match: requests are not restricted to it; remove it"
	const partly = "provider istio uses only one prefix of a path of spec.service.match, so the route matches more requests: remove all other conditions"
	for name, tc := range map[string]struct {
		used    release.ServiceMatch
		matches []flaggerv1.HTTPMatchRequest
		want    []string
	}{
		"no matches":     {release.MatchIgnored, nil, nil},
		"whole":          {release.MatchWhole, []flaggerv1.HTTPMatchRequest{method, exact}, nil},
		"ignored":        {release.MatchIgnored, []flaggerv1.HTTPMatchRequest{prefix}, []string{ignored}},
		"one prefix":     {release.MatchPrefix, []flaggerv1.HTTPMatchRequest{prefix}, nil},
		"two prefixes":   {release.MatchPrefix, []flaggerv1.HTTPMatchRequest{prefix, prefix}, []string{partly}},
		"exact path":     {release.MatchPrefix, []flaggerv1.HTTPMatchRequest{exact}, []string{partly}},
		"with a method":  {release.MatchPrefix, []flaggerv1.HTTPMatchRequest{method}, []string{partly}},
		"without a path": {release.MatchPrefix, []flaggerv1.HTTPMatchRequest{{Method: method.Method}}, []string{partly}},
	} {
		t.Run(name, func(t *testing.T) {
			set := settings()
			set.Features = func(string) canary.Features {
				return canary.Features{Known: true, Weights: true, ServiceMatch: tc.used}
			}
			plan := canary.NewPlan(spec(func(s *flaggerv1.CanarySpec) { s.Service.Match = tc.matches }), set)
			if diff := cmp.Diff(tc.want, plan.Warnings); diff != "" || len(plan.ValidationErrors) > 0 {
				t.Errorf("blocks %v, warnings (-want +got):\n%s", plan.ValidationErrors, diff)
			}
		})
	}
}

// TestPlanAcceptsWhatFlaggerAccepts: a spec with which Flagger promotes does not block a Canary. Adjusted settings are reported.
func TestPlanAcceptsWhatFlaggerAccepts(t *testing.T) {
	weights := func(weights ...int) func(*flaggerv1.CanarySpec) {
		return func(s *flaggerv1.CanarySpec) { s.Analysis.StepWeight, s.Analysis.StepWeights = 0, weights }
	}
	threshold := func(percent int) func(*flaggerv1.CanarySpec) {
		return func(s *flaggerv1.CanarySpec) { s.Analysis.CanaryReadyThreshold = &percent }
	}
	for _, test := range []struct {
		name   string
		change func(*flaggerv1.CanarySpec)
		ladder []int // steps, step and maximum
		notes  []string
	}{
		{"increasing weights", weights(20, 40), []int{20, 40, 0, 40}, nil},
		{
			"a last weight above 100", weights(20, 150),
			[]int{20, 100, 0, 100},
			[]string{"spec.analysis.stepWeights is [20 150]: using [20 100]"},
		},
		{
			"weights above 100", weights(60, 150, 200),
			[]int{60, 100, 0, 100},
			[]string{"spec.analysis.stepWeights is [60 150 200]: using [60 100]"},
		},
		{"one weight above 100", weights(101), []int{100, 0, 100}, []string{"spec.analysis.stepWeights is [101]: using [100]"}},
		{"a last weight that falls", weights(50, 20), []int{50, 0, 50}, []string{"spec.analysis.stepWeights is [50 20]: using [50]"}},
		{"a last weight that repeats", weights(20, 20), []int{20, 0, 20}, []string{"spec.analysis.stepWeights is [20 20]: using [20]"}},
		{
			"a maximum above 100", func(s *flaggerv1.CanarySpec) { s.Analysis.StepWeight, s.Analysis.MaxWeight = 50, 120 },
			[]int{50, 100},
			[]string{"spec.analysis.maxWeight is 120: using 100"},
		},
		{
			"a step above 100", func(s *flaggerv1.CanarySpec) { s.Analysis.StepWeight, s.Analysis.MaxWeight = 500, 0 },
			[]int{100, 100},
			nil,
		},
		{
			"a threshold above 100", threshold(101),
			[]int{20, 100},
			[]string{"spec.analysis.canaryReadyThreshold is 101, which is not between 0 and 100: using 100"},
		},
		{
			"a negative threshold", threshold(-1),
			[]int{20, 100},
			[]string{"spec.analysis.canaryReadyThreshold is -1, which is not between 0 and 100: using 0"},
		},
		{
			"mirroring that the router does not support", func(s *flaggerv1.CanarySpec) { s.Provider, s.Analysis.Mirror = "plain", true },
			[]int{20, 100},
			[]string{"provider plain does not support mirroring with this strategy: spec.analysis.mirror is ignored"},
		},
		{
			"session affinity that the router does not support", func(s *flaggerv1.CanarySpec) {
				s.Provider, s.Analysis.SessionAffinity = "plain", &flaggerv1.SessionAffinity{CookieName: "a"}
			},
			[]int{20, 100},
			[]string{"provider plain does not support session affinity: spec.analysis.sessionAffinity is ignored"},
		},
	} {
		plan := canary.NewPlan(spec(test.change), settings())
		if diff := cmp.Diff(test.ladder, append(slices.Clone(plan.StepWeights), plan.StepWeight, plan.MaxWeight)) + cmp.Diff(test.notes, plan.Warnings); diff != "" || len(plan.ValidationErrors) > 0 || plan.Mirror || plan.Cookie != "" {
			t.Errorf("%s: blocks %v, mirror %v, cookie %q (-want +got):\n%s", test.name, plan.ValidationErrors, plan.Mirror, plan.Cookie, diff)
		}
	}
}

func TestPlanBlocksWhatCanNeverWork(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*flaggerv1.CanarySpec)
		want   string
	}{
		{
			"unknown provider", func(s *flaggerv1.CanarySpec) { s.Provider = "unheard-of" },
			`spec.provider: unknown provider "unheard-of": set a supported provider, or omit the field to use the default`,
		},
		{
			"no step", func(s *flaggerv1.CanarySpec) { s.Analysis.StepWeight = 0 },
			"spec.analysis has no stepWeight, stepWeights or iterations, so the canary would never receive traffic: set one of them",
		},
		{
			"steps that fall before the end", func(s *flaggerv1.CanarySpec) { s.Analysis.StepWeight, s.Analysis.StepWeights = 0, []int{50, 20, 80} },
			"spec.analysis.stepWeights is [50 20 80], so the release would not advance beyond weight 50: specify increasing weights from 1 to 100",
		},
		{
			"steps that repeat before the end", func(s *flaggerv1.CanarySpec) { s.Analysis.StepWeight, s.Analysis.StepWeights = 0, []int{20, 20, 50} },
			"spec.analysis.stepWeights is [20 20 50], so the release would not advance beyond weight 20: specify increasing weights from 1 to 100",
		},
		{
			"a step of zero", func(s *flaggerv1.CanarySpec) { s.Analysis.StepWeight, s.Analysis.StepWeights = 0, []int{0, 20} },
			"spec.analysis.stepWeights is [0 20], so the release would not advance beyond weight 0: specify increasing weights from 1 to 100",
		},
		{
			"a router without weights", func(s *flaggerv1.CanarySpec) { s.Provider = "nothing" },
			"provider nothing does not support weighted routing: set spec.analysis.iterations, or choose another provider",
		},
		{
			"a router without matches", func(s *flaggerv1.CanarySpec) {
				s.Provider, s.Analysis.Iterations, s.Analysis.Match = "nothing", 1, match()
			},
			"provider nothing does not support request matching, so spec.analysis.match would route every request to the canary: remove it, or choose another provider",
		},
		{"one cookie for both", func(s *flaggerv1.CanarySpec) {
			s.Analysis.SessionAffinity = &flaggerv1.SessionAffinity{CookieName: "a", PrimaryCookieName: "a"}
		}, "can't use the same cookie name for both primary and cookie name; please update them to be different"},
		{
			"a duration without threshold", func(s *flaggerv1.CanarySpec) { s.Analysis.Metrics = []flaggerv1.CanaryMetric{{Name: canary.Duration}} },
			"spec.analysis.metrics[0] (request-duration) has no threshold, so the check would always fail: set thresholdRange.max, in milliseconds",
		},
		{
			"an unknown metric", func(s *flaggerv1.CanarySpec) {
				s.Analysis.Metrics = []flaggerv1.CanaryMetric{{Name: "request-sucess-rate"}}
			},
			`Metric query failed for no usable metrics template and query were configured (spec.analysis.metrics[0] is "request-sucess-rate": use request-success-rate or request-duration, or set templateRef)`,
		},
		{
			"a StatefulSet", func(s *flaggerv1.CanarySpec) { s.TargetRef.Kind = "StatefulSet" },
			"spec.targetRef.kind StatefulSet is not supported: use Deployment, DaemonSet or Service",
		},
		{"Knative under another provider", func(s *flaggerv1.CanarySpec) {
			s.TargetRef = flaggerv1.TargetReference{APIVersion: "serving.knative.dev/v1", Kind: "Service", Name: "x"}
		}, "can't use istio provider with Knative Service as target"},
		{
			"provider knative for something else", func(s *flaggerv1.CanarySpec) { s.Provider = "knative" },
			"can't use apps/v1/Deployment as target if provider is set to knative",
		},
		{"Knative with an autoscaler", func(s *flaggerv1.CanarySpec) {
			s.TargetRef = flaggerv1.TargetReference{APIVersion: "serving.knative.dev/v1", Kind: "Service", Name: "x"}
			s.Provider, s.AutoscalerRef = "knative", &flaggerv1.AutoscalerReference{Kind: "HorizontalPodAutoscaler", Name: "x"}
		}, "can't use autoscaler with Knative Service"},
		{"too many webhooks", func(s *flaggerv1.CanarySpec) {
			s.Analysis.Webhooks = make([]flaggerv1.CanaryWebhook, 103)
		}, "spec.analysis.webhooks has 103 entries, and at most 100 are supported: remove 3"},
		{"too many metrics", func(s *flaggerv1.CanarySpec) {
			s.Analysis.Metrics = slices.Repeat([]flaggerv1.CanaryMetric{{Name: canary.SuccessRate}}, 501)
		}, "spec.analysis.metrics has 501 entries, and at most 500 are supported: remove 1"},
		{"a template elsewhere", func(s *flaggerv1.CanarySpec) {
			s.Analysis.Metrics = []flaggerv1.CanaryMetric{{Name: "x", TemplateRef: &flaggerv1.CrossNamespaceObjectReference{Name: "t", Namespace: "other"}}}
		}, "can't access metric template t.other, cross-namespace references are blocked"},
		{"an alert provider elsewhere", func(s *flaggerv1.CanarySpec) {
			s.Analysis.Alerts = []flaggerv1.CanaryAlert{{ProviderRef: flaggerv1.CrossNamespaceObjectReference{Name: "a", Namespace: "other"}}}
		}, "can't access alert provider a.other, cross-namespace references are blocked"},
		{"an upstream elsewhere", func(s *flaggerv1.CanarySpec) {
			s.UpstreamRef = &flaggerv1.UpstreamReference{Name: "u", Namespace: "other"}
		}, "can't access gloo upstream u.other, cross-namespace references are blocked"},
	} {
		with := settings()
		with.NoCrossNamespace = true
		plan := canary.NewPlan(spec(test.change), with)
		if diff := cmp.Diff([]string{test.want}, plan.ValidationErrors); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestPlanWithoutAnalysisIsNotBlockedByIt: an analysis that could never pass does not block a release that skips it.
func TestPlanWithoutAnalysisIsNotBlockedByIt(t *testing.T) {
	plan := canary.NewPlan(spec(func(s *flaggerv1.CanarySpec) {
		s.SkipAnalysis, s.Analysis.StepWeight = true, 0
		s.Analysis.Metrics = []flaggerv1.CanaryMetric{{Name: "typo"}, {Name: canary.Duration}}
	}), settings())
	if len(plan.ValidationErrors) > 0 {
		t.Errorf("blocked by %v", plan.ValidationErrors)
	}
}

// TestReferencesOfTheSameNamespaceAreAllowed: an explicit namespace may be that of the Canary.
func TestReferencesOfTheSameNamespaceAreAllowed(t *testing.T) {
	with := settings()
	with.NoCrossNamespace = true
	plan := canary.NewPlan(spec(func(s *flaggerv1.CanarySpec) {
		s.Analysis.Metrics = []flaggerv1.CanaryMetric{{Name: "x", TemplateRef: &flaggerv1.CrossNamespaceObjectReference{Name: "t", Namespace: "shop"}}}
	}), with)
	if len(plan.ValidationErrors) > 0 {
		t.Errorf("blocked by %v", plan.ValidationErrors)
	}
}

// TestTextsThatOnlyBeginLikeDurationsAreReported: the CustomResourceDefinition accepts them, and Flagger's defaults apply.
func TestTextsThatOnlyBeginLikeDurationsAreReported(t *testing.T) {
	const interval = "spec.analysis.interval"
	for _, test := range []struct{ interval, metric, timeout, want string }{
		{"", "", "", ""},
		{"30s", "1m30s", "5s", ""},
		{"30sec", "", "", interval + ` is "30sec", which is not a duration: 60s is used. Write 30s`},
		{"30min", "", "", interval + ` is "30min", which is not a duration: 60s is used. Write 30m`},
		{"10s,", "", "", interval + ` is "10s,", which is not a duration: 60s is used. Write 10s`},
		{"0s", "", "", interval + ` is "0s", which is not positive: 60s is used. Write for example 30s`},
		{"0x", "", "", interval + ` is "0x", which is not a duration: 60s is used. Write for example 30s`},
		{"30s", "5mins", "", `spec.analysis.metrics[0].interval is "5mins", which is not a duration: 1m is used. Write 5m`},
		{"30s", "", "10seconds", `spec.analysis.webhooks[0].timeout is "10seconds", which is not a duration: each call fails. Write 10s`},
	} {
		c := &flaggerv1.Canary{}
		c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
		c.Spec.Analysis = &flaggerv1.CanaryAnalysis{
			Interval: test.interval, StepWeight: 10,
			Metrics:  []flaggerv1.CanaryMetric{{Name: canary.SuccessRate, Interval: test.metric}},
			Webhooks: []flaggerv1.CanaryWebhook{{Name: "smoke", Timeout: test.timeout}},
		}
		plan := canary.NewPlan(c, canary.Settings{Provider: "istio", Features: testFeatures})
		if got := strings.Join(plan.Warnings, "\n"); got != test.want || len(plan.ValidationErrors) > 0 {
			t.Errorf("%+v:\ngot  %s\nwant %s\nerrors %q", test, got, test.want, plan.ValidationErrors)
		}
	}
}
