package rollout

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// destination is where a route sends requests: to a Service, or to a subset of the pods behind it.
type destination struct{ Service, Subset string }

func (p destination) String() string {
	if p.Subset == "" {
		return p.Service
	}
	return p.Service + "/" + p.Subset
}

// sides describe how a spec distinguishes the two revisions of a release in a route.
type sides struct {
	canary, stable  string // Services; empty where they are not fixed
	pingPong        *argov1.PingPongSpec
	destinationRule *argov1.IstioDestinationRule
}

// sidesOf returns the sides of a spec, or false if no router splits its traffic.
func sidesOf(spec *argov1.RolloutSpec) (sides, bool) {
	c := spec.Strategy.Canary
	if c == nil || c.TrafficRouting == nil {
		return sides{}, false
	}
	s := sides{canary: c.CanaryService, stable: c.StableService, pingPong: c.PingPong}
	if c.TrafficRouting.Istio != nil {
		s.destinationRule = c.TrafficRouting.Istio.DestinationRule
	}
	return s, true
}

// isCanary reports whether a destination is that of the canary. For ping-pong Services, the status determines which one is
// stable: ping, or otherwise pong.
func (s sides) isCanary(p destination, stableIs argov1.PingPongType) bool {
	switch {
	case s.destinationRule != nil:
		return p.Subset != "" && p.Subset == s.destinationRule.CanarySubsetName
	case !s.usesPingPong():
		return p.Service == s.canary
	case stableIs == argov1.Ping:
		return p.Service == s.pingPong.PongService
	default:
		return p.Service == s.pingPong.PingService
	}
}

// usesPingPong reports whether the route names the ping-pong Services.
func (s sides) usesPingPong() bool {
	return s.pingPong != nil && s.destinationRule == nil && s.canary == "" && s.stable == ""
}

// isCanary reports whether a destination is that of the canary, according to the current status of a Rollout.
func (r *record) isCanary(p destination) bool {
	return r.sides.isCanary(p, r.object.Status.Canary.StablePingPong)
}

// canaryWeight returns the weight of the canary in a route.
func (r *record) canaryWeight(v *store.Version) int {
	weight := 0
	for _, s := range weightsOf(v) {
		if r.isCanary(s.destination) {
			weight += s.Weight
		}
	}
	return weight
}

// hashBehind returns the hash of the revision whose pods a destination selects, or "" if it selects all pods, or the hash is
// unknown.
func (l *ledger) hashBehind(r *record, p destination) string {
	if p.Subset != "" {
		if hash := hashIn(subsetIn(l.World.Server.Peek(actors.DestinationRuleKind, r.Key), p.Subset)); hash != "" {
			return hash
		}
	}
	return l.selectedHash(l.peekService(p.Service))
}

// canaryDestination returns the destination of requests to the canary, or false if no route names one.
func (l *ledger) canaryDestination(r *record) (destination, bool) {
	for _, kind := range routeKinds {
		for _, s := range weightsOf(l.World.Server.Peek(kind, r.Key)) {
			if r.isCanary(s.destination) {
				return s.destination, true
			}
		}
	}
	return destination{}, false
}

// subsetIn returns the subset of a DestinationRule with a name, or nil.
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

// hashIn returns the hash that a subset selects, or "".
func hashIn(subset map[string]any) string {
	hash, _, _ := unstructured.NestedString(subset, "labels", argov1.PodTemplateHashLabel)
	return hash
}
