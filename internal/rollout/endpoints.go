package rollout

import (
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Routers send requests to the endpoints that Kubernetes has published, and learn of a pod a moment after its
// ReplicaSet has counted it as available. A Service whose selector was just switched publishes the pods of the previous
// revision until then. A revision therefore receives no additional traffic before its endpoints are published.
//
// Existing traffic remains, because a cache may show endpoints late. Two changes never wait for endpoints: a decrease,
// because users must leave a failing revision immediately, and traffic that no other revision could serve.

// ServicesWithEndpoints returns the Services of a strategy whose endpoints are observed: those between which a router
// divides the traffic, and the preview Service, which publishes the pods before they receive users. Without a router,
// pods receive traffic as soon as they are published.
func ServicesWithEndpoints(strategy argov1.RolloutStrategy) []string {
	c, b := strategy.Canary, strategy.BlueGreen
	switch {
	case c != nil && c.TrafficRouting != nil:
		return ServiceNames(strategy)
	case b != nil && b.PreviewService != "":
		return []string{b.PreviewService}
	default:
		return nil
	}
}

// canaryEndpointsPublished is the gate before a revision receives traffic through a Service.
func canaryEndpointsPublished(f facts, service string, rs ReplicaSet, needed int32) release.Gate {
	message, published := checkPublishedEndpoints(f, service, rs, needed)
	if !published {
		return release.NewWaitingGate("canary-endpoints", release.ByCluster, message)
	}
	return release.NewPassingGate("canary-endpoints", message)
}

// stableEndpointsPublished is the gate before the traffic of a promoted revision moves from its previous Service to its
// stable Service: it waits until the stable Service publishes all of its pods.
func stableEndpointsPublished(f facts, service string) release.Gate {
	message, published := checkPublishedEndpoints(f, service, f.stable, min(f.stable.Available, f.replicas()))
	if !published {
		return release.NewWaitingGate("stable-endpoints", release.ByCluster, message)
	}
	return release.NewPassingGate("stable-endpoints", message)
}

// checkPublishedEndpoints reports whether a Service publishes enough pods of a revision, or whether this is unknown,
// with a message for users.
func checkPublishedEndpoints(f facts, service string, rs ReplicaSet, needed int32) (message string, published bool) {
	name, selected := service+"."+f.Namespace, f.selectedHash(service)
	endpoints := f.Services[service].Endpoints[rs.Hash]
	switch {
	case f.Services[service].Endpoints == nil: // the route selects subsets of a Service that the strategy does not name
		return "", true
	case endpoints.Unknown != "":
		return endpoints.Unknown, true
	case selected != "" && selected != rs.Hash:
		return fmt.Sprintf("Service %s does not select the pods of %s yet", name, rs.Name), false
	case endpoints.AtLeast(needed):
		return endpoints.Message(), true
	case endpoints.Ready == 0:
		return fmt.Sprintf("Kubernetes has not published a pod of %s as an endpoint of Service %s yet, so no router knows it", rs.Name, name), false
	default:
		return fmt.Sprintf("Kubernetes has published %d of %d pods of %s as endpoints of Service %s so far", endpoints.Ready, needed, rs.Name, name), false
	}
}

// limitToEndpoints reduces a split to the traffic that can be served. Until the endpoints of the revision are
// published, it retains its recorded traffic as the canary, and unpublished is the gate that explains this. Its traffic as
// the stable revision was that of another Service.
func limitToEndpoints(f facts, desired trafficSplit) (split trafficSplit, gates release.Gates, unpublished *release.Gate) {
	headers, mirrors := routesForSplit(f, desired)
	if desired.weight == 0 && len(headers)+len(mirrors) == 0 || f.findReplicaSet(stableDestination(f)).Available == 0 {
		return desired, nil, nil
	}
	canary, _ := currentRouteServices(f)
	gate := canaryEndpointsPublished(f, canary, f.findReplicaSet(desired.canary), 1)
	if gate.Verdict == release.Pass {
		return desired, release.Gates{gate}, nil
	}
	limited, recordedWeight := desired, int32(0)
	if w := f.Status.Canary.Weights; w != nil && w.Canary.PodTemplateHash == desired.canary {
		recordedWeight = w.Canary.Weight
	}
	limited.weight, limited.onlyExistingRoutes = min(desired.weight, recordedWeight), true
	limitedHeaders, limitedMirrors := routesForSplit(f, limited)
	if limited.weight == desired.weight && len(limitedHeaders) == len(headers) && len(limitedMirrors) == len(mirrors) {
		return desired, nil, nil
	}
	return limited, release.Gates{gate}, &gate
}

// stableEndpointsGate returns the gate of a promoted revision whose traffic remains with its canary Service until its
// stable Service publishes all of its pods; nil: no traffic is to move. With pingPongServices, the Service that has the
// traffic has usually become the stable one by then.
func stableEndpointsGate(f facts, desired trafficSplit) *release.Gate {
	recordedWeights := f.Status.Canary.Weights
	if !isPromoted(f.Status) || f.stable.Available == 0 ||
		recordedWeights == nil || recordedWeights.Canary.Weight <= desired.weight || recordedWeights.Canary.PodTemplateHash != f.stable.Hash {
		return nil
	}
	canary, stable := currentRouteServices(f)
	if f.Spec.Strategy.Canary.PingPong != nil && recordedWeights.Canary.ServiceName != canary {
		return nil
	}
	gate := stableEndpointsPublished(f, stable)
	return &gate
}

// previewEndpointsPublished is the gate of the preview Service of a blue-green release. The endpoints of the active
// Service are published by the switch itself, so those of the preview Service show whether Kubernetes considers the
// pods ready. The analysis of the preview and the pause before the switch wait for this gate too. It passes once the
// pause has started: a user who ends the pause must not have to do so twice.
func previewEndpointsPublished(f facts) release.Gate {
	b := f.Spec.Strategy.BlueGreen
	if active := f.findReplicaSet(f.selectedHash(b.ActiveService)); shouldSkipPauses(f) || f.Status.ControllerPause || active.Available == 0 {
		return release.NewPassingGate("canary-endpoints", "")
	}
	return canaryEndpointsPublished(f, b.PreviewService, f.new, f.new.Available)
}

// previewReachable reports whether the pods of the preview are ready and published.
func previewReachable(f facts) bool {
	return previewReady(f) && previewEndpointsPublished(f).Verdict == release.Pass
}
