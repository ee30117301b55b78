package rollout

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// ManagedRoutes is the class of releases with Istio whose steps route some requests to the new revision by a header, or mirror
// them.
const ManagedRoutes sim.FaultClass = "managed-routes"

// The routes that steps create, in the order of their precedence.
const (
	byHeader = "by-header"
	copied   = "copied"
)

// addManagedRoutes adds such steps, and steps that remove the routes again.
func (r *Release) addManagedRoutes(s *sim.Stream) {
	c := r.Spec.Strategy.Canary
	header := argov1.SetHeaderRoute{Name: byHeader, Match: []argov1.HeaderRoutingMatch{{HeaderName: "x-new", HeaderValue: &argov1.StringMatch{Exact: "yes"}}}}
	mirror := argov1.SetMirrorRoute{Name: copied, Match: []argov1.RouteMatch{{Path: &argov1.StringMatch{Prefix: "/"}}}, Percentage: new(int32(20))}
	at, ends, mirrors := s.Int(0, len(c.Steps)), s.Chance(0.3), s.Chance(0.5)
	c.TrafficRouting.ManagedRoutes = []argov1.ManagedRoute{{Name: byHeader}, {Name: copied}}
	c.Steps = slices.Insert(c.Steps, at, argov1.CanaryStep{SetHeaderRoute: &header})
	if mirrors {
		c.Steps = slices.Insert(c.Steps, s.Int(0, len(c.Steps)), argov1.CanaryStep{SetMirrorRoute: &mirror})
	}
	if ends {
		c.Steps = append(c.Steps, argov1.CanaryStep{SetHeaderRoute: &argov1.SetHeaderRoute{Name: byHeader}})
	}
}

// managedIn returns the names of the routes in an object that steps created.
func managedIn(v *store.Version) []string {
	var names []string
	for _, rule := range managedRules(v) {
		names = append(names, fmt.Sprint(rule["name"]))
	}
	return names
}

func managedRules(v *store.Version) []map[string]any {
	if v == nil {
		return nil
	}
	spec, _ := v.Content()["spec"].(map[string]any)
	field := map[schema.GroupKind]string{cluster.VirtualServiceKind: "http", cluster.HTTPRouteKind: "rules"}[v.Kind()]
	return slices.DeleteFunc(actors.Items(spec[field]), func(rule map[string]any) bool {
		return rule["name"] != byHeader && rule["name"] != copied
	})
}

// managedDestination returns the destination of a managed rule.
func managedDestination(rule map[string]any) destination {
	if mirror, copies := rule["mirror"].(map[string]any); copies {
		return istioDestinationOf(mirror)
	}
	for _, filter := range actors.Items(rule["filters"]) {
		if mirror, copies := filter["requestMirror"].(map[string]any); copies {
			backend, _ := mirror["backendRef"].(map[string]any)
			return destination{Service: fmt.Sprint(backend["name"])}
		}
	}
	for _, destination := range actors.Items(rule["route"]) {
		return destinationOf(destination)
	}
	return destination{}
}

// hasManagedRoutes reports whether the steps of a strategy may create routes.
func hasManagedRoutes(s argov1.RolloutStrategy) bool {
	return s.Canary != nil && s.Canary.TrafficRouting != nil && len(s.Canary.TrafficRouting.ManagedRoutes) > 0
}

// managedRouteShifts is the part of I1 about requests that a step routes or mirrors to the new revision.
func (c *writtenWeights) managedRouteShifts(h routeWritten) []oracle.TrafficShift {
	var shifts []oracle.TrafficShift
	before := managedIn(h.Old)
	for _, rule := range managedRules(h.New) {
		name, at := fmt.Sprint(rule["name"]), managedDestination(rule)
		if hash := c.hashBehind(h.record, at); !slices.Contains(before, name) && hash != "" && !c.podsChangedByOthers(h.record, at) && !c.replicaSetDeleted(h.record, hash) {
			shifts = append(shifts, oracle.TrafficShift{
				Release: h.record.Name(), What: fmt.Sprintf("route %s was added with destination %s", name, hash), To: c.podsOf(h.record, hash),
				OthersAnswer: true, // regardless of the others: no step needs the route before the pods
			})
		}
	}
	return shifts
}
