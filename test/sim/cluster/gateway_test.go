package cluster_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
)

func cart(provider string) cluster.Route {
	return cluster.Route{
		Release: named("cart"), Namespace: "shop", Provider: provider, Apex: "cart", Primary: "cart-primary", Canary: "cart-canary",
	}
}

func httpRoute(primary, canary int64) map[string]any {
	return map[string]any{
		"parentRefs": []any{map[string]any{"name": "public"}},
		"rules": []any{map[string]any{"backendRefs": []any{
			map[string]any{"name": "cart-primary", "port": int64(80), "weight": primary},
			map[string]any{"name": "cart-canary", "port": int64(80), "weight": canary},
		}}},
	}
}

func virtualServiceOf(primary, canary int64) map[string]any {
	to := func(host string, weight int64) any {
		return map[string]any{"destination": map[string]any{"host": host}, "weight": weight}
	}
	return map[string]any{
		"hosts": []any{"cart"},
		"http":  []any{map[string]any{"route": []any{to("cart-primary", primary), to("cart-canary.shop.svc.cluster.local", canary)}}},
	}
}

func openShiftRoute(primary, canary int64) map[string]any {
	return map[string]any{
		"to":                map[string]any{"kind": "Service", "name": "cart-primary", "weight": primary},
		"alternateBackends": []any{map[string]any{"kind": "Service", "name": "cart-canary", "weight": canary}},
	}
}

func httpProxy(primary, canary int64) map[string]any {
	to := func(name string, weight int64) map[string]any {
		return map[string]any{"name": name, "port": int64(80), "weight": weight}
	}
	mirror := to("cart-canary", 10)
	mirror["mirror"] = true
	return map[string]any{"routes": []any{map[string]any{"services": []any{to("cart-primary", primary), to("cart-canary", canary), mirror}}}}
}

func routeTable(primary, canary int64) map[string]any {
	to := func(name string, weight int64) any {
		return map[string]any{"destination": map[string]any{"upstream": map[string]any{"name": name, "namespace": "shop"}}, "weight": weight}
	}
	return map[string]any{"routes": []any{map[string]any{
		"routeAction": map[string]any{"multi": map[string]any{"destinations": []any{to("cart-primary", primary), to("cart-canary", canary)}}},
	}}}
}

func serviceSplitter(primary, canary int64) map[string]any {
	return map[string]any{"splits": []any{
		map[string]any{"service": "cart-primary", "weight": primary}, map[string]any{"service": "cart-canary", "weight": canary},
	}}
}

// pair deploys both versions and their Services.
func (s *stage) pair(canary int64) {
	s.deploy("cart", "v2", canary, nil)
	s.deploy("cart-primary", "v1", 2, nil)
	s.serve("cart", "cart-primary")
	s.serve("cart-primary", "cart-primary")
	s.serve("cart-canary", "cart")
}

// seen collects the events of a type.
func seen[T any](s *stage) *[]T {
	var all []T
	s.Subscribe(func(event any) {
		if one, ok := event.(T); ok {
			all = append(all, one)
		}
	})
	return &all
}

func TestReplicasApplyWeightsIndependently(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		provider string
		kind     schema.GroupVersionKind
		spec     func(primary, canary int64) map[string]any
	}{
		{"gatewayapi:v1", httpRoutes, httpRoute},
		{"istio", virtualService, virtualServiceOf},
		{"openshift", openShiftRoutes, openShiftRoute},
		{"contour", httpProxies, httpProxy},
		{"gloo", routeTables, routeTable},
		{"consul", serviceSplitters, serviceSplitter},
	} {
		t.Run(test.provider, func(t *testing.T) {
			t.Parallel()
			s := &stage{routes: []cluster.Route{cart(test.provider)}}
			var written time.Time
			var traffic *[]cluster.Traffic
			s.begin = func(s *stage) {
				traffic = seen[cluster.Traffic](s)
				s.pair(2)
				s.create(test.kind, "cart", test.spec(100, 0))
				s.After(2*time.Minute, func() { s.edit(test.kind, test.spec(60, 40)); written = s.Now() })
			}
			s.end = func(s *stage) {
				var at []time.Time
				for _, change := range *traffic {
					if change.At.After(written) && change.Weight("cart-canary") == 40 && change.Weight("cart-primary") == 60 {
						at = append(at, change.At)
					}
				}
				if len(at) != 2 || at[0].Equal(at[1]) {
					t.Errorf("want each replica to apply the weights independently, got %v", *traffic)
				}
				for i, d := range s.gateway.Traffic(named("cart")) {
					if d.Replica != i || !d.Routed || d.Weight("cart-canary") != 40 || d.Weights[1].Known != 2 || d.Weights[1].Ready != 2 {
						t.Errorf("want replica %d at 40 with two endpoints, got %v", i, d)
					}
				}
			}
			s.playFaultFree(t)
		})
	}
}

// TestUpstreamsNameTheirServices verifies that a replica of Gloo Edge sends requests to the Service that an Upstream names, also
// after the Upstream changes.
func TestUpstreamsNameTheirServices(t *testing.T) {
	t.Parallel()
	s := &stage{routes: []cluster.Route{cart("gloo")}}
	to := func(service string) map[string]any {
		return map[string]any{"kube": map[string]any{"serviceName": service, "serviceNamespace": "shop", "servicePort": int64(80)}}
	}
	check := func(s *stage, service string) {
		for i, d := range s.gateway.Traffic(named("cart")) {
			if d.Weight(service) != 100 {
				t.Errorf("want all requests of replica %d sent to %s, got %v", i, service, d)
			}
		}
	}
	s.begin = func(s *stage) {
		s.pair(2)
		s.create(upstreams, "cart", to("cart-primary"))
		s.create(routeTables, "cart", map[string]any{"routes": []any{map[string]any{
			"routeAction": map[string]any{"multi": map[string]any{"destinations": []any{map[string]any{
				"destination": map[string]any{"upstream": map[string]any{"name": "cart", "namespace": "shop"}}, "weight": int64(1),
			}}}},
		}}})
		s.After(2*time.Minute, func() {
			check(s, "cart-primary")
			s.edit(upstreams, to("cart-canary"))
		})
	}
	s.end = func(s *stage) { check(s, "cart-canary") }
	s.playFaultFree(t)
}

func TestRouteWithoutPodsLosesRequests(t *testing.T) {
	t.Parallel()
	s := &stage{routes: []cluster.Route{cart("gatewayapi:v1")}}
	var lost *[]cluster.RequestsLost
	var restored *[]cluster.RequestsRestored
	s.begin = func(s *stage) {
		s.pair(0)
		s.create(httpRoutes, "cart", httpRoute(100, 0))
		s.After(2*time.Minute, func() {
			lost, restored = seen[cluster.RequestsLost](s), seen[cluster.RequestsRestored](s)
			s.edit(httpRoutes, httpRoute(60, 40))
		})
		s.After(4*time.Minute, func() { s.edit(deployments, map[string]any{"replicas": int64(1)}) })
	}
	s.end = func(s *stage) {
		var why [2][]cluster.LossReason
		for _, l := range *lost {
			if l.Service != "cart-canary" || !l.TrafficRemoved.IsZero() {
				t.Errorf("want the canary's requests lost, got %+v", l)
			}
			why[l.Replica] = append(why[l.Replica], l.Why)
		}
		for i := range why {
			if len(why[i]) == 0 || why[i][0] != cluster.NoPods {
				t.Errorf("want requests lost by replica %d, because no pod answers; got %v", i, why[i])
			}
		}
		if len(*restored) != len(*lost) {
			t.Errorf("want each loss to end, got %v of %v", *restored, *lost)
		}
	}
	s.playFaultFree(t)
}

func TestRequestsAreNotLostWhenTrafficIsRemovedFirst(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		s := &stage{routes: []cluster.Route{cart("gatewayapi:v1")}}
		s.begin = func(s *stage) {
			s.pair(2)
			s.create(httpRoutes, "cart", httpRoute(100, 0))
			s.After(2*time.Minute, func() {
				lost := seen[cluster.RequestsLost](s)
				s.edit(httpRoutes, httpRoute(60, 40))
				s.After(time.Minute, func() { s.edit(httpRoutes, httpRoute(100, 0)) })
				s.After(time.Minute+5*time.Second, func() { s.edit(deployments, map[string]any{"replicas": int64(0)}) })
				s.After(4*time.Minute, func() {
					if len(*lost) > 0 {
						s.Errorf("seed %d: want no request lost, got %+v", seed, *lost)
					}
				})
			})
		}
		if s.play(t, sim.Options{Seed: seed, FaultFree: true}); t.Failed() {
			return
		}
	}
}

func TestApexSelectorDeterminesTrafficWithoutARoute(t *testing.T) {
	t.Parallel()
	s := &stage{routes: []cluster.Route{cart("kubernetes")}}
	var services []string
	s.begin = func(s *stage) {
		traffic := seen[cluster.Traffic](s)
		s.pair(1)
		s.After(2*time.Minute, func() { s.edit(serviceKind, map[string]any{"selector": map[string]any{"app": "cart"}}) })
		s.quiet = func(*stage) {
			for _, change := range *traffic {
				if change.Routed || len(change.Weights) != 1 {
					t.Errorf("want no route, got %v", change)
				}
				if name := change.Weights[0].Service; !slices.Contains(services, name) {
					services = append(services, name)
				}
			}
		}
	}
	s.end = func(*stage) {
		if !slices.Contains(services, "cart-primary") || services[len(services)-1] != "cart-canary" {
			t.Errorf("want the requests to go from the primary to the canary, got %v", services)
		}
	}
	s.playFaultFree(t)
}

func TestRouteIsAcceptedOnceBothReplicasServeIt(t *testing.T) {
	t.Parallel()
	accepted := 0
	for seed := range uint64(30) {
		s := &stage{routes: []cluster.Route{cart("gatewayapi:v1")}}
		s.begin = func(s *stage) {
			s.pair(2)
			s.create(httpRoutes, "cart", httpRoute(100, 0))
			for i := range int64(5) {
				s.After(time.Minute+time.Duration(i)*2*time.Second, func() { s.edit(httpRoutes, httpRoute(90-i, 10+i)) })
			}
			s.Subscribe(func(event any) {
				wrote, ok := event.(sim.ObjectWritten)
				if !ok || wrote.Actor != "gateway" {
					return
				}
				rules, _, _ := unstructured.NestedSlice(wrote.New.Content(), "spec", "rules")
				refs, _, _ := unstructured.NestedSlice(rules[0].(map[string]any), "backendRefs")
				weight, _ := refs[1].(map[string]any)["weight"].(int64)
				for _, d := range s.gateway.Traffic(named("cart")) {
					if d.Weight("cart-canary") != int(weight) {
						s.Errorf("seed %d: accepted at weight %d, and replica %d is at %d", seed, weight, d.Replica, d.Weight("cart-canary"))
					}
				}
			})
		}
		s.end = func(s *stage) {
			v := s.Server.Peek(httpRoutes.GroupKind(), named("cart"))
			parents, found, _ := unstructured.NestedSlice(v.Content(), "status", "parents")
			if !found || len(parents) == 0 {
				return
			}
			conditions, _, _ := unstructured.NestedSlice(parents[0].(map[string]any), "conditions")
			if conditions[0].(map[string]any)["observedGeneration"] == v.Generation() {
				accepted++
			}
		}
		if s.play(t, sim.Options{Seed: seed}); t.Failed() {
			return
		}
	}
	if accepted < 10 || accepted == 30 {
		t.Errorf("want some gateways that report and some that do not, got %d of 30 that do", accepted)
	}
}

func TestContourAndConsulReportWhetherARouteIsAccepted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		provider  string
		kind      schema.GroupVersionKind
		spec      func(primary, canary int64) map[string]any
		condition string
	}{
		{"contour", httpProxies, httpProxy, "Valid"},
		{"consul", serviceSplitters, serviceSplitter, "Synced"},
	} {
		t.Run(test.provider, func(t *testing.T) {
			t.Parallel()
			reported, rejected := 0, false
			for seed := range uint64(30) {
				s := &stage{routes: []cluster.Route{cart(test.provider)}}
				last := map[string]any(nil)
				s.begin = func(s *stage) {
					s.pair(2)
					s.create(test.kind, "cart", test.spec(100, 0))
					for i := range int64(5) {
						s.After(time.Minute+time.Duration(i)*20*time.Second, func() { s.edit(test.kind, test.spec(90-i, 10+i)) })
					}
					s.Subscribe(func(event any) {
						if wrote, ok := event.(sim.ObjectWritten); ok && wrote.Actor == "gateway" {
							conditions, _, _ := unstructured.NestedSlice(wrote.New.Content(), "status", "conditions")
							last, _ = conditions[0].(map[string]any)
							rejected = rejected || last["status"] == "False"
						}
					})
				}
				if s.play(t, sim.Options{Seed: seed}); t.Failed() {
					return
				}
				if last == nil {
					continue
				}
				reported++
				if last["type"] != test.condition || last["status"] != "True" {
					t.Errorf("seed %d: want %s True at the end, got %v", seed, test.condition, last)
				}
			}
			if reported < 10 || reported == 30 || rejected != (test.provider == "consul") {
				t.Errorf("want some gateways that report, and only Consul to reject routes, got %d of 30 and %t", reported, rejected)
			}
		})
	}
}
