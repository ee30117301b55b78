package rollout

import (
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Routers send requests to the endpoints that Kubernetes has published, and learn of a pod a moment after its ReplicaSet has
// counted it as available. A Service whose selector was just switched publishes the pods of the revision before until then.
// So a revision gets no traffic that it does not have before its endpoints are published.
//
// What it has stays, because a cache may show endpoints late; what falls is never held, because a revision that fails must
// lose its users at once; and neither is what nobody else would answer.

// EndpointsOf are the Services of a strategy whose endpoints matter: those among which a router shares the traffic, and the
// preview Service, which publishes the pods before their users come. Without a router pods have their share of the traffic
// as soon as they are published.
func EndpointsOf(strategy argov1.RolloutStrategy) []string {
	c, b := strategy.Canary, strategy.BlueGreen
	switch {
	case c != nil && c.TrafficRouting != nil:
		return ServicesOf(strategy)
	case b != nil && b.PreviewService != "":
		return []string{b.PreviewService}
	default:
		return nil
	}
}

// canaryEndpoints holds traffic for a revision that is on its way.
func (p *pass) canaryEndpoints(service string, rs ReplicaSet, enough int32) release.Gate {
	said, published := p.published(service, rs, enough)
	if !published {
		return release.WaitsFor("canary-endpoints", release.ByCluster, said)
	}
	return release.Passes("canary-endpoints", said)
}

// stableEndpoints holds the traffic of a promoted revision with the Service that it came by, until its stable Service
// publishes all of its pods.
func (p *pass) stableEndpoints(service string) release.Gate {
	said, published := p.published(service, p.stable, min(p.stable.Available, p.replicas()))
	if !published {
		return release.WaitsFor("stable-endpoints", release.ByCluster, said)
	}
	return release.Passes("stable-endpoints", said)
}

// published is true where a Service publishes so many pods of a revision, and where nobody can tell. It says what was seen.
func (p *pass) published(service string, rs ReplicaSet, enough int32) (said string, is bool) {
	of, name := p.Services[service], service+"."+p.Namespace
	endpoints, selected := of.Endpoints[rs.Hash], of.Selector[argov1.PodTemplateHashLabel]
	switch {
	case of.Endpoints == nil: // a route among subsets of a Service that the strategy does not name
		return "", true
	case endpoints.Unknown != "":
		return endpoints.Unknown, true
	case selected != "" && selected != rs.Hash:
		return fmt.Sprintf("Service %s does not select the pods of %s yet", name, rs.Name), false
	case endpoints.AtLeast(enough):
		return endpoints.Seen(), true
	case endpoints.Ready == 0:
		return fmt.Sprintf("Kubernetes has not published a pod of %s as an endpoint of Service %s yet, so no router knows it", rs.Name, name), false
	default:
		return fmt.Sprintf("Kubernetes has published %d of %d pods of %s as endpoints of Service %s so far", endpoints.Ready, enough, rs.Name, name), false
	}
}

// reachable is a wish as far as its requests can arrive: until they can, the revision has what it had.
func (p *pass) reachable(w wish) wish {
	headers, mirrors := p.managedRoutes(w)
	if w.weight == 0 && len(headers)+len(mirrors) == 0 || p.set(p.stableSide()).Available == 0 {
		return w
	}
	canary, _ := p.routeServices()
	gate := p.canaryEndpoints(canary, p.set(w.canary), 1)
	if gate.Verdict == release.Pass {
		p.gate(gate)
		return w
	}
	held := w
	held.weight, held.held = min(w.weight, p.recorded(w.canary)), true
	heldHeaders, heldMirrors := p.managedRoutes(held)
	if held.weight == w.weight && len(heldHeaders) == len(headers) && len(heldMirrors) == len(mirrors) {
		return w
	}
	p.gate(gate)
	p.step.Unpublished = &gate
	return held
}

// unreturned is true while the traffic of a promoted revision stays with its canary Service, because its stable Service does
// not publish all of its pods yet. Of Services that take turns the one that has the traffic is the stable one by then.
func (p *pass) unreturned(w wish) bool {
	recorded := p.Status.Canary.Weights
	if !promoted(p.Status) || p.Spec.Strategy.Canary.PingPong != nil || p.stable.Available == 0 ||
		recorded == nil || recorded.Canary.Weight <= w.weight || recorded.Canary.PodTemplateHash != p.stable.Hash {
		return false
	}
	_, stable := p.routeServices()
	gate := p.stableEndpoints(stable)
	p.gate(gate)
	return gate.Verdict != release.Pass
}

// previewEndpoints is the gate of the preview Service of a blue-green release. The switch itself publishes the endpoints of
// the active Service: whether Kubernetes knows the pods as ready shows in those of the preview Service. It holds what
// judges the preview and the pause for those who try it, too, and nothing after that pause has begun: a person who ends it
// must not be asked twice.
func (p *pass) previewEndpoints() release.Gate {
	b := p.Spec.Strategy.BlueGreen
	if active := p.set(p.selected(b.ActiveService)); p.fastTracked() || p.Status.ControllerPause || active.Available == 0 {
		return release.Passes("canary-endpoints", "")
	}
	return p.canaryEndpoints(b.PreviewService, p.new, p.new.Available)
}
