package canary

import (
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// reweigh gives the canary a weight, and the primary the rest, in every rule of a route that has both. It is false where
// none has.
func reweigh(object map[string]any, weight int64) bool {
	spec, _ := object["spec"].(map[string]any)
	changed := false
	for _, rule := range append(actors.Items(spec["http"]), actors.Items(spec["rules"])...) {
		to := append(actors.Items(rule["route"]), actors.Items(rule["backendRefs"])...)
		if len(to) == 2 {
			to[0]["weight"], to[1]["weight"] = 100-weight, weight
			changed = true
		}
	}
	return changed
}

// routes are the releases as clients see them.
func (k *Canaries) routes() []cluster.Route {
	routes := make([]cluster.Route, 0, len(k.releases))
	for _, r := range k.releases {
		routes = append(routes, cluster.Route{
			Release: r.Key, Namespace: actors.Namespace, Provider: r.Provider,
			Apex: r.Apex, Primary: r.Apex + "-primary", Canary: r.Apex + "-canary",
		})
	}
	return routes
}
