package rollout

import (
	"fmt"
	"maps"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// canaryServices let each Service select the pods of its side.
func (p *pass) canaryServices() {
	p.releaseServices()
	c := p.Spec.Strategy.Canary
	if c.PingPong != nil {
		canary, stable := pingPong(*c.PingPong, p.Status.Canary.StablePingPong)
		p.selects(stable, p.stable, true)
		if !promoted(p.Status) {
			p.selects(canary, p.new, p.carries())
		}
	}
	p.selects(c.StableService, p.stable, true)
	switch {
	case !p.Status.Abort:
		if back, _ := p.goingBack(); !back {
			p.selects(c.CanaryService, p.new, true)
		}
	case c.TrafficRouting == nil:
		p.selects(c.CanaryService, p.stable, true)
	case !c.DynamicStableScale || p.routed().DynamicWeight() == 0:
		p.selects(c.CanaryService, p.stable, true) // it has its weight until the stable revision can carry it
	}
}

// pingPong are the two Services that take turns.
func pingPong(names argov1.PingPongSpec, stableIs argov1.PingPongType) (canary, stable string) {
	if stableIs == argov1.Ping {
		return names.PongService, names.PingService
	}
	return names.PingService, names.PongService
}

// carries is true where the Service that is to get the new revision has traffic, of what was on its way before or because the
// status does not know any more who is the stable one, or may have some until the router serves what it was told. Then it
// waits for pods; usually it has them from the first on, so that whoever registers pods knows them before the weight comes.
func (p *pass) carries() bool {
	return p.Router.Carries || recordedWeight(p.Status) > 0 || p.lags()
}

// selects makes a Service select the pods of a revision. Guarded, it waits until there are some; all of them where the
// Service was not managed before, and so may have others to send its requests to.
func (p *pass) selects(name string, rs ReplicaSet, guarded bool) {
	if name == "" || !rs.exists() || rs.Hash == "" {
		return
	}
	service := p.Services[name]
	managed, from := service.ManagedBy == p.Name, service.Selector[argov1.PodTemplateHashLabel]
	if managed && from == rs.Hash && !service.Stale {
		return
	}
	if needed := p.needed(rs, managed); guarded && from != rs.Hash && rs.Available < needed {
		p.gate(release.WaitsFor("services", release.ByCluster, fmt.Sprintf("%s selects %s when %d of its pods are available, %d are", name, rs.Name, needed, rs.Available)))
		return
	}
	p.move = append(p.move, ServiceSelects{Service: name, Hash: rs.Hash, From: from})
}

// needed is how many pods a revision must have available for a Service to select it.
func (p *pass) needed(rs ReplicaSet, managed bool) int32 {
	needed := max(rs.Spec, 1)
	if managed {
		needed = 1
	}
	return min(needed, p.replicas()) // a Rollout without pods serves nobody
}

// releaseServices gives Services back that the strategy does not name any more.
func (p *pass) releaseServices() {
	var named []string
	for _, service := range servicesOf(p.Spec.Strategy) {
		named = append(named, service.name)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Services)) {
		if p.Services[name].ManagedBy == p.Name && !slices.Contains(named, name) {
			p.move = append(p.move, ServiceReleased{Service: name})
		}
	}
}
