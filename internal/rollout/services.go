package rollout

import (
	"fmt"
	"maps"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// selectCanaryPods makes each Service of a canary strategy select the pods of the canary or of the stable revision.
func selectCanaryPods(f facts) outcome {
	c := f.Spec.Strategy.Canary
	o := releaseServices(f)
	if c.PingPong != nil {
		canary, stable := pingPong(*c.PingPong, f.Status.Canary.StablePingPong)
		o = join(o, selectPods(f, stable, f.stable, true))
		if !promoted(f.Status) {
			o = join(o, selectPods(f, canary, f.new, canaryServiceHasTraffic(f)))
		}
	}
	o = join(o, selectPods(f, c.StableService, f.stable, true))
	switch {
	case !f.Status.Abort:
		if back, _ := returnsToStable(f); !back {
			o = join(o, selectPods(f, c.CanaryService, f.new, true))
		}
	case c.TrafficRouting == nil:
		o = join(o, selectPods(f, c.CanaryService, f.stable, true))
	case !c.DynamicStableScale || routedPods(f, nil).RemainingWeight() == 0: // else it has its weight until the stable revision can carry it
		o = join(o, selectPods(f, c.CanaryService, f.stable, true))
	}
	return o
}

// pingPong returns the two Services that swap roles.
func pingPong(names argov1.PingPongSpec, stableIs argov1.PingPongType) (canary, stable string) {
	if stableIs == argov1.Ping {
		return names.PongService, names.PingService
	}
	return names.PingService, names.PongService
}

// canaryServiceHasTraffic reports whether the Service that is to select the new revision has traffic: of the previous
// release, or because the status no longer contains the stable revision; or whether it may have traffic until the
// router serves the configured weights. Then the Service waits for pods. Usually it selects them from the first on, so
// that load balancers that register pods know them before the weight comes.
func canaryServiceHasTraffic(f facts) bool {
	return f.Router.HasCanaryWeight || recordedCanaryWeight(f.Status) > 0 || f.routerLags()
}

// selectPods makes a Service select the pods of a revision. Guarded, it waits until some are available; until all are
// where the Service was not managed before, and may therefore have other pods to send its requests to.
func selectPods(f facts, name string, rs ReplicaSet, guarded bool) outcome {
	if name == "" || !rs.exists() || rs.Hash == "" {
		return outcome{}
	}
	service := f.Services[name]
	managed, from := service.ManagedBy == f.Name, f.selected(name)
	if managed && from == rs.Hash && !service.Stale {
		return outcome{}
	}
	if needed := podsForSelection(f, rs, managed); guarded && from != rs.Hash && rs.Available < needed {
		return gated(release.WaitsFor("services", release.ByCluster,
			fmt.Sprintf("%s selects %s when %d of its pods are available, %d are", name, rs.Name, needed, rs.Available)))
	}
	return outcome{route: []release.Effect{ServiceSelects{Service: name, Hash: rs.Hash, From: from}}}
}

// podsForSelection is the number of available pods that a revision needs before a Service selects it.
func podsForSelection(f facts, rs ReplicaSet, managed bool) int32 {
	needed := max(rs.Spec, 1)
	if managed {
		needed = 1
	}
	return min(needed, f.replicas()) // a Rollout without pods serves no requests
}

// releaseServices restores Services that the strategy does not name anymore.
func releaseServices(f facts) outcome {
	var named []string
	for _, service := range servicesOf(f.Spec.Strategy) {
		named = append(named, service.name)
	}
	var o outcome
	for _, name := range slices.Sorted(maps.Keys(f.Services)) {
		if f.Services[name].ManagedBy == f.Name && !slices.Contains(named, name) {
			o.route = append(o.route, ServiceReleased{Service: name})
		}
	}
	return o
}
