package traffic

import (
	"maps"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Router is one router that a Rollout names.
type Router struct {
	// Name as in the spec: istio, or the name of a plugin.
	Name     string
	Renderer Renderer
	// others are all routers of the Rollout.
	others           []Router
	noCrossNamespace bool
}

// routerFields are the routers that have a field in trafficRouting, in the order in which they are applied. It is never
// changed.
var routerFields = []struct {
	name string
	set  func(argov1.RolloutTrafficRouting) bool
}{
	{"istio", func(r argov1.RolloutTrafficRouting) bool { return r.Istio != nil }},
	{"nginx", func(r argov1.RolloutTrafficRouting) bool { return r.Nginx != nil }},
	{routerALB, func(r argov1.RolloutTrafficRouting) bool { return r.ALB != nil }},
	{"smi", func(r argov1.RolloutTrafficRouting) bool { return r.SMI != nil }},
	{"ambassador", func(r argov1.RolloutTrafficRouting) bool { return r.Ambassador != nil }},
	{"appMesh", func(r argov1.RolloutTrafficRouting) bool { return r.AppMesh != nil }},
	{"traefik", func(r argov1.RolloutTrafficRouting) bool { return r.Traefik != nil }},
	{"apisix", func(r argov1.RolloutTrafficRouting) bool { return r.Apisix != nil }},
}

// routerALB assigns its Services by role, whatever other routers of the same Rollout do.
const routerALB = "alb"

// RouterNames are the names of the routers in a spec, supported or not, in the order in which they are applied.
func RouterNames(routing *argov1.RolloutTrafficRouting) []string {
	if routing == nil {
		return nil
	}
	var names []string
	for _, router := range routerFields {
		if router.set(*routing) {
			names = append(names, router.name)
		}
	}
	return append(names, slices.Sorted(maps.Keys(routing.Plugins))...)
}

// ForRollout returns the routers that a spec names, in the order of RouterNames, without those of ExternalPlugins. Errors:
// ErrUnsupported.
func (r Registry) ForRollout(routing *argov1.RolloutTrafficRouting) ([]Router, error) {
	var out []Router
	for _, name := range RouterNames(routing) {
		renderer := r.Rollout[name]
		if _, ok := routing.Plugins[name]; ok && !isPlugin(name) {
			renderer = nil // the name of a field is not the name of a plugin
		}
		switch {
		case renderer == nil && isPlugin(name):
			continue
		case renderer == nil && routing.Plugins[name] != nil:
			return nil, Refuse(ErrUnsupported, "spec.strategy.canary.trafficRouting.plugins names %q: the name of a plugin has the form namespace/name", name)
		case renderer == nil:
			return nil, Refuse(ErrUnsupported, "spec.strategy.canary.trafficRouting.%s is not supported: use another router", name)
		}
		out = append(out, Router{Name: name, Renderer: renderer, noCrossNamespace: r.NoCrossNamespace})
	}
	for i := range out {
		out[i].others = out
	}
	return out, nil
}

// CheckRouting returns why the traffic routing of a Rollout cannot work, whatever objects exist. Errors: ErrUnsupported for a
// router, ErrInvalid for the configuration of a built-in plugin, ErrCrossNamespace for a route in another namespace.
func (r Registry) CheckRouting(ro *argov1.Rollout) error {
	if ro.Spec.Strategy.Canary == nil {
		return nil
	}
	routers, err := r.ForRollout(ro.Spec.Strategy.Canary.TrafficRouting)
	if err != nil {
		return err
	}
	for _, router := range routers {
		t := router.Target(ro, "", "")
		if validator, ok := router.Renderer.(ConfigValidator); ok {
			if err := validator.ValidateConfig(t); err != nil {
				return err
			}
		}
		if _, err := FindObjects(router.Renderer, t, release.Route{}, nothingExists); err != nil {
			return err
		}
	}
	return nil
}

// nothingExists reads the objects of a route without a cluster.
func nothingExists(ref Ref) (Objects, error) { return Objects{{Ref: ref}}, nil }

// isPlugin reports whether a router is configured under plugins.
func isPlugin(name string) bool { return strings.Contains(name, "/") }

// ExternalPlugins are the names of the plugins in a spec that are not built in, sorted. A process of its own serves each of them. A
// plugin that is built in is never served by a process: an administrator who comes from Argo Rollouts has it in the configuration of
// plugins, because Argo Rollouts needs it there, and not because a process is preferred.
func (r Registry) ExternalPlugins(routing *argov1.RolloutTrafficRouting) []string {
	return slices.DeleteFunc(RouterNames(routing), func(name string) bool { return !isPlugin(name) || r.Rollout[name] != nil })
}

// BuiltInPlugins are the names of the plugins that are built in, sorted.
func (r Registry) BuiltInPlugins() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.Rollout)), func(name string) bool { return !isPlugin(name) })
}

// routerNames are the registered routers of Rollouts: those with a field of their own in the order of routerFields, then the
// plugins by name.
func (r Registry) routerNames() []string {
	var names []string
	for _, router := range routerFields {
		if r.Rollout[router.name] != nil {
			names = append(names, router.name)
		}
	}
	return append(names, r.BuiltInPlugins()...)
}

// Target is the Rollout as this router sees it, with the current names of the Services of the two sides.
func (x Router) Target(ro *argov1.Rollout, canaryHash, stableHash string) Target {
	t := Target{
		Provider: x.Name, Namespace: ro.Namespace, NoCrossNamespace: x.noCrossNamespace, Rollout: ro, CanaryHash: canaryHash, StableHash: stableHash,
	}
	c := t.strategy()
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

// Route is the part of a route that this router implements: all of it, except for what it cannot do and another router of the
// same Rollout can. What none of them can do remains in it, and is refused.
func (x Router) Route(t Target, r release.Route) release.Route {
	own := x.Renderer.Features(t)
	elsewhere := func(declared func(Features) bool) bool {
		return !declared(own) && slices.ContainsFunc(x.others, func(other Router) bool {
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

// Verified is what a status reports about weights that were written: whether the router serves them, nil where it never
// reports that. A router that could report and has not is assumed to serve them.
func (x Router) Verified(t Target, seen Observed) *bool {
	if !x.Renderer.Features(t).Confirms {
		return nil
	}
	return new(seen.Confirmed != ConfirmedNo)
}

// HeaderRoute is the managed route that a step sets. Each header is a separate match: whether one of them is sufficient or all
// have to match differs between routers.
func HeaderRoute(step argov1.SetHeaderRoute) release.HeaderRoute {
	out := release.HeaderRoute{Name: step.Name}
	for _, m := range step.Match {
		if m.HeaderValue == nil {
			continue
		}
		out.Match = append(out.Match, release.Match{Headers: map[string]release.StringMatch{m.HeaderName: stringMatch(*m.HeaderValue)}})
	}
	return out
}

// MirrorRoute is the mirroring managed route that a step sets.
func MirrorRoute(step argov1.SetMirrorRoute) release.MirrorRoute {
	out := release.MirrorRoute{Name: step.Name, Percent: release.Total}
	if step.Percentage != nil {
		out.Percent = int(*step.Percentage)
	}
	for _, m := range step.Match {
		var match release.Match
		if m.Method != nil {
			match.Method = new(stringMatch(*m.Method))
		}
		if m.Path != nil {
			match.Path = new(stringMatch(*m.Path))
		}
		for name, value := range m.Headers {
			if match.Headers == nil {
				match.Headers = map[string]release.StringMatch{}
			}
			match.Headers[name] = stringMatch(value)
		}
		out.Match = append(out.Match, match)
	}
	return out
}

func stringMatch(m argov1.StringMatch) release.StringMatch {
	return release.StringMatch{Exact: m.Exact, Prefix: m.Prefix, Regex: m.Regex}
}
