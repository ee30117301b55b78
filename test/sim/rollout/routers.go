package rollout

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/traffic/consul"
	"github.com/serin-dev/serin/internal/traffic/contour"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/traffic/gloo"
	"github.com/serin-dev/serin/internal/traffic/openshift"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// Routers is the class of releases with another router than Istio and the Gateway API.
const Routers sim.FaultClass = "router"

// useOtherRouter replaces the router of a release.
func (r *Release) useOtherRouter(s *sim.Stream) {
	r.Provider = sim.Pick(s, actors.OpenShift, actors.Contour, actors.Gloo, actors.Consul)
	services := s.Chance(0.5)
	r.Spec.Strategy.Canary.TrafficRouting = nil
	r.addNetwork()
	if r.Provider == actors.Consul {
		r.useSubsets(services)
	}
}

// routerPlugin returns the name and the configuration of a router that is configured under plugins.
func (r *Release) routerPlugin() (string, map[string]any) {
	apex := r.apex()
	switch r.Provider {
	case actors.OpenShift:
		return openshift.PluginName, map[string]any{"routes": []string{apex}}
	case actors.Contour:
		return contour.PluginName, map[string]any{"httpProxies": []string{apex}}
	case actors.Gloo:
		return gloo.PluginName, map[string]any{"routeTable": map[string]any{"name": apex}, "routes": []string{"main"}}
	case actors.Consul:
		return consul.PluginName, map[string]any{"serviceName": apex, "stableSubsetName": oldSubset, "canarySubsetName": newSubset}
	default:
		return gatewayapi.PluginName, map[string]any{"httpRoute": apex}
	}
}

// newOtherRoute returns the route of one of these routers as its user creates it, or nil. The user's own fields and routes are in
// front of, between and behind those that Serin changes.
func (r *Release) newOtherRoute(stable, canary destination) client.Object {
	apex := r.apex()
	switch r.Provider {
	case actors.OpenShift:
		backend := func(name string, weight int64) map[string]any {
			return map[string]any{"kind": "Service", "name": name, "weight": weight}
		}
		return userObject("route.openshift.io/v1", "Route", apex, map[string]any{
			"host": apex + ".example", "path": "/", "port": map[string]any{"targetPort": "http"}, "tls": map[string]any{"termination": "edge"},
			"to": backend(stable.Service, 100), "alternateBackends": []any{backend(canary.Service, 0)},
		})
	case actors.Contour:
		service := func(name string, weight int64) map[string]any {
			return map[string]any{
				"name": name, "port": int64(80), "weight": weight,
				"requestHeadersPolicy": map[string]any{"set": []any{map[string]any{"name": "x-service", "value": name}}},
			}
		}
		return userObject("projectcontour.io/v1", "HTTPProxy", apex, map[string]any{
			"virtualhost": map[string]any{"fqdn": apex + ".example"},
			"routes": []any{
				map[string]any{"conditions": []any{map[string]any{"prefix": "/preview"}}, "services": []any{service(canary.Service, 1)}},
				map[string]any{
					"conditions": []any{map[string]any{"prefix": "/"}}, "timeoutPolicy": map[string]any{"response": "3s"},
					"services": []any{
						service(stable.Service, 100), service(canary.Service, 0),
						map[string]any{"name": stable.Service, "port": int64(80), "mirror": true, "weight": int64(10)},
					},
				},
			},
		})
	case actors.Gloo:
		route := func(name, prefix string, toStable, toCanary int64) any {
			to := func(name string, weight int64) any {
				return map[string]any{
					"destination": map[string]any{"upstream": map[string]any{"name": name, "namespace": actors.Namespace}},
					"weight":      weight, "options": map[string]any{"headerManipulation": map[string]any{"requestHeadersToRemove": []any{"x-debug"}}},
				}
			}
			return map[string]any{
				"name": name, "matchers": []any{map[string]any{"prefix": prefix}}, "options": map[string]any{"timeout": "3s"},
				"routeAction": map[string]any{"multi": map[string]any{"destinations": []any{to(stable.Service, toStable), to(canary.Service, toCanary)}}},
			}
		}
		return userObject("gateway.solo.io/v1", "RouteTable", apex, map[string]any{
			"weight": int64(3), "routes": []any{route("preview", "/preview", 0, 100), route("main", "/", 100, 0)},
		})
	case actors.Consul:
		split := func(subset string, weight int64) any {
			return map[string]any{
				"service": apex, "serviceSubset": subset, "weight": weight,
				"responseHeaders": map[string]any{"set": map[string]any{"x-subset": subset}},
			}
		}
		return userObject("consul.hashicorp.com/v1alpha1", "ServiceSplitter", apex, map[string]any{
			"splits": []any{split(oldSubset, 100), split(newSubset, 0)},
		})
	default:
		return nil
	}
}

// onlyWeights is the part of I8 about routers that write nothing but weights: everything else in the object is unchanged, including
// all other fields of the two destinations and all other routes.
func onlyWeights(h oracle.Write) bool {
	return reflect.DeepEqual(withoutWeights(h.Old), withoutWeights(h.New))
}

// withoutWeights returns the spec of a route without the weights of its last rule.
func withoutWeights(v *store.Version) any {
	content := runtime.DeepCopyJSON(v.Content())
	if rules := actors.Destinations(content); len(rules) > 0 {
		for _, to := range rules[len(rules)-1] {
			delete(to, "weight")
		}
	}
	return content["spec"]
}

const (
	// consulAnnotation is the annotation of the pod template by which Consul distinguishes revisions, which contains their version.
	consulAnnotation = "consul.hashicorp.com/service-meta-version"
	// consulFilter is the beginning of a filter for a version.
	consulFilter = "Service.Meta.version == "
)

// consulVersion is a version of the pods of a Rollout.
type consulVersion struct{ rollout, version string }

// recordVersion records which revision has a version. Revisions of deleted ReplicaSets remain known.
func (l *ledger) recordVersion(h oracle.Write) {
	set := actors.Typed[*appsv1.ReplicaSet](l.World, h.New)
	if set == nil {
		return
	}
	if version := set.Spec.Template.Annotations[consulAnnotation]; version != "" {
		l.revisions[consulVersion{actors.ControllerOf(set).Name, version}] = hashOf(set)
	}
}
