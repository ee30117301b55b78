package traffic_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

func TestNewCanaryTarget(t *testing.T) {
	c := &flaggerv1.Canary{}
	c.Namespace, c.Spec.TargetRef.Name = "web", "cart"
	want := traffic.Target{
		Canary: c, Namespace: "web", Apex: "cart", StableService: "cart-primary", CanaryService: "cart-canary",
		SelectorLabel: "app", Provider: "istio",
	}
	if diff := cmp.Diff(want, traffic.NewCanaryTarget(c, "istio", "app")); diff != "" {
		t.Errorf("named after the target (-want +got):\n%s", diff)
	}
	c.Spec.Service.Name = "basket"
	if got := traffic.NewCanaryTarget(c, "istio", "app"); got.StableService != "basket-primary" || got.Apex != "basket" {
		t.Errorf("named after spec.service.name: got %+v", got)
	}
}

func TestMatches(t *testing.T) {
	analysis := &flaggerv1.CanaryAnalysis{Match: []flaggerv1.AnalysisMatch{
		{Headers: map[string]flaggerv1.HeaderMatch{"x-a": {Suffix: "z"}, "x-b": {}}},
		{QueryParams: map[string]flaggerv1.StringMatch{"q": {Prefix: "a"}}, SourceLabels: map[string]string{"zone": "a"}},
	}}
	want := []release.Match{
		{Headers: map[string]release.StringMatch{"x-a": {Suffix: "z"}, "x-b": {}}},
		{QueryParams: map[string]release.StringMatch{"q": {Prefix: "a"}}, SourceLabels: map[string]string{"zone": "a"}},
	}
	for name, spec := range map[string]flaggerv1.CanarySpec{
		"analysis":                       {Analysis: analysis},
		"canaryAnalysis of old versions": {CanaryAnalysis: analysis},
	} {
		if diff := cmp.Diff(want, traffic.Matches(&flaggerv1.Canary{Spec: spec})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, spec := range map[string]flaggerv1.CanarySpec{
		"no analysis": {}, "no match": {Analysis: &flaggerv1.CanaryAnalysis{}},
	} {
		if got := traffic.Matches(&flaggerv1.Canary{Spec: spec}); got != nil {
			t.Errorf("%s: got %v, want nil", name, got)
		}
	}
}

func TestSticky(t *testing.T) {
	affinity := func(a flaggerv1.SessionAffinity, interval string) *flaggerv1.Canary {
		return &flaggerv1.Canary{Spec: flaggerv1.CanarySpec{Analysis: &flaggerv1.CanaryAnalysis{Interval: interval, SessionAffinity: &a}}}
	}
	full := flaggerv1.CanaryStatus{
		SessionAffinityCookie: "ship=a=b", PrimarySessionAffinityCookie: "anchor=x", PreviousSessionAffinityCookie: "ship=old",
	}
	for _, tt := range []struct {
		name   string
		canary *flaggerv1.Canary
		status flaggerv1.CanaryStatus
		want   *release.Sticky
	}{
		{"no affinity", &flaggerv1.Canary{}, full, nil},
		{"no cookie yet", affinity(flaggerv1.SessionAffinity{CookieName: "ship"}, ""), flaggerv1.CanaryStatus{}, nil},
		{
			"a cookie without a name is ignored",
			affinity(flaggerv1.SessionAffinity{CookieName: "ship", PrimaryCookieName: "anchor"}, ""),
			flaggerv1.CanaryStatus{PrimarySessionAffinityCookie: "=xyz"},
			nil,
		},
		{
			"defaults; no cookie for the primary", affinity(flaggerv1.SessionAffinity{CookieName: "ship"}, ""), full,
			&release.Sticky{
				Canary:   release.Cookie{Name: "ship", Value: "a=b", MaxAge: 86400},
				Previous: release.Cookie{Name: "ship", Value: "old", MaxAge: -1},
			},
		},
		{
			"all attributes; the primary's cookie lives for an interval",
			affinity(flaggerv1.SessionAffinity{
				CookieName: "ship", PrimaryCookieName: "anchor", MaxAge: 60, Domain: "example.com", Path: "/cart",
				SameSite: "Lax", HTTPOnly: true, Secure: true, Partitioned: true,
			}, "1m30s"), full,
			&release.Sticky{
				Canary: release.Cookie{
					Name: "ship", Value: "a=b", MaxAge: 60, Domain: "example.com", Path: "/cart", SameSite: "Lax",
					HTTPOnly: true, Secure: true, Partitioned: true,
				},
				Primary: release.Cookie{
					Name: "anchor", Value: "x", MaxAge: 90, Domain: "example.com", Path: "/cart", SameSite: "Lax",
					HTTPOnly: true, Secure: true, Partitioned: true,
				},
				Previous: release.Cookie{
					Name: "ship", Value: "old", MaxAge: -1, Domain: "example.com", Path: "/cart", SameSite: "Lax",
					HTTPOnly: true, Secure: true, Partitioned: true,
				},
			},
		},
		{
			"an interval below a second does not expire the cookie",
			affinity(flaggerv1.SessionAffinity{CookieName: "ship", PrimaryCookieName: "anchor"}, "200ms"),
			flaggerv1.CanaryStatus{PrimarySessionAffinityCookie: "anchor=x"},
			&release.Sticky{Primary: release.Cookie{Name: "anchor", Value: "x", MaxAge: 1}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, traffic.Sticky(tt.canary, tt.status)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCookiePatternMatchesTheCookieAndNoOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := release.Cookie{
			Name:  rapid.StringMatching(`[a-z.+*^|$]{1,8}`).Draw(t, "name"),
			Value: rapid.StringMatching(`[a-zA-Z]{10}`).Draw(t, "value"),
		}
		pattern, err := regexp.Compile("^(?:" + traffic.CookiePattern(c) + ")$")
		if err != nil {
			t.Fatalf("pattern: %v", err)
		}
		if header := "theme=dark; " + c.Name + "=" + c.Value + "; lang=en"; !pattern.MatchString(header) {
			t.Fatalf("%s does not match %q", pattern, header)
		}
		if header := "theme=dark; " + c.Name + "=0000000000; lang=en"; pattern.MatchString(header) {
			t.Fatalf("%s matches %q", pattern, header)
		}
	})
}

func TestShare(t *testing.T) {
	for _, tt := range []struct{ primary, canary, want int }{
		{100, 0, 0},
		{0, 100, 100},
		{80, 20, 20},
		{0, 0, 0},
		{0, 1, 100},
		{1, 0, 0},
		{1, 1, 50},
		{2, 1, 33},
		{1, 2, 67},
		{30, 10, 25},
		{1000, 1, 1},
		{1, 1000, 99}, // never 100 while both sides receive requests
	} {
		if got := traffic.Share(tt.primary, tt.canary); got != tt.want {
			t.Errorf("Share(%d, %d) = %d, want %d", tt.primary, tt.canary, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		canary := rapid.IntRange(0, 100).Draw(t, "canary")
		if got := traffic.Share(100-canary, canary); got != canary {
			t.Fatalf("Share of %d in 100 = %d", canary, got)
		}
	})
}
