package traffic

import (
	"maps"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// RolloutRenderers are the routers of Rollouts that this binary has. It is made once, where the process is wired, and
// never changed. What is nil is refused.
type RolloutRenderers struct {
	Istio, Nginx, ALB, SMI, Ambassador, AppMesh, Traefik, Apisix RolloutRenderer
	// Plugins are those that a Rollout names under plugins, by their names. Programs of others are not run.
	Plugins map[string]RolloutRenderer
}

// RolloutRouter is one router that a Rollout names.
type RolloutRouter struct {
	// Name as in the spec: istio, or the name of a plugin.
	Name     string
	Renderer RolloutRenderer
	// others are all routers of the Rollout.
	others []RolloutRouter
}

// Of are the routers that a spec names, in the order in which each does its whole work; none where it names none. Errors:
// ErrUnsupported, with a sentence for the user.
func (rs RolloutRenderers) Of(routing *argov1.RolloutTrafficRouting) ([]RolloutRouter, error) {
	if routing == nil {
		return nil, nil
	}
	var out []RolloutRouter
	for _, router := range rs.known() {
		if router.named(*routing) {
			out = append(out, RolloutRouter{Name: router.name, Renderer: router.renderer})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(routing.Plugins)) {
		out = append(out, RolloutRouter{Name: name, Renderer: rs.Plugins[name]})
	}
	for i, router := range out {
		if router.Renderer == nil {
			return nil, rs.absent(router.Name)
		}
		out[i].others = out
	}
	return out, nil
}

// knownRouter is a router that has a field of its own in the API.
type knownRouter struct {
	name     string
	renderer RolloutRenderer
	named    func(argov1.RolloutTrafficRouting) bool
}

// RouterNames are the names of the routers that a spec names, served or not, in the order of Of.
func RouterNames(routing *argov1.RolloutTrafficRouting) []string {
	if routing == nil {
		return nil
	}
	var names []string
	for _, router := range (RolloutRenderers{}).known() {
		if router.named(*routing) {
			names = append(names, router.name)
		}
	}
	return append(names, slices.Sorted(maps.Keys(routing.Plugins))...)
}

// known are the routers in the order in which each does its whole work.
func (rs RolloutRenderers) known() []knownRouter {
	return []knownRouter{
		{"istio", rs.Istio, func(r argov1.RolloutTrafficRouting) bool { return r.Istio != nil }},
		{"nginx", rs.Nginx, func(r argov1.RolloutTrafficRouting) bool { return r.Nginx != nil }},
		{routerALB, rs.ALB, func(r argov1.RolloutTrafficRouting) bool { return r.ALB != nil }},
		{"smi", rs.SMI, func(r argov1.RolloutTrafficRouting) bool { return r.SMI != nil }},
		{"ambassador", rs.Ambassador, func(r argov1.RolloutTrafficRouting) bool { return r.Ambassador != nil }},
		{"appMesh", rs.AppMesh, func(r argov1.RolloutTrafficRouting) bool { return r.AppMesh != nil }},
		{"traefik", rs.Traefik, func(r argov1.RolloutTrafficRouting) bool { return r.Traefik != nil }},
		{"apisix", rs.Apisix, func(r argov1.RolloutTrafficRouting) bool { return r.Apisix != nil }},
	}
}

// routerALB keeps its Services by role, whatever other routers of the same Rollout do.
const routerALB = "alb"

func (rs RolloutRenderers) absent(name string) error {
	if !strings.Contains(name, "/") {
		return Refuse(ErrUnsupported, "spec.strategy.canary.trafficRouting.%s is not served here: use another router", name)
	}
	return Refuse(ErrUnsupported, "spec.strategy.canary.trafficRouting.plugins names %q, and Serin runs no programs of others: built in %s",
		name, builtIn(slices.Sorted(maps.Keys(rs.Plugins))))
}

func builtIn(plugins []string) string {
	switch len(plugins) {
	case 0:
		return "is none"
	case 1:
		return "is " + plugins[0]
	default:
		return "are " + strings.Join(plugins, ", ")
	}
}

// Target is the Rollout as this router sees it: with the Services of the two sides by their names of the moment.
func (x RolloutRouter) Target(ro *argov1.Rollout, canaryHash, stableHash string) RolloutTarget {
	t := RolloutTarget{Rollout: ro, CanaryHash: canaryHash, StableHash: stableHash}
	c := t.canary()
	t.CanaryService, t.StableService = c.CanaryService, c.StableService
	if c.PingPong == nil || x.Name != routerALB && (c.CanaryService != "" || c.StableService != "") {
		return t
	}
	t.CanaryService, t.StableService = c.PingPong.PingService, c.PingPong.PongService
	if ro.Status.Canary.StablePingPong == argov1.Ping {
		t.CanaryService, t.StableService = t.StableService, t.CanaryService
	}
	return t
}

// Route is what of a route this router is told: all of it, but for what it cannot do and another router of the same
// Rollout can. What none of them can do is left in it, and refused.
func (x RolloutRouter) Route(t RolloutTarget, r release.Route) release.Route {
	own := x.Renderer.Features(t)
	elsewhere := func(declared func(Features) bool) bool {
		return !declared(own) && slices.ContainsFunc(x.others, func(other RolloutRouter) bool {
			return declared(other.Renderer.Features(t))
		})
	}
	if elsewhere(func(f Features) bool { return f.Others }) {
		r.Others = nil
	}
	if elsewhere(func(f Features) bool { return f.HeaderRoutes }) {
		r.HeaderRoutes = nil
	}
	if elsewhere(func(f Features) bool { return f.MirrorRoutes }) {
		r.MirrorRoutes = nil
	}
	return r
}

// Verified is what a status says of weights that were written: whether the router serves them, nil where it cannot say.
// A router that reports in principle and has nothing to say is believed.
func (x RolloutRouter) Verified(t RolloutTarget, seen Observed) *bool {
	if !x.Renderer.Features(t).Confirms {
		return nil
	}
	return new(seen.Confirmed != ConfirmedNo)
}

// HeaderRoute is a managed route as a step makes it. Each header is a match of its own: whether one of them is enough or
// all have to match differs between routers.
func HeaderRoute(step argov1.SetHeaderRoute) release.HeaderRoute {
	out := release.HeaderRoute{Name: step.Name}
	for _, m := range step.Match {
		if m.HeaderValue == nil {
			continue
		}
		out.Match = append(out.Match, release.Match{Headers: map[string]release.StringMatch{m.HeaderName: text(*m.HeaderValue)}})
	}
	return out
}

// MirrorRoute is a managed route that mirrors, as a step makes it.
func MirrorRoute(step argov1.SetMirrorRoute) release.MirrorRoute {
	out := release.MirrorRoute{Name: step.Name, Percent: release.Total}
	if step.Percentage != nil {
		out.Percent = int(*step.Percentage)
	}
	for _, m := range step.Match {
		var match release.Match
		if m.Method != nil {
			match.Method = new(text(*m.Method))
		}
		if m.Path != nil {
			match.Path = new(text(*m.Path))
		}
		for name, value := range m.Headers {
			if match.Headers == nil {
				match.Headers = map[string]release.StringMatch{}
			}
			match.Headers[name] = text(value)
		}
		out.Match = append(out.Match, match)
	}
	return out
}

func text(m argov1.StringMatch) release.StringMatch {
	return release.StringMatch{Exact: m.Exact, Prefix: m.Prefix, Regex: m.Regex}
}
