package istio_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.NewAdmission(t, "istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml")
	t.Run("http", func(t *testing.T) {
		traffictest.Run(t, istio.New(), traffictest.Options{Provider: "istio", Admission: admission, Canary: istioFields, Exempt: exempt})
	})
	t.Run("tcp", func(t *testing.T) {
		traffictest.Run(t, istio.New(), traffictest.Options{
			Provider: "istio", Admission: admission, Exempt: exempt,
			Canary: func(t *rapid.T, c *flaggerv1.Canary) {
				istioFields(t, c)
				c.Spec.Service.AppProtocol = rapid.SampledFrom([]string{"tcp", "TCP"}).Draw(t, "protocol")
			},
		})
	})
}

// istioFields sets the fields that only Istio uses.
func istioFields(t *rapid.T, c *flaggerv1.Canary) {
	s := &c.Spec.Service
	s.Gateways = rapid.SampledFrom([][]string{nil, {"mesh"}, {"infra/public"}, {"mesh", "infra/public"}}).Draw(t, "gateways")
	if rapid.Bool().Draw(t, "policy") {
		s.TrafficPolicy = policy(`{"loadBalancer":{"simple":"LEAST_REQUEST"},"connectionPool":{"http":{"http2MaxRequests":100}}}`)
	}
	if rapid.Bool().Draw(t, "delegation") {
		s.Delegation, s.Hosts, s.Gateways = true, nil, nil
	}
}

func TestGolden(t *testing.T) { traffictest.Golden(t, istio.New(), "istio", "testdata/golden") }

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) { traffictest.Recorded(t, istio.New(), "istio", 302, differences) }

var differences = differencesIn("VirtualService/cart", map[string]map[int]string{
	"istio-ab-header-cookie": {1: "a single destination has all the weight, not the primary's weight in the other rule"},
	"revert-on-deletion": {
		0: "the user's own object", 1: retainedMetadata, 2: retainedMetadata, 3: retainedMetadata, 4: "the user's own object again",
	},
	"revert-on-deletion-last-applied": {0: "the user's own object", 1: retainedMetadata, 2: "the user's own object again"},
	"service-drift":                   {1: "the user's edit", 2: "an object that was created for the release has no original"},
})

const retainedMetadata = "the user's labels and annotations remain, and the original is recorded in Serin's own annotation"

func differencesIn(object string, cases map[string]map[int]string) []traffictest.Difference {
	var out []traffictest.Difference
	for name, versions := range cases {
		for version, why := range versions {
			out = append(out, traffictest.Difference{Case: name, Object: object, Version: version, Why: why})
		}
	}
	return out
}

// exempt lists the fields that are copied unchanged from the Canary, in the format of Istio. Any field inside of them may be one
// that was removed from the Canary, so none is preserved for other tools.
var exempt = []string{"DestinationRule spec.trafficPolicy"}

// TestTrafficPolicyIsThatOfTheCanary: fields of other tools inside of the policy are removed, and those next to it remain.
func TestTrafficPolicyIsThatOfTheCanary(t *testing.T) {
	for name, test := range map[string]struct {
		policy *apiextensionsv1.JSON
		want   any
	}{
		"a policy": {policy(`{"loadBalancer":{"simple":"LEAST_REQUEST"}}`), map[string]any{"loadBalancer": map[string]any{"simple": "LEAST_REQUEST"}}},
		"none":     {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &flaggerv1.Canary{}
			c.Name, c.Namespace, c.UID = "cart", "web", "uid"
			c.Spec.TargetRef.Name, c.Spec.Service.TrafficPolicy = "cart", test.policy
			target := traffic.NewCanaryTarget(c, "istio", "app")
			rule := traffictest.NewObject(istio.New().Refs(target, release.Route{}, nil)[0], map[string]any{
				"subsets":       []any{map[string]any{"name": "theirs"}},
				"trafficPolicy": map[string]any{"loadBalancer": map[string]any{"warmupDurationSecs": "30s"}, "tunnel": map[string]any{"protocol": "CONNECT"}},
			})
			rendered, err := istio.New().Render(target, release.Route{}, traffictest.Find(istio.New(), target, release.Route{}, []*unstructured.Unstructured{rule}))
			if err != nil {
				t.Fatal(err)
			}
			spec := traffic.Spec(rendered[0])
			if diff := cmp.Diff(test.want, spec["trafficPolicy"]); diff != "" {
				t.Errorf("trafficPolicy (-want +got):\n%s", diff)
			}
			if spec["subsets"] == nil {
				t.Error("the subsets of another tool are lost")
			}
		})
	}
}

func TestRolloutContract(t *testing.T) {
	admission := traffictest.NewAdmission(t, "istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml")
	subsets := &argov1.IstioDestinationRule{Name: "cart", CanarySubsetName: "canary", StableSubsetName: "stable", AdditionalSubsetNames: []string{"extra"}}
	for name, routing := range map[string]argov1.IstioTrafficRouting{
		"hosts":   {VirtualService: &argov1.IstioVirtualService{Name: "cart", Routes: []string{"main"}}},
		"subsets": {VirtualService: &argov1.IstioVirtualService{Name: "cart.mesh.svc.cluster.local"}, DestinationRule: subsets},
		"several": {VirtualServices: []argov1.IstioVirtualService{
			{Name: "cart", Routes: []string{"main"}, TLSRoutes: []argov1.TLSRoute{{Port: 443, SNIHosts: []string{"b.example.com", "a.example.com"}}}},
			{Name: "other.edge", TCPRoutes: []argov1.TCPRoute{{Port: 70}}},
		}, DestinationRule: subsets},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version := "v1beta1"
			if name == "hosts" {
				version = ""
			}
			var shared func(traffic.Target) traffic.Target
			if name == "hosts" { // a route without a name, or a DestinationRule, cannot be shared
				shared = neighbor
			}
			traffictest.Run(t, istio.NewRollout(version), traffictest.Options{
				Provider: "istio", Admission: admission, Neighbor: shared,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) {
					ro.Spec.Strategy.Canary.TrafficRouting.Istio = &routing
					if routing.DestinationRule != nil {
						ro.Spec.Strategy.Canary.CanaryService, ro.Spec.Strategy.Canary.StableService = "", ""
					}
				},
				Given: func(t traffic.Target) []*unstructured.Unstructured { return meshObjects(t, version) },
			})
		})
	}
}

// neighbor is a Rollout with a route in the same VirtualService.
func neighbor(t traffic.Target) traffic.Target {
	t.Rollout = t.Rollout.DeepCopy()
	t.Rollout.Name, t.Rollout.UID = "pay", "pay-uid"
	routing := t.Rollout.Spec.Strategy.Canary.TrafficRouting
	routing.ManagedRoutes, routing.Istio.VirtualService.Routes = nil, []string{"pay"}
	t.StableService, t.CanaryService = "pay-stable", "pay-canary"
	t.Rollout.Spec.Strategy.Canary.StableService, t.Rollout.Spec.Strategy.Canary.CanaryService = t.StableService, t.CanaryService
	return t
}

// meshObjects are objects of a user: routes of all protocols, with a destination that does not belong to the release, and a
// rule with subsets.
func meshObjects(t traffic.Target, version string) []*unstructured.Unstructured {
	rule := t.Routing().Istio.DestinationRule
	destination := func(service, subset string, weight int64) any {
		to := map[string]any{"host": service + ".web.svc.cluster.local"}
		if rule != nil {
			to = map[string]any{"host": "cart", "subset": subset}
		}
		to["port"] = map[string]any{"number": int64(8080)}
		return map[string]any{"destination": to, "weight": weight}
	}
	both := func() []any {
		return []any{destination("cart-stable", "stable", 93), destination("cart-canary", "canary", 0), destination("legacy", "extra", 7)}
	}
	var out []*unstructured.Unstructured
	for _, ref := range istio.NewRollout(version).Refs(t, release.Route{}, nil) {
		spec := map[string]any{
			"hosts": []any{"cart"},
			"http": []any{
				map[string]any{"name": "main", "timeout": "10s", "route": both()},
			},
			"tcp": []any{map[string]any{"match": []any{map[string]any{"port": int64(70)}}, "route": both()}},
			"tls": []any{map[string]any{"match": []any{map[string]any{"port": int64(443), "sniHosts": []any{"a.example.com", "b.example.com"}}}, "route": both()}},
		}
		if rule == nil {
			spec["http"] = append(spec["http"].([]any), map[string]any{"name": "pay", "route": []any{destination("pay-stable", "", 100), destination("pay-canary", "", 0)}})
		}
		if ref.GVK.Kind == "DestinationRule" {
			spec = map[string]any{"host": "cart", "subsets": []any{
				map[string]any{"name": "stable", "labels": map[string]any{"app": "cart"}}, map[string]any{"name": "canary"}, map[string]any{"name": "extra"},
			}}
		}
		out = append(out, traffictest.NewObject(ref, spec))
	}
	return out
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, istio.NewRollout(""), "istio", "testdata/rollout")
}

func policy(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }

// TestReadReturnsTheRevisionsOfSubsets: if subsets select the pods, the route determines which revisions serve users.
func TestReadReturnsTheRevisionsOfSubsets(t *testing.T) {
	rule := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"subsets": []any{
		map[string]any{"name": "canary", "labels": map[string]any{argov1.PodTemplateHashLabel: "new"}},
		map[string]any{"name": "stable", "labels": map[string]any{"app": "cart", argov1.PodTemplateHashLabel: "old"}},
		map[string]any{"name": "all"},
	}}}}
	target := traffic.Target{Rollout: &argov1.Rollout{Spec: argov1.RolloutSpec{Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{
		TrafficRouting: &argov1.RolloutTrafficRouting{Istio: &argov1.IstioTrafficRouting{
			DestinationRule: &argov1.IstioDestinationRule{Name: "cart", CanarySubsetName: "canary", StableSubsetName: "stable"},
		}},
	}}}}}
	for name, want := range map[string]string{"canary": "new", "stable": "old", "all": ""} {
		target.Rollout.Spec.Strategy.Canary.TrafficRouting.Istio.DestinationRule.StableSubsetName = name
		observed, err := istio.RolloutRenderer{}.Read(target, traffic.Objects{{Ref: traffic.Ref{SelectsPods: true}, Object: rule}})
		if err != nil || observed.StableHash != want || observed.CanaryHash != "new" {
			t.Errorf("subset %s: canary %q, stable %q, %v; want new and %q", name, observed.CanaryHash, observed.StableHash, err, want)
		}
	}
}
