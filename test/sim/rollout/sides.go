package rollout

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic/consul"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
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
	canary, stable string // Services; empty where they are not fixed
	pingPong       *argov1.PingPongSpec
	subsets        *subsets
}

// subsets are the names of the subsets of both sides. kind is that of the object that contains them.
type subsets struct {
	canary, stable string
	kind           schema.GroupKind
}

// sidesOf returns the sides of a spec, or false if no router splits its traffic.
func sidesOf(spec *argov1.RolloutSpec) (sides, bool) {
	c := spec.Strategy.Canary
	if c == nil || c.TrafficRouting == nil {
		return sides{}, false
	}
	s := sides{canary: c.CanaryService, stable: c.StableService, pingPong: c.PingPong}
	if istio := c.TrafficRouting.Istio; istio != nil && istio.DestinationRule != nil {
		s.subsets = &subsets{istio.DestinationRule.CanarySubsetName, istio.DestinationRule.StableSubsetName, cluster.DestinationRuleKind}
	}
	if c.TrafficRouting.Plugins[consul.PluginName] != nil {
		s.subsets = &subsets{newSubset, oldSubset, cluster.ServiceResolverKind}
	}
	return s, true
}

// isCanary reports whether a destination is that of the canary. For ping-pong Services, the status determines which one is
// stable: ping, or otherwise pong.
func (s sides) isCanary(p destination, stableIs argov1.PingPongType) bool {
	switch {
	case s.subsets != nil:
		return p.Subset != "" && p.Subset == s.subsets.canary
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
	return s.pingPong != nil && s.subsets == nil && s.canary == "" && s.stable == ""
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
		if hash := l.hashIn(r, subsetIn(l.World.Server.Peek(l.subsetKind(r), r.Key), p.Subset)); hash != "" {
			return hash
		}
	}
	return l.selectedHash(l.peekService(p.Service))
}

// canaryDestination returns the destination of requests to the canary, or false if no route names one.
func (l *ledger) canaryDestination(r *record) (destination, bool) {
	for _, kind := range cluster.WeightKinds {
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

// subsetsIn returns the subsets of an object with their names, or nil if its kind has none.
func subsetsIn(v *store.Version) []map[string]any {
	if v == nil || !slices.Contains(cluster.SubsetKinds, v.Kind()) {
		return nil
	}
	spec, _ := v.Content()["spec"].(map[string]any)
	named, ofConsul := spec["subsets"].(map[string]any)
	if !ofConsul {
		return actors.Items(spec["subsets"])
	}
	var all []map[string]any
	for _, name := range slices.Sorted(maps.Keys(named)) {
		subset := map[string]any{}
		fields, _ := named[name].(map[string]any)
		maps.Copy(subset, fields)
		subset["name"] = name
		all = append(all, subset)
	}
	return all
}

// subsetKind returns the kind of the object with the subsets of a Rollout, or an empty kind.
func (l *ledger) subsetKind(r *record) schema.GroupKind {
	if r.sides.subsets == nil {
		return schema.GroupKind{}
	}
	return r.sides.subsets.kind
}

// selectionIn returns the hash or the filter by which a subset selects a revision, or "".
func selectionIn(subset map[string]any) string {
	if filter, _ := subset["filter"].(string); filter != "" {
		return filter
	}
	hash, _, _ := unstructured.NestedString(subset, "labels", argov1.PodTemplateHashLabel)
	return hash
}

// hashIn returns the hash of the revision that a subset selects, or "".
func (l *ledger) hashIn(r *record, subset map[string]any) string {
	selected := selectionIn(subset)
	if version, filtered := strings.CutPrefix(selected, consulFilter); filtered {
		return l.revisions[consulVersion{r.Name(), strings.Trim(version, `"`)}]
	}
	return selected
}

// isOwnSubset reports whether a subset is one of the user's own, which no Rollout names.
func isOwnSubset(subset map[string]any) bool {
	name, _ := subset["name"].(string)
	return strings.HasPrefix(name, ownSubset)
}
