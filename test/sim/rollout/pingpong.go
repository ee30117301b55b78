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

// How some releases distinguish their two revisions instead of by one Service for each: by ping-pong Services, or by subsets of
// the pods behind one Service. Consul always uses subsets.
const (
	PingPong sim.FaultClass = "turns"
	Subsets  sim.FaultClass = "subsets"
)

// EditSubsets is the class of user actions on the subsets of a release.
const EditSubsets sim.FaultClass = "edit-subsets"

// pingPong returns the ping-pong Services, or nil if each revision has its own Service.
func (r *Release) pingPong() *argov1.PingPongSpec {
	if r.Spec.Strategy.Canary == nil {
		return nil
	}
	return r.Spec.Strategy.Canary.PingPong
}

// subsets returns the subsets of a release, or nil.
func (r *Release) subsets() *subsets {
	sides, _ := sidesOf(&r.Spec)
	return sides.subsets
}

// splitText describes how the revisions are distinguished, unless each has its own Service.
func (r *Release) splitText() string {
	switch subsets := r.subsets(); {
	case r.pingPong() != nil:
		return ", with ping-pong Services"
	case subsets != nil && r.Spec.Strategy.Canary.StableService == "":
		return ", with subsets only"
	case subsets != nil:
		return ", with subsets"
	default:
		return ""
	}
}

// usePingPong makes a release use ping-pong Services. The first release goes to ping: until then, pong is the stable Service.
func (r *Release) usePingPong() {
	c, apex := r.Spec.Strategy.Canary, r.apex()
	c.StableService, c.CanaryService = "", ""
	c.PingPong = &argov1.PingPongSpec{PingService: apex + "-ping", PongService: apex + "-pong"}
	r.network = []client.Object{
		r.newService(apex), r.newService(c.PingPong.PingService), r.newService(c.PingPong.PongService),
		r.newRoute(destination{Service: c.PingPong.PongService}, destination{Service: c.PingPong.PingService}),
	}
}

// The subsets of a release.
const (
	oldSubset = "old"
	newSubset = "new"
	ownSubset = "reports" // the user's own, which no Rollout names
)

// useSubsets makes a release use two subsets of the pods behind its Service. With services, it has a Service for each revision
// as well, which no route names.
func (r *Release) useSubsets(services bool) {
	c, apex := r.Spec.Strategy.Canary, r.apex()
	if r.Provider == actors.Istio {
		c.TrafficRouting.Istio.DestinationRule = &argov1.IstioDestinationRule{Name: apex, CanarySubsetName: newSubset, StableSubsetName: oldSubset}
	}
	r.network = []client.Object{r.newService(apex)}
	if services {
		r.network = append(r.network, r.newService(c.StableService), r.newService(c.CanaryService))
	} else {
		c.StableService, c.CanaryService = "", ""
	}
	r.network = append(r.network, r.newSubsets(), r.newRoute(destination{apex, oldSubset}, destination{apex, newSubset}))
}

// newSubsets returns the DestinationRule or the ServiceResolver as its user creates it.
func (r *Release) newSubsets() *unstructured.Unstructured {
	if r.Provider == actors.Consul {
		return userObject("consul.hashicorp.com/v1alpha1", "ServiceResolver", r.apex(), map[string]any{
			"connectTimeout": "5s", "defaultSubset": oldSubset, "loadBalancer": map[string]any{"policy": "least_request"},
			"subsets": map[string]any{
				ownSubset: map[string]any{"filter": "Service.Meta.reports == yes", "onlyPassing": true},
				oldSubset: map[string]any{"onlyPassing": true}, newSubset: map[string]any{"filter": "", "onlyPassing": true},
			},
		})
	}
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

// istioDestination returns the destination in the format of Istio.
func (p destination) istioDestination() map[string]any {
	if p.Subset == "" {
		return map[string]any{"host": p.Service}
	}
	return map[string]any{"host": p.Service, "subset": p.Subset}
}

// editSubsets writes the user's own copy of the subsets, adds another subset, or deletes the object for a while.
func (u *users) editSubsets(r *Release, s *sim.Stream) {
	which, number, delay := s.Int(0, 2), s.Int(1, 1000), s.Between(5*time.Second, 3*time.Minute)
	subsets := r.subsets()
	if subsets == nil {
		return
	}
	switch which {
	case 0:
		if u.UserClient.DeleteOf(r.Key, r.apex(), subsets.kind) {
			u.After(delay, func() { u.recreateObjects(r) })
		}
	case 1:
		own := r.newSubsets()
		if u.UserClient.Write("user", r.apex(), subsets.kind, func(o map[string]any) bool {
			o["spec"] = own.Object["spec"]
			return true
		}) {
			u.UserClient.TraceAction(r.Key, "write the subsets without revisions")
		}
	default:
		name := fmt.Sprintf("%s-%d", ownSubset, number)
		if u.UserClient.Write("user", r.apex(), subsets.kind, func(o map[string]any) bool {
			spec, _ := o["spec"].(map[string]any)
			if named, ofConsul := spec["subsets"].(map[string]any); ofConsul {
				named[name] = map[string]any{"filter": "Service.Meta.reports == yes"}
				return true
			}
			all := []any{map[string]any{"name": name, "labels": map[string]any{"app": r.Key.Name}}}
			for _, subset := range actors.Items(spec["subsets"]) {
				all = append(all, subset)
			}
			spec["subsets"] = all
			return true
		}) {
			u.UserClient.TraceAction(r.Key, "add subset %s", name)
		}
	}
}
