package rollout

import (
	"fmt"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// ManagedRoutes are in some releases with Istio: steps that lead some requests to the new revision by a header, or copy
// them.
const ManagedRoutes sim.FaultClass = "managed-routes"

// The routes that steps make, the one that counts most first.
const (
	byHeader = "by-header"
	copied   = "copied"
)

// withManagedRoutes adds such steps, and some that take the routes away again.
func (r *Release) withManagedRoutes(s *sim.Stream) {
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

// managedIn are the routes in an object that were made for steps.
func managedIn(v *store.Version) []string {
	var names []string
	for _, rule := range managedRules(v) {
		names = append(names, fmt.Sprint(rule["name"]))
	}
	return names
}

func managedRules(v *store.Version) []map[string]any {
	if v == nil || v.Kind() != actors.VirtualServiceKind {
		return nil
	}
	spec, _ := v.Content()["spec"].(map[string]any)
	return slices.DeleteFunc(actors.Items(spec["http"]), func(rule map[string]any) bool {
		return rule["name"] != byHeader && rule["name"] != copied
	})
}

// meant is where a managed rule leads some requests, or copies them.
func meant(rule map[string]any) place {
	if mirror, copies := rule["mirror"].(map[string]any); copies {
		return placeIn(mirror)
	}
	for _, destination := range actors.Items(rule["route"]) {
		return placeOf(destination)
	}
	return place{}
}

// manages is true of a strategy whose steps may make routes.
func manages(s argov1.RolloutStrategy) bool {
	return s.Canary != nil && s.Canary.TrafficRouting != nil && len(s.Canary.TrafficRouting.ManagedRoutes) > 0
}

// managed is I1 of the requests that a step leads to the new revision, or copies to it.
func (l *ledger) managed(h routeWritten) []oracle.Move {
	var moves []oracle.Move
	before := managedIn(h.Old)
	for _, rule := range managedRules(h.New) {
		name, at := fmt.Sprint(rule["name"]), meant(rule)
		if hash := l.leads(h.of, at); !slices.Contains(before, name) && hash != "" && !l.touched(h.of, at) {
			moves = append(moves, oracle.Move{
				Release: h.of.Name(), What: fmt.Sprintf("route %s leads to %s", name, hash), To: l.podsOf(h.of, hash),
				OthersAnswer: true, // whatever the others do: no step needs the route before the pods
			})
		}
	}
	return moves
}
