package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

func TestRouteServicesSwapForALBAndWithoutFixedServices(t *testing.T) {
	turns := &argov1.PingPongSpec{PingService: "ping", PongService: "pong"}
	for _, test := range []struct {
		name           string
		c              argov1.CanaryStrategy
		stableIs       argov1.PingPongType
		alb            bool
		canary, stable string
	}{
		{"fixed", argov1.CanaryStrategy{CanaryService: "c", StableService: "s"}, "", true, "c", "s"},
		{"fixed and turns", argov1.CanaryStrategy{CanaryService: "c", StableService: "s", PingPong: turns}, argov1.Ping, false, "c", "s"},
		{"fixed and turns, of ALB", argov1.CanaryStrategy{CanaryService: "c", StableService: "s", PingPong: turns}, argov1.Ping, true, "pong", "ping"},
		{"turns, before the first promotion", argov1.CanaryStrategy{PingPong: turns}, "", false, "ping", "pong"},
		{"turns, ping is stable", argov1.CanaryStrategy{PingPong: turns}, argov1.Ping, false, "pong", "ping"},
		{"turns, pong is stable", argov1.CanaryStrategy{PingPong: turns}, argov1.Pong, false, "ping", "pong"},
	} {
		if canary, stable := routeServices(test.c, test.stableIs, test.alb); canary != test.canary || stable != test.stable {
			t.Errorf("%s: %s and %s, want %s and %s", test.name, canary, stable, test.canary, test.stable)
		}
	}
}

func TestManagedRoutesAreThoseOfTheStepsUpToTheCurrentOne(t *testing.T) {
	header := func(name string, matches int) argov1.CanaryStep {
		return argov1.CanaryStep{SetHeaderRoute: &argov1.SetHeaderRoute{Name: name, Match: make([]argov1.HeaderRoutingMatch, matches)}}
	}
	mirror := func(name string, matches int) argov1.CanaryStep {
		return argov1.CanaryStep{SetMirrorRoute: &argov1.SetMirrorRoute{Name: name, Match: make([]argov1.RouteMatch, matches)}}
	}
	steps := []argov1.CanaryStep{header("a", 1), setWeight(10), mirror("b", 1), header("a", 2), mirror("b", 0), header("a", 0)}
	for at, want := range []string{"a 1", "a 1", "a 1 b 1", "a 2 b 1", "a 2", "", ""} {
		headers, mirrors := managedRoutes(steps, new(int32(at)))
		var got []string
		for _, h := range headers {
			got = append(got, fmt.Sprint(h.Name, " ", len(h.Match)))
		}
		for _, m := range mirrors {
			got = append(got, fmt.Sprint(m.Name, " ", len(m.Match)))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("at step %d: %q, want %q", at, text, want)
		}
	}
	if headers, mirrors := managedRoutes(steps, nil); headers != nil || mirrors != nil {
		t.Errorf("without an index: %v, %v", headers, mirrors)
	}
}

func TestImbalanceNamesItsStep(t *testing.T) {
	routed := func(steps ...argov1.CanaryStep) argov1.RolloutSpec {
		return argov1.RolloutSpec{Replicas: new(int32(10)), Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{
			Steps: steps, TrafficRouting: &argov1.RolloutTrafficRouting{},
		}}}
	}
	basic := routed(scaleLike(10), setWeight(90))
	basic.Strategy.Canary.TrafficRouting = nil
	for _, test := range []struct {
		name string
		spec argov1.RolloutSpec
		from int32
		want string
	}{
		{"pods follow", routed(setWeight(90)), 0, ""},
		{"twice the share is fine", routed(scaleTo(2), setWeight(40)), 0, ""},
		{"one pod for all but a tenth", routed(scaleLike(10), setWeight(90)), 0, "step 2 (setWeight: 90) routes 90/100 of the traffic to 1 pod, 9 would be proportionate"},
		{"later", routed(scaleLike(10), setWeight(90), pauseFor("")), 2, "step 2 (setWeight: 90) routes 90/100 of the traffic to 1 pod, 9 would be proportionate"},
		{"pods taken away", routed(setWeight(50), scaleTo(0)), 0, "step 2 (setCanaryScale{replicas: 0}) routes 50/100 of the traffic to 0 pods, 5 would be proportionate"},
		{"over", routed(scaleLike(10), setWeight(90), scaleFollow), 2, ""},
		{"without a router", basic, 0, ""},
		{"behind the last step", routed(scaleLike(10), setWeight(90)), 2, ""},
		{"nonsense", routed(scaleLike(10), setWeight(90)), -4, "step 2 (setWeight: 90) routes 90/100 of the traffic to 1 pod, 9 would be proportionate"},
	} {
		if got := describeImbalance(test.spec, test.from); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestWeightReturnsWithItsPods: a revision whose pods all failed loses its users immediately, and regains them when it
// has enough pods again, not with the first one.
func TestWeightReturnsWithItsPods(t *testing.T) {
	w := worldInFirstPause(t, 3, setWeight(100), pauseFor(""))
	for _, step := range []struct {
		available, weight int32
		waits             string
	}{
		{0, 0, ""}, {1, 0, "weight 100 waits for pods: 1 of 3 new pods available"}, {3, 100, ""},
	} {
		w.ready["hash-v2"] = step.available
		w.settle(t)
		var waits string
		for _, gate := range w.last.Gates {
			if gate.Name == "canary-capacity" && gate.Verdict != release.Pass {
				waits = gate.Message
			}
		}
		if got := w.route.Weights.Canary.Weight; got != step.weight || waits != step.waits {
			t.Errorf("with %d pods weight %d, which waits for %q; want %d and %q", step.available, got, waits, step.weight, step.waits)
		}
	}
}

// TestSubsetsDoNotLoseTheirPods: a subset selects pods that exist before and after a change, whatever the status
// records. A proxy may have a weight for it that is not in the route anymore.
func TestSubsetsDoNotLoseTheirPods(t *testing.T) {
	for _, test := range []struct {
		name                   string
		setUp                  func(w *world)
		wantCanary, wantStable string
		wantWeight             int32
	}{
		{"the other revision has no pods yet", func(w *world) {
			w.ready["hash-v2"] = 0
			w.observedRoute = Route{CanaryHash: "hash-v1", StableHash: "hash-v1"}
		}, "hash-v1", "hash-v1", 0},
		{"it has pods", func(w *world) {
			w.observedRoute = Route{CanaryHash: "hash-v1", StableHash: "hash-v1"}
		}, "hash-v2", "hash-v1", 50},
		{"the status was lost, and its stable revision never had pods", func(w *world) {
			w.status.Canary.Weights, w.status.StableRS = nil, "hash-v0"
			w.sets = append(w.sets, ReplicaSet{Name: "cart-hash-v0", Hash: "hash-v0", Created: w.tick()})
			w.ready["hash-v0"] = 0
			w.observedRoute = Route{CanaryHash: "hash-v2", StableHash: "hash-v1"}
		}, "hash-v2", "hash-v1", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := worldInFirstPause(t, 2, setWeight(50), pauseFor(""))
			test.setUp(w)
			w.runControllers()
			f := observeFacts(w.snapshot(t))
			weights := weightsForSplit(f, desiredSplit(f))
			if weights.Canary.PodTemplateHash != test.wantCanary || weights.Stable.PodTemplateHash != test.wantStable || weights.Canary.Weight != test.wantWeight {
				t.Errorf("canary %d to %s, stable to %s; want %d to %s, and %s", weights.Canary.Weight, weights.Canary.PodTemplateHash,
					weights.Stable.PodTemplateHash, test.wantWeight, test.wantCanary, test.wantStable)
			}
			if !isReferenced(f, test.wantStable) {
				t.Errorf("the pods of %s, which a subset selects, are not referenced", test.wantStable)
			}
		})
	}
}

// TestNoManagedRouteLeadsToAFormerRevision: while the recorded weight stays with a revision that was aborted, because neither it
// nor the stable one has pods, the managed routes of the next revision are not added: they would lead to the same subset.
func TestNoManagedRouteLeadsToAFormerRevision(t *testing.T) {
	header := argov1.CanaryStep{SetHeaderRoute: &argov1.SetHeaderRoute{Name: "by-header", Match: make([]argov1.HeaderRoutingMatch, 1)}}
	w := worldInFirstPause(t, 2, scaleTo(1), header, pauseFor(""))
	w.sets = append(w.sets, ReplicaSet{Name: "cart-hash-v0", Hash: "hash-v0", Created: w.tick()})
	w.ready["hash-v0"], w.ready["hash-v1"], w.ready["hash-v2"] = 0, 0, 1
	w.status.Canary.Weights = &argov1.TrafficWeights{
		Canary: argov1.WeightDestination{Weight: 100, PodTemplateHash: "hash-v0"}, Stable: argov1.WeightDestination{PodTemplateHash: "hash-v1"},
	}
	w.observedRoute = Route{CanaryHash: "hash-v0", StableHash: "hash-v1", HasCanaryWeight: true}
	w.route.Headers = nil
	w.runControllers()
	plan := planTraffic(observeFacts(w.snapshot(t)))
	if len(plan.trafficEffects) == 0 {
		t.Fatal("got no traffic effect")
	}
	for _, effect := range plan.trafficEffects {
		route, ok := effect.(TrafficRouted)
		if to := route.Weights.Canary.PodTemplateHash; ok && to != "hash-v2" && len(route.Headers) > 0 {
			t.Errorf("got header route %s to %s, want none until the route selects hash-v2", route.Headers[0].Name, to)
		}
	}
}

// TestOnlyTrafficOfTheCanaryServiceRemainsWithoutEndpoints: a revision that is not published by the canary Service yet keeps the
// weight that it has there, not the weight that it had through the stable Service before the two exchanged their roles.
func TestOnlyTrafficOfTheCanaryServiceRemainsWithoutEndpoints(t *testing.T) {
	for _, test := range []struct {
		name, canary, stable string
		want                 int32
	}{
		{"as the canary", "hash-v2", "hash-v1", 34},
		{"as the stable revision", "hash-v1", "hash-v2", 0},
		{"of another revision", "hash-v0", "hash-v1", 0},
	} {
		w := worldInFirstPause(t, 3, setWeight(80), pauseFor(""))
		w.runControllers()
		s := w.snapshot(t)
		s.Status.Canary.Weights = &argov1.TrafficWeights{
			Canary: argov1.WeightDestination{Weight: 34, PodTemplateHash: test.canary}, Stable: argov1.WeightDestination{Weight: 66, PodTemplateHash: test.stable},
		}
		s.Services["canary"] = Service{
			Found: true, Selector: map[string]string{argov1.PodTemplateHashLabel: "hash-v2"}, ManagedBy: s.Name, Endpoints: map[string]release.Endpoints{"hash-v2": {}},
		}
		f := observeFacts(s)
		if split, _, _ := limitToEndpoints(f, trafficSplit{weight: 80, canary: "hash-v2"}); split.weight != test.want {
			t.Errorf("%s: got weight %d, want %d", test.name, split.weight, test.want)
		}
	}
}

// TestALostStatusGivesNoWeightWithoutPods: where the weights were not recorded, missing pods keep the weight at zero,
// unless the route already has one.
func TestALostStatusGivesNoWeightWithoutPods(t *testing.T) {
	for _, hasWeight := range []bool{false, true} {
		w := worldInFirstPause(t, 4, setWeight(50), setWeight(100), pauseFor(""))
		w.ready["hash-v2"] = 1
		w.status.Canary.Weights = nil
		w.observedRoute.HasCanaryWeight = hasWeight
		w.runControllers()
		f := observeFacts(w.snapshot(t))
		want := map[bool]int32{false: 0, true: 100}[hasWeight]
		if got := desiredSplit(f); got.weight != want || hasWeight != (got.weightRequirement == "") {
			t.Errorf("route with weight %t: weight %d, which waits for %q; want %d", hasWeight, got.weight, got.weightRequirement, want)
		}
	}
}

// TestALostStableServiceLosesNoRequest: the status has lost which of the ping-pong Services is the stable one, and the one that
// has all the traffic counts as that of the new revision. It selects other pods only after the router has moved the traffic.
func TestALostStableServiceLosesNoRequest(t *testing.T) {
	for _, test := range []struct {
		name string
		// ping and pong are the revisions that the Services select, unpublished the Service without endpoints.
		ping, pong, unpublished string
		routeHasWeight          bool
		stablePods              int32
		wantServices, wantRoute string
	}{
		{"the other Service selects the new revision", "hash-v1", "hash-v2", "pong", true, 2, "pong=hash-v1", ""},
		{"its endpoints are not published", "hash-v1", "hash-v1", "pong", true, 2, "", ""},
		{"it serves the stable revision", "hash-v1", "hash-v1", "", true, 2, "", "ping 0 pong 100"},
		{"the traffic has moved", "hash-v1", "hash-v1", "", false, 2, "ping=hash-v2", "ping 20 pong 80"},
		{"the stable revision has no pods", "hash-v1", "hash-v1", "", true, 0, "ping=hash-v2", "ping 20 pong 80"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := worldInFirstPause(t, 2, setWeight(20), pauseFor(""))
			c := w.spec.Strategy.Canary
			c.CanaryService, c.StableService, c.PingPong = "", "", &argov1.PingPongSpec{PingService: "ping", PongService: "pong"}
			w.settle(t)
			w.status.Canary.StablePingPong, w.status.Canary.Weights = "", nil
			w.observedRoute.HasCanaryWeight = test.routeHasWeight
			w.ready["hash-v1"] = test.stablePods
			w.runControllers()
			s := w.snapshot(t)
			s.Services = map[string]Service{
				"ping": {Selector: map[string]string{argov1.PodTemplateHashLabel: test.ping}, ManagedBy: s.Name},
				"pong": {Selector: map[string]string{argov1.PodTemplateHashLabel: test.pong}, ManagedBy: s.Name},
			}
			if test.unpublished != "" {
				service := s.Services[test.unpublished]
				service.Endpoints = map[string]release.Endpoints{"hash-v1": {}}
				s.Services[test.unpublished] = service
			}
			f := observeFacts(s)
			var services, route []string
			for _, effect := range planCanaryServices(f).trafficEffects {
				if e, ok := effect.(ServiceSelects); ok {
					services = append(services, e.Service+"="+e.Hash)
				}
			}
			if weights := planTraffic(f).weights; weights != nil {
				route = []string{fmt.Sprintf("%s %d %s %d", weights.Canary.ServiceName, weights.Canary.Weight, weights.Stable.ServiceName, weights.Stable.Weight)}
			}
			if got := strings.Join(services, " "); got != test.wantServices {
				t.Errorf("Services %q, want %q", got, test.wantServices)
			}
			if got := strings.Join(route, " "); got != test.wantRoute {
				t.Errorf("route %q, want %q", got, test.wantRoute)
			}
		})
	}
}

// TestWeightDecreasesWithReservedPods runs a release whose steps reserve all pods for the canary, and then decrease the weight: the
// stable revision, whose pods followed its traffic, must get them back first.
func TestWeightDecreasesWithReservedPods(t *testing.T) {
	w := newWorld(argov1.RolloutSpec{Replicas: new(int32(4))})
	w.spec.Strategy.Canary = &argov1.CanaryStrategy{
		CanaryService: "canary", StableService: "stable", TrafficRouting: &argov1.RolloutTrafficRouting{}, DynamicStableScale: true,
		Steps: []argov1.CanaryStep{scaleLike(100), setWeight(50), pauseFor("5"), setWeight(20), pauseFor("")},
	}
	w.settle(t)
	w.template = "v2"
	w.generation++
	w.settle(t)
	w.advanceTo(t, w.now.Add(time.Minute))
	if got, weight := *w.status.CurrentStepIndex, w.route.Weights.Canary.Weight; got != 4 || weight != 20 {
		t.Errorf("step %d with weight %d, want 4 with 20", got, weight)
	}
	if stable := w.replicaSet("cart-hash-v1"); stable.Available != 4 {
		t.Errorf("%d stable pods available, want 4", stable.Available)
	}
}
