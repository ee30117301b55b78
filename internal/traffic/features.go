package traffic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Features are the capabilities of a provider. Without any of them it can still switch all traffic at once, which is all that a
// blue/green release needs.
type Features struct {
	Weights        bool // a share of the requests
	Matches        bool // only requests with certain headers
	QueryParams    bool // only requests with certain query parameters
	SourceLabels   bool // only requests of clients with certain labels
	Mirror         bool // copies of requests while a blue/green release is tested
	WeightedMirror bool // copies of requests before the first weight
	MirrorPercent  bool // copies of a share of the requests
	Sticky         bool // a cookie that keeps clients on the canary
	PrimarySticky  bool // a cookie that keeps clients on the stable side
	Others         bool // weights of further destinations
	MaxWeight      bool // weights that add up to something else than 100
	HeaderRoutes   bool // managed routes by header
	MirrorRoutes   bool // managed routes that mirror
	Confirms       bool // a status that reports whether it serves the route
	// ServiceMatch is what the routes of a Canary use of spec.service.match.
	ServiceMatch release.ServiceMatch
}

// feature is an entry of the list that error messages and documentation share.
type feature struct {
	title    string // of its column in the documentation
	declared func(Features) bool
	used     func(Target, release.Route) bool
	remedy   string // the problem and its solution, after "provider X cannot"
}

// catalogue lists the features in the order of the documentation. It is never changed.
var catalogue = []feature{
	{
		"weights", func(f Features) bool { return f.Weights },
		func(_ Target, r release.Route) bool { return r.Canary != 0 && r.Canary != totalOf(r) },
		"send a share of the requests to the canary: use spec.analysis.iterations",
	},
	{
		"A/B by header", func(f Features) bool { return f.Matches },
		func(_ Target, r release.Route) bool { return len(r.Matches) > 0 },
		"send only matching requests to the canary, and would send all: remove spec.analysis.match",
	},
	{
		"… by query", func(f Features) bool { return f.QueryParams },
		anyMatch(func(m release.Match) bool { return len(m.QueryParams) > 0 }),
		"match query parameters: remove queryParams from spec.analysis.match",
	},
	{
		"… by source labels", func(f Features) bool { return f.SourceLabels },
		anyMatch(func(m release.Match) bool { return len(m.SourceLabels) > 0 }),
		"match labels of clients: remove sourceLabels from spec.analysis.match",
	},
	{
		"mirror in blue/green", func(f Features) bool { return f.Mirror },
		func(t Target, r release.Route) bool { return r.Mirror.Enabled && iterates(t) },
		"mirror requests: remove spec.analysis.mirror",
	},
	{
		"mirror before weights", func(f Features) bool { return f.WeightedMirror },
		func(t Target, r release.Route) bool { return r.Mirror.Enabled && !iterates(t) },
		"mirror requests before the first weight: remove spec.analysis.mirror, or use spec.analysis.iterations where it can mirror then",
	},
	{
		"mirror a share", func(f Features) bool { return f.MirrorPercent },
		func(_ Target, r release.Route) bool { return r.Mirror.Enabled && r.Mirror.Percent != 0 },
		"mirror a share of the requests: remove spec.analysis.mirrorWeight",
	},
	{
		"session affinity", func(f Features) bool { return f.Sticky },
		func(_ Target, r release.Route) bool { return r.Sticky != nil },
		"keep clients on one side: remove spec.analysis.sessionAffinity",
	},
	{
		"… of the primary", func(f Features) bool { return f.PrimarySticky },
		func(_ Target, r release.Route) bool { return r.Sticky != nil && r.Sticky.Primary.Name != "" },
		"keep clients on the primary: remove spec.analysis.sessionAffinity.primaryCookieName",
	},
	{
		"experiments", func(f Features) bool { return f.Others },
		func(_ Target, r release.Route) bool { return len(r.Others) > 0 },
		"send requests to further destinations: remove the weights of experiments",
	},
	{
		"max weight", func(f Features) bool { return f.MaxWeight },
		func(_ Target, r release.Route) bool { return totalOf(r) != release.Total },
		"use weights that do not add up to 100: remove maxTrafficWeight",
	},
	{
		"header routes", func(f Features) bool { return f.HeaderRoutes },
		func(_ Target, r release.Route) bool { return len(r.HeaderRoutes) > 0 },
		"manage routes by header: remove the steps setHeaderRoute",
	},
	{
		"mirror routes", func(f Features) bool { return f.MirrorRoutes },
		func(_ Target, r release.Route) bool { return len(r.MirrorRoutes) > 0 },
		"manage routes that mirror: remove the steps setMirrorRoute",
	},
	{
		"confirms", func(f Features) bool { return f.Confirms },
		func(Target, release.Route) bool { return false }, // a route cannot request it
		"",
	},
}

// rolloutFeatures are the features, by title, that a Rollout can use. It is never changed.
var rolloutFeatures = []string{"weights", "experiments", "max weight", "header routes", "mirror routes", "confirms"}

// Check refuses a route that needs more than was declared, with ErrUnsupported, and one whose weights do not add up. Every
// Render begins with it.
func (f Features) Check(t Target, r release.Route) error {
	format := "provider %s cannot %s, or choose another provider"
	if t.Rollout != nil {
		format = "router %s cannot %s, or use another router"
	}
	switch {
	case r.Canary >= 0 && r.Stable() >= 0:
	case t.Rollout != nil: // its weights are the user's
		return Refuse(ErrInvalid, "the canary's weight of %d leaves %d of %d to the stable side: lower it, or the weights of experiments",
			r.Canary, r.Stable(), totalOf(r))
	default:
		return fmt.Errorf("route %q of %s.%s: weights are between 0 and %d and add up to it", r, t.Apex, t.Namespace, totalOf(r))
	}
	for _, x := range catalogue {
		if x.used(t, r) && !x.declared(f) {
			return Refuse(ErrUnsupported, format, t.Provider, x.remedy)
		}
	}
	if r.Mirror.Enabled && len(r.Matches) > 0 {
		return Refuse(ErrUnsupported, "spec.analysis has match and mirror: an A/B test does not mirror; remove one of them")
	}
	return nil
}

// CanaryFeatureTable is a Markdown table of the features that each provider has for Canaries.
func CanaryFeatureTable(registry Registry) string {
	t := newTable("provider", catalogue)
	for _, name := range slices.Sorted(maps.Keys(registry.Canary)) {
		renderer := registry.Canary[name]
		plain := renderer.Features(NewCanaryTarget(&flaggerv1.Canary{}, name, ""))
		t.row("`"+name+"`", plain)

		for _, variant := range []struct {
			title string
			set   func(*flaggerv1.Canary)
		}{
			{"appProtocol `tcp`", func(c *flaggerv1.Canary) { c.Spec.Service.AppProtocol = "tcp" }},
			{"GRPCRoute", func(c *flaggerv1.Canary) { c.Annotations = map[string]string{RouteKindAnnotation: "GRPCRoute"} }},
			{"TCPRoute", func(c *flaggerv1.Canary) { c.Annotations = map[string]string{RouteKindAnnotation: "TCPRoute"} }},
		} {
			c := &flaggerv1.Canary{}
			variant.set(c)
			if features := renderer.Features(NewCanaryTarget(c, name, "")); features != plain {
				t.row("`"+name+"`, "+variant.title, features)
			}
		}
	}
	return t.text.String()
}

// RolloutFeatureTable is a Markdown table of the features that each router has for Rollouts.
func RolloutFeatureTable(registry Registry) string {
	t := newTable("router", slices.DeleteFunc(slices.Clone(catalogue), func(x feature) bool { return !slices.Contains(rolloutFeatures, x.title) }))
	anyRollout := Target{Rollout: &argov1.Rollout{}}
	for _, name := range registry.routerNames() {
		title := "`" + name + "`"
		if isPlugin(name) {
			title = "`plugins`: " + title
		}
		t.row(title, registry.Rollout[name].Features(anyRollout))
	}
	return t.text.String()
}

// table is a Markdown table with one column for each feature.
type table struct {
	columns []feature
	text    strings.Builder
}

func newTable(title string, columns []feature) *table {
	t := &table{columns: columns}
	t.text.WriteString("| " + title + " |")
	for _, x := range columns {
		t.text.WriteString(" " + x.title + " |")
	}
	t.text.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	return t
}

func (t *table) row(name string, f Features) {
	t.text.WriteString("| " + name + " |")
	for _, x := range t.columns {
		if x.declared(f) {
			t.text.WriteString(" yes |")
		} else {
			t.text.WriteString(" – |")
		}
	}
	t.text.WriteString("\n")
}

func totalOf(r release.Route) int {
	if r.Total == 0 {
		return release.Total
	}
	return r.Total
}

func anyMatch(holds func(release.Match) bool) func(Target, release.Route) bool {
	return func(_ Target, r release.Route) bool {
		return slices.ContainsFunc(r.Matches, holds)
	}
}

func iterates(t Target) bool {
	if t.Canary == nil {
		return false
	}
	analysis := t.Canary.Spec.EffectiveAnalysis()
	return analysis != nil && analysis.Iterations > 0
}
