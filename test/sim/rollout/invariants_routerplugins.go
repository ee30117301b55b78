package rollout

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/rollout/pods"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// routerPluginRoutes is I45 and I46. It contains the route of the plugin for each Rollout, as the executed calls have set it.
type routerPluginRoutes struct {
	*ledger

	routes map[types.UID]*pluginRouteState
}

// pluginRouteState is the route of the plugin for one Rollout.
type pluginRouteState struct {
	canary, stable string
	weight         int32
	// number and identity are those of the last route that the plugin was called for.
	number   int64
	identity string
}

func newRouterPluginRoutes(l *ledger) *routerPluginRoutes {
	return &routerPluginRoutes{l, map[types.UID]*pluginRouteState{}}
}

// record executes calls.
func (c *routerPluginRoutes) record(event any) {
	h, ok := event.(routerCalled)
	if !ok {
		return
	}
	state := c.stateOf(h.key.UID)
	for _, call := range h.executed {
		switch call.Method {
		case rollout.RouterUpdateHash:
			state.canary, state.stable = call.CanaryHash, call.StableHash
		case rollout.RouterSetWeight:
			state.weight = call.Weight
		default: // managed routes lead to the revision of the weight
		}
	}
}

func (c *routerPluginRoutes) stateOf(uid types.UID) *pluginRouteState {
	if c.routes[uid] == nil {
		c.routes[uid] = &pluginRouteState{}
	}
	return c.routes[uid]
}

// checkPods is I45: the last pods of a revision are removed only while the plugin sends no requests to it.
func (c *routerPluginRoutes) checkPods(event any) {
	c.record(event)
	h, ok := event.(replicaSetWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.replicas() > 0 || h.previousReplicas() == 0 || !c.followsPlan(h.record) {
		return
	}
	r := h.record
	canary := r.object.Spec.Strategy.Canary
	if canary == nil || canary.TrafficRouting == nil || canary.TrafficRouting.Plugins[routerPluginName] == nil || c.mayHaveNoPods(r) {
		return
	}
	state := c.routes[r.UID]
	if state == nil {
		return
	}
	share := int32(0)
	if hash := hashOf(h.after); hash == state.canary {
		share = state.weight
	} else if hash == state.stable {
		share = pods.MaxWeight(canary) - state.weight
	}
	if share > 0 {
		c.Violate("I45", r.Name(), "the pods of %s are removed while the router plugin sends it %d of the requests", h.Key.Name, share)
	}
}

// checkOrder is I46: the plugin is never called for a route after it was called for a later one, and one number is one route.
func (c *routerPluginRoutes) checkOrder(event any) {
	h, ok := event.(actors.QuerySent)
	if !ok {
		return
	}
	request, ok := h.Query.Request.(controller.RouterPluginRequest)
	if !ok || prunesStatus(c.World) {
		return
	}
	if request.Object.Status.Serin == nil || request.Object.Status.Serin.RouterPlugins == nil {
		c.Violate("I46", h.Key.Name, "the plugin is called for %s, which the status does not contain", request.Route)
		return
	}
	route, state := *request.Object.Status.Serin.RouterPlugins, c.stateOf(h.Key.UID)
	switch {
	case route.Number < state.number:
		c.Violate("I46", h.Key.Name, "the plugin is called for route %d after route %d", route.Number, state.number)
	case route.Number == state.number && route.Route != state.identity:
		c.Violate("I46", h.Key.Name, "route %d is %s and %s", route.Number, state.identity, route.Route)
	}
	state.number, state.identity = route.Number, route.Route
}
