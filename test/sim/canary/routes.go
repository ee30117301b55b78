package canary

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// Providers is the class of releases with another router than Istio and the Gateway API.
const Providers sim.FaultClass = "provider"

// drawOtherProvider replaces the routers of some releases.
func (k *Canaries) drawOtherProvider(r *Release) {
	s := k.World.Draws.Stream(string(Providers) + "/" + r.Key.Name)
	if s.Chance(0.35) && r.Provider != actors.NoRouter && k.World.Faults.Admit(fmt.Sprintf("%s#%s", Providers, r.Key.Name)) {
		r.useProvider(sim.Pick(s, actors.Contour, actors.Gloo))
		if s.Chance(0.3) {
			r.objects = append(r.objects, r.newOtherRoute(s.Chance(0.5)))
		}
	}
}

// useProvider replaces the router of a release by that of Contour or Gloo Edge. The user's route for the previous one has no
// meaning.
func (r *Release) useProvider(provider string) {
	previous, hadRoute := cluster.RouteKind(r.Provider)
	remaining := r.objects[:0:0]
	for _, o := range r.objects {
		if !hadRoute || o.GroupVersionKind().GroupKind() != previous {
			remaining = append(remaining, o)
		}
	}
	r.objects = remaining
	for _, spec := range []*flaggerv1.CanarySpec{&r.Spec, &r.validSpec} {
		if spec.Provider == r.Provider { // an invalid spec may name an unknown one
			spec.Provider = provider
		}
		spec.Service.GatewayRefs = nil
		if spec.Analysis != nil {
			removeUnsupported(provider, spec.Analysis)
		}
	}
	r.Provider = provider
}

// removeUnsupported removes what a provider does not support from a drawn analysis: Contour and Gloo Edge serve weights and matches.
func removeUnsupported(provider string, a *flaggerv1.CanaryAnalysis) {
	if provider == actors.Contour || provider == actors.Gloo {
		a.Mirror, a.MirrorWeight, a.SessionAffinity = false, 0, nil
	}
}

// upstreamOf returns the name of the Upstream of one side of a release, which is documented.
func upstreamOf(apex, side string) string {
	return fmt.Sprintf("%s-%s-%supstream-80", actors.Namespace, apex, side)
}

// serviceOf returns the Service to which an entry of a route sends requests.
func serviceOf(destination map[string]any, apex string) string {
	if upstream, isGloo := nested(destination, "destination", "upstream")["name"].(string); isGloo {
		for _, side := range []string{"primary", "canary"} {
			if upstream == upstreamOf(apex, side) {
				return apex + "-" + side
			}
		}
		return upstream
	}
	if host, isIstio := nested(destination, "destination")["host"].(string); isIstio {
		return host
	}
	name, _ := destination["name"].(string)
	return name
}

// isCanary reports whether a destination of a route is the Service of the canary.
func (r *Release) isCanary(destination map[string]any) bool {
	return serviceOf(destination, r.Apex) == r.Apex+"-canary"
}

// newOtherRoute returns a route of Contour or Gloo Edge that a user created before the release, with the user's own fields at every
// depth. It routes to the apex Service, or to the primary as after an earlier release; then Serin continues this route, and
// preserves those fields in it.
func (r *Release) newOtherRoute(toPrimary bool) *unstructured.Unstructured {
	annotations := map[string]any{"annotations": map[string]any{"example.com/owner": "network"}}
	service, upstream := r.Apex, actors.Namespace+"-"+r.Apex+"-80"
	if toPrimary {
		service, upstream = r.Apex+primarySuffix, upstreamOf(r.Apex, "primary")
	}
	if r.Provider == actors.Contour {
		return actors.NewObject("projectcontour.io/v1", "HTTPProxy", r.Apex, map[string]any{
			"metadata": annotations,
			"spec": map[string]any{
				"virtualhost": map[string]any{"fqdn": r.Apex + ".example"},
				"routes": []any{map[string]any{
					"conditions": []any{map[string]any{"prefix": "/"}}, "enableWebsockets": true,
					"services": []any{map[string]any{
						"name": service, "port": int64(80),
						"responseHeadersPolicy": map[string]any{"set": []any{map[string]any{"name": "x-served-by", "value": "shop"}}},
					}},
				}},
			},
		})
	}
	return actors.NewObject("gateway.solo.io/v1", "RouteTable", r.Apex, map[string]any{
		"metadata": annotations,
		"spec": map[string]any{
			"weight": int64(3),
			"routes": []any{map[string]any{
				"name": "main", "options": map[string]any{"timeout": "3s"},
				"routeAction": map[string]any{"multi": map[string]any{"destinations": []any{map[string]any{
					"destination": map[string]any{"upstream": map[string]any{"name": upstream, "namespace": actors.Namespace}}, "weight": int64(100),
					"options": map[string]any{"headerManipulation": map[string]any{"requestHeadersToRemove": []any{"x-debug"}}},
				}}}},
			}},
		},
	})
}

// preservesUserFields is the part of I8 about routes of users that Serin continues: every field that it is not documented to write
// is unchanged, in the route for all requests and in its destination. A route to another destination is replaced, and its fields
// return when the object is restored.
func preservesUserFields(h oracle.Write) bool {
	after := userFields(h.New)
	for i, before := range userFields(h.Old) {
		for field, value := range before {
			if after != nil && !reflect.DeepEqual(after[i][field], value) {
				return false
			}
		}
	}
	return true
}

// userFields returns the fields of users in the last route of an HTTPProxy or a RouteTable and in its destination; nil: it does not
// route to the primary.
func userFields(v *store.Version) []map[string]any {
	content := runtime.DeepCopyJSON(v.Content())
	routes := actors.Items(nested(content, "spec")["routes"])
	if len(routes) == 0 {
		return nil
	}
	route := routes[len(routes)-1]
	destinations := actors.Items(route["services"])
	if v.Kind() == cluster.RouteTableKind {
		destinations = actors.Items(nested(route, "routeAction", "multi")["destinations"])
	}
	for _, to := range destinations {
		if serviceOf(to, v.Key().Name) != v.Key().Name+primarySuffix {
			continue
		}
		for _, field := range []string{"name", "port", "weight", "requestHeadersPolicy", "destination"} {
			delete(to, field)
		}
		for _, field := range []string{"conditions", "services", "timeoutPolicy", "retryPolicy", "inheritablePathMatchers", "routeAction"} {
			delete(route, field)
		}
		return []map[string]any{route, to}
	}
	return nil
}
