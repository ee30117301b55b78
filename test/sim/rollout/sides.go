package rollout

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// place is where a route sends requests: to a Service, or to a subset of the pods behind it.
type place struct{ Service, Subset string }

func (p place) String() string {
	if p.Subset == "" {
		return p.Service
	}
	return p.Service + "/" + p.Subset
}

// sides are how a spec distinguishes the two revisions of a release in a route.
type sides struct {
	canary, stable string // Services; empty where they are not fixed
	turns          *argov1.PingPongSpec
	rule           *argov1.IstioDestinationRule
}

// sidesOf are those of a spec; false: no router shares its traffic.
func sidesOf(spec *argov1.RolloutSpec) (sides, bool) {
	c := spec.Strategy.Canary
	if c == nil || c.TrafficRouting == nil {
		return sides{}, false
	}
	s := sides{canary: c.CanaryService, stable: c.StableService, turns: c.PingPong}
	if c.TrafficRouting.Istio != nil {
		s.rule = c.TrafficRouting.Istio.DestinationRule
	}
	return s, true
}

// onTheWay is true of the place of the revision that is on its way. Of Services that take turns the status says who is the
// stable one: ping, or otherwise pong.
func (s sides) onTheWay(p place, stableIs argov1.PingPongType) bool {
	switch {
	case s.rule != nil:
		return p.Subset != "" && p.Subset == s.rule.CanarySubsetName
	case !s.takeTurns():
		return p.Service == s.canary
	case stableIs == argov1.Ping:
		return p.Service == s.turns.PongService
	default:
		return p.Service == s.turns.PingService
	}
}

// takeTurns is true where the route names the Services that take turns, and no fixed ones.
func (s sides) takeTurns() bool {
	return s.turns != nil && s.rule == nil && s.canary == "" && s.stable == ""
}

// onTheWay is true of the place of the new revision of a Rollout, as its status has it now.
func (r *record) onTheWay(p place) bool {
	return r.sides.onTheWay(p, r.object.Status.Canary.StablePingPong)
}

// given is the weight that a route has for the new revision.
func (r *record) given(v *store.Version) int {
	weight := 0
	for _, s := range weightsOf(v) {
		if r.onTheWay(s.place) {
			weight += s.Weight
		}
	}
	return weight
}

// leads is the hash of the revision whose pods a place has; empty: it has all, or none is known.
func (l *ledger) leads(r *record, p place) string {
	if p.Subset != "" {
		if hash := hashIn(subsetIn(l.World.Server.Peek(actors.DestinationRuleKind, r.Key), p.Subset)); hash != "" {
			return hash
		}
	}
	return l.selected(l.serviceOf(p.Service))
}

// canaryPlace is where requests for the new revision go; false: no route says so.
func (l *ledger) canaryPlace(r *record) (place, bool) {
	for _, kind := range routeKinds {
		for _, s := range weightsOf(l.World.Server.Peek(kind, r.Key)) {
			if r.onTheWay(s.place) {
				return s.place, true
			}
		}
	}
	return place{}, false
}

// subsetIn is a subset of a DestinationRule by its name; nil: it has none of that name.
func subsetIn(v *store.Version, name string) map[string]any {
	for _, subset := range subsetsIn(v) {
		if subset["name"] == name {
			return subset
		}
	}
	return nil
}

func subsetsIn(v *store.Version) []map[string]any {
	if v == nil || v.Kind() != actors.DestinationRuleKind {
		return nil
	}
	spec, _ := v.Content()["spec"].(map[string]any)
	return actors.Items(spec["subsets"])
}

// hashIn is the hash that a subset selects; empty: none.
func hashIn(subset map[string]any) string {
	hash, _, _ := unstructured.NestedString(subset, "labels", argov1.PodTemplateHashLabel)
	return hash
}
