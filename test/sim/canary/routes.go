package canary

import (
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// isCanary reports whether a destination of a route is the Service of the canary.
func (r *Release) isCanary(destination map[string]any) bool {
	name, _ := destination["name"].(string)
	if host, istio := nested(destination, "destination")["host"].(string); istio {
		name = host
	}
	return name == r.Apex+"-canary"
}

// routes returns the releases as seen by clients.
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
