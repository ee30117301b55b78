package rollout

import (
	"fmt"
	"maps"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// planCanaryServices makes each Service of a canary strategy select the pods of the canary or of the stable revision.
func planCanaryServices(f facts) outcome {
	c := f.Spec.Strategy.Canary
	o := restoreServices(f)
	if c.PingPong != nil {
		canary, stable := pingPongServices(*c.PingPong, f.Status.Canary.StablePingPong)
		o = joinOutcomes(o, planServiceSelection(f, stable, f.stable, true))
		switch {
		case isPromoted(f.Status):
		case servesStableTraffic(f, canary):
			o = joinOutcomes(o, gateOutcome(release.NewWaitingGate("services", release.ByCluster,
				fmt.Sprintf("Service %s waits until the router sends the requests of %s to Service %s", canary, f.stable.Name, stable))))
		default:
			o = joinOutcomes(o, planServiceSelection(f, canary, f.new, canaryServiceHasTraffic(f)))
		}
	}
	o = joinOutcomes(o, planServiceSelection(f, c.StableService, f.stable, true))
	switch {
	case !f.Status.Abort:
		if returns, _ := returnsToStable(f); !returns {
			o = joinOutcomes(o, planServiceSelection(f, c.CanaryService, f.new, true))
		}
	case c.TrafficRouting == nil || stableCarriesAllTraffic(f):
		o = joinOutcomes(o, planServiceSelection(f, c.CanaryService, f.stable, true))
	}
	return o
}

// stableCarriesAllTraffic reports whether the aborted revision needs no weight any longer. Until then, the canary Service selects its
// pods: otherwise the stable pods would receive its weight, too.
func stableCarriesAllTraffic(f facts) bool {
	return retainedWeight(f, f.new) == 0 && stableShortfall(f, 0) == ""
}

// pingPongServices returns the two Services that swap roles.
func pingPongServices(names argov1.PingPongSpec, stableService argov1.PingPongType) (canary, stable string) {
	if stableService == argov1.Ping {
		return names.PongService, names.PingService
	}
	return names.PingService, names.PongService
}

// servesStableTraffic reports whether the ping-pong Service that is to select the new revision still has the traffic of the stable
// one: the status has lost which of them is the stable Service. The router moves the traffic to the other Service first.
func servesStableTraffic(f facts, canaryService string) bool {
	return f.hasDistinctStable() && f.stable.Available > 0 && f.selectedHash(canaryService) == f.stable.Hash &&
		recordedCanaryWeight(f.Status) == 0 && canaryServiceHasTraffic(f)
}

// canaryServiceHasTraffic reports whether the Service that is to select the new revision has traffic: from the previous
// release, because the status no longer contains the stable revision, or because the router may not have applied the
// weights yet. In this case, the Service is switched only when pods are available. Otherwise, it selects the new
// revision from the start, so that load balancers register the pods before they receive a weight.
func canaryServiceHasTraffic(f facts) bool {
	return f.Route.HasCanaryWeight || recordedCanaryWeight(f.Status) > 0 || f.routerUnconfirmed()
}

// planServiceSelection makes a Service select the pods of a revision. If guarded, it waits until some pods are
// available, or all pods if Serin did not manage the Service before, because it may then select other pods that serve
// requests.
func planServiceSelection(f facts, name string, rs ReplicaSet, guarded bool) outcome {
	if name == "" || !rs.exists() || rs.Hash == "" {
		return outcome{}
	}
	service := f.Services[name]
	managed, from := service.ManagedBy == f.Name, f.selectedHash(name)
	if managed && from == rs.Hash && !service.RecordOutdated {
		return outcome{}
	}
	if awaitsRouterPlugins(f, name, rs) {
		return gateOutcome(release.NewWaitingGate("services", release.ByCluster, fmt.Sprintf("Service %s waits until the router plugins have confirmed the current route", name)))
	}
	if needed := podsNeededForSelection(f, rs, managed); guarded && from != rs.Hash && rs.Available < needed {
		return gateOutcome(release.NewWaitingGate("services", release.ByCluster,
			fmt.Sprintf("Service %s waits for pods of %s: %d of %d available", name, rs.Name, rs.Available, needed)))
	}
	return outcome{trafficEffects: []release.Effect{ServiceSelects{Service: name, Hash: rs.Hash, From: from}}}
}

// podsNeededForSelection returns the number of available pods of a revision that a Service requires before it selects
// them.
func podsNeededForSelection(f facts, rs ReplicaSet, managed bool) int32 {
	needed := max(rs.SpecReplicas, 1)
	if managed {
		needed = 1
	}
	return min(needed, f.replicas()) // a Rollout scaled to zero serves no requests
}

// restoreServices restores Services that the strategy no longer names.
func restoreServices(f facts) outcome {
	var named []string
	for _, service := range namedServices(f.Spec.Strategy) {
		named = append(named, service.name)
	}
	var o outcome
	for _, name := range slices.Sorted(maps.Keys(f.Services)) {
		if f.Services[name].ManagedBy == f.Name && !slices.Contains(named, name) {
			o.trafficEffects = append(o.trafficEffects, ServiceRestored{Service: name})
		}
	}
	return o
}
