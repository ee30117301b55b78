package rollout

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// How some releases tell their two revisions apart, where most have a Service for each: by two Services that take turns, or
// by subsets of the pods behind one Service.
const (
	PingPong sim.FaultClass = "turns"
	Subsets  sim.FaultClass = "subsets"
)

// EditSubsets is what users do to the subsets of a release.
const EditSubsets sim.FaultClass = "edit-subsets"

// pingPong are the Services that take turns; nil: the two sides have one each.
func (r *Release) pingPong() *argov1.PingPongSpec {
	if r.Spec.Strategy.Canary == nil {
		return nil
	}
	return r.Spec.Strategy.Canary.PingPong
}

// subsets names those of a release; nil: it has none.
func (r *Release) subsets() *argov1.IstioDestinationRule {
	of, _ := sidesOf(&r.Spec)
	return of.rule
}

// splitText describes how the revisions are distinguished, unless each has its own Service.
func (r *Release) splitText() string {
	switch rule := r.subsets(); {
	case r.pingPong() != nil:
		return ", taking turns"
	case rule != nil && r.Spec.Strategy.Canary.StableService == "":
		return ", by subsets alone"
	case rule != nil:
		return ", by subsets"
	default:
		return ""
	}
}

// withPingPong gives a release two Services that take turns. The first release goes to ping: until then pong counts as the
// stable one.
func (r *Release) withPingPong() {
	c, apex := r.Spec.Strategy.Canary, r.apex()
	c.StableService, c.CanaryService = "", ""
	c.PingPong = &argov1.PingPongSpec{PingService: apex + "-ping", PongService: apex + "-pong"}
	r.network = []client.Object{
		r.service(apex), r.service(c.PingPong.PingService), r.service(c.PingPong.PongService),
		r.route(place{Service: c.PingPong.PongService}, place{Service: c.PingPong.PingService}),
	}
}

// The subsets of a release.
const (
	oldSubset = "old"
	newSubset = "new"
	ownSubset = "reports" // the user's own, which no Rollout names
)

// withSubsets gives a release two subsets of the pods behind its Service. With services it has one for each side as well, which
// no route names.
func (r *Release) withSubsets(services bool) {
	c, apex := r.Spec.Strategy.Canary, r.apex()
	c.TrafficRouting.Istio.DestinationRule = &argov1.IstioDestinationRule{Name: apex, CanarySubsetName: newSubset, StableSubsetName: oldSubset}
	r.network = []client.Object{r.service(apex)}
	if services {
		r.network = append(r.network, r.service(c.StableService), r.service(c.CanaryService))
	} else {
		c.StableService, c.CanaryService = "", ""
	}
	r.network = append(r.network, r.rule(), r.route(place{apex, oldSubset}, place{apex, newSubset}))
}

// rule is the DestinationRule as its user makes it.
func (r *Release) rule() client.Object {
	pooled := map[string]any{"connectionPool": map[string]any{"http": map[string]any{"maxRequestsPerConnection": int64(10)}}}
	return userObject("networking.istio.io/v1beta1", "DestinationRule", r.apex(), map[string]any{
		"host": r.apex(), "trafficPolicy": map[string]any{"loadBalancer": map[string]any{"simple": "LEAST_REQUEST"}},
		"subsets": []any{
			map[string]any{"name": ownSubset, "labels": map[string]any{"app": r.Key.Name, "reports": "yes"}, "trafficPolicy": pooled},
			map[string]any{"name": oldSubset, "labels": map[string]any{"app": r.Key.Name}},
			map[string]any{"name": newSubset, "trafficPolicy": map[string]any{"tls": map[string]any{"mode": "ISTIO_MUTUAL"}}},
		},
	})
}

// destination is a place as Istio names it.
func (p place) destination() map[string]any {
	if p.Subset == "" {
		return map[string]any{"host": p.Service}
	}
	return map[string]any{"host": p.Service, "subset": p.Subset}
}

// editSubsets writes the user's own copy of the subsets, or another one beside them, or takes the object away for a while.
func (p *users) editSubsets(r *Release, s *sim.Stream) {
	which, stamp, back := s.Int(0, 2), s.Int(1, 1000), s.Between(5*time.Second, 3*time.Minute)
	if r.subsets() == nil {
		return
	}
	switch which {
	case 0:
		if p.userClient.DeleteOf(r.Key, r.apex(), actors.DestinationRuleKind) {
			p.After(back, func() { p.mendAround(r) })
		}
	case 1:
		own, _ := r.rule().(*unstructured.Unstructured)
		if p.userClient.Write("user", r.apex(), actors.DestinationRuleKind, func(o map[string]any) bool {
			o["spec"] = own.Object["spec"]
			return true
		}) {
			p.userClient.TraceAction(r.Key, "write the subsets without revisions")
		}
	default:
		added := map[string]any{"name": fmt.Sprintf("%s-%d", ownSubset, stamp), "labels": map[string]any{"app": r.Key.Name}}
		if p.userClient.Write("user", r.apex(), actors.DestinationRuleKind, func(o map[string]any) bool {
			spec, _ := o["spec"].(map[string]any)
			all := []any{added}
			for _, subset := range actors.Items(spec["subsets"]) {
				all = append(all, subset)
			}
			spec["subsets"] = all
			return true
		}) {
			p.userClient.TraceAction(r.Key, "add subset %s", added["name"])
		}
	}
}
