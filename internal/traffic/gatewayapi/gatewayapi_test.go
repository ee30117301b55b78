package gatewayapi_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.NewAdmission(t, "sigs.k8s.io/gateway-api",
		"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml")
	for _, version := range []gatewayapi.Version{gatewayapi.V1, gatewayapi.V1Beta1} {
		t.Run(string(version), func(t *testing.T) {
			traffictest.Run(t, gatewayapi.New(version), traffictest.Options{
				Provider: "gatewayapi:" + string(version), Admission: admission, Canary: gatewayFields,
			})
		})
	}
}

func TestContractOfOtherKinds(t *testing.T) {
	admission := traffictest.NewAdmission(t, "sigs.k8s.io/gateway-api",
		"config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml",
		"config/crd/experimental/gateway.networking.k8s.io_tcproutes.yaml")
	for kind, fields := range map[string]func(*rapid.T, *flaggerv1.Canary){"GRPCRoute": grpcFields, "TCPRoute": tcpFields} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			traffictest.Run(t, gatewayapi.New(gatewayapi.V1), traffictest.Options{
				Provider: "gatewayapi:v1", Admission: admission, Canary: func(t *rapid.T, c *flaggerv1.Canary) {
					gatewayFields(t, c)
					fields(t, c)
					c.Annotations = map[string]string{traffic.RouteKindAnnotation: kind}
				},
			})
		})
	}
}

// grpcFields sets fields that a GRPCRoute supports.
func grpcFields(t *rapid.T, c *flaggerv1.Canary) {
	s := &c.Spec.Service
	s.Rewrite, s.CorsPolicy, s.Timeout, s.BackendTimeout = nil, nil, "", ""
	for i := range s.Match {
		s.Match[i] = flaggerv1.HTTPMatchRequest{Headers: s.Match[i].Headers, URI: rapid.SampledFrom([]*flaggerv1.StringMatch{
			nil, {Prefix: "/"}, {Prefix: "/cart.v1.Cart/"}, {Exact: "/cart.v1.Cart/Get"},
		}).Draw(t, "gRPC method")}
	}
}

// tcpFields sets fields that a TCPRoute supports.
func tcpFields(t *rapid.T, c *flaggerv1.Canary) {
	grpcFields(t, c)
	s := &c.Spec.Service
	s.Match, s.Hosts, s.Headers, s.Mirror = nil, nil, nil, nil
}

// gatewayFields sets fields that a gateway requires, and those that only gateways use.
func gatewayFields(t *rapid.T, c *flaggerv1.Canary) {
	s := &c.Spec.Service
	s.GatewayRefs = []flaggerv1.GatewayReference{{Name: "edge", Namespace: new("infra")}}
	if rapid.Bool().Draw(t, "second parent") {
		s.GatewayRefs = append(s.GatewayRefs, flaggerv1.GatewayReference{
			Group: new(""), Kind: new("Service"), Name: "cart", Port: new(int32(80)),
		})
	}
	if rapid.Bool().Draw(t, "mirror") {
		s.Mirror = []flaggerv1.RequestMirror{{BackendRef: &flaggerv1.MirrorBackendReference{Name: "shadow", Port: new(int32(80))}}}
	}
	if s.Rewrite != nil {
		s.Rewrite.Type = rapid.SampledFrom([]string{"", "ReplaceFullPath", "ReplacePrefixMatch"}).Draw(t, "rewrite type")
		for i := range s.Match {
			if s.Rewrite.Type == "ReplacePrefixMatch" { // the API requires a prefix match
				s.Match[i].URI = &flaggerv1.StringMatch{Prefix: "/cart"}
			}
		}
	}
	for i := range s.Match {
		s.Match[i].Port = 0 // supported by Istio only
	}
	s.BackendTimeout = rapid.SampledFrom([]string{"", "2s"}).Draw(t, "backend timeout")
}

// TestConditionsThatAnHTTPRouteDoesNotHave are refused: if they were ignored, the route would serve unintended requests.
// Every field of the type is either refused or supported.
func TestConditionsThatAnHTTPRouteDoesNotHave(t *testing.T) {
	served := []string{"Name", "URI", "Method", "Headers", "QueryParams"}
	for field := range reflect.TypeFor[flaggerv1.HTTPMatchRequest]().Fields() {
		c := &flaggerv1.Canary{}
		c.Name, c.Namespace = "cart", "web"
		c.Spec.TargetRef.Name = "cart"
		c.Spec.Service.GatewayRefs = []flaggerv1.GatewayReference{{Name: "edge"}}
		c.Spec.Service.Match = make([]flaggerv1.HTTPMatchRequest, 1)
		value := reflect.ValueOf(&c.Spec.Service.Match[0]).Elem().FieldByName(field.Name)
		exact := flaggerv1.StringMatch{Exact: "GET"}
		for _, set := range []any{"text", int32(8080), true, []string{"mesh"}, map[string]string{"a": "b"}, &exact, map[string]flaggerv1.StringMatch{"a": exact}} {
			if reflect.TypeOf(set) == value.Type() {
				value.Set(reflect.ValueOf(set))
			}
		}
		if value.IsZero() {
			t.Fatalf("the test does not know how to set %s", field.Name)
		}
		target := traffic.NewCanaryTarget(c, "gatewayapi:v1", "app")
		rd := gatewayapi.New(gatewayapi.V1)
		_, err := rd.Render(target, release.Route{}, traffictest.Find(rd, target, release.Route{}, nil))
		if refused := errors.Is(err, traffic.ErrUnsupported); refused == slices.Contains(served, field.Name) {
			t.Errorf("spec.service.match[0].%s: error %v", field.Name, err)
		}
	}
}

func TestGolden(t *testing.T) {
	traffictest.Golden(t, gatewayapi.New(gatewayapi.V1), "gatewayapi:v1", "testdata/golden")
	traffictest.Golden(t, gatewayapi.New(gatewayapi.V1Beta1), "gatewayapi:v1beta1", "testdata/golden-v1beta1")
}

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) {
	traffictest.Recorded(t, gatewayapi.New(gatewayapi.V1), "gatewayapi:v1", 29, nil)
}

func TestRolloutContract(t *testing.T) {
	admission := traffictest.NewAdmission(t, "sigs.k8s.io/gateway-api",
		"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
		"config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml",
		"config/crd/experimental/gateway.networking.k8s.io_tcproutes.yaml",
		"config/crd/experimental/gateway.networking.k8s.io_tlsroutes.yaml")
	for name, configuration := range map[string]string{
		"http":     `{"httpRoute":"cart"}`,
		"grpc":     `{"grpcRoute":"cart"}`,
		"tcp":      `{"tcpRoute":"cart","disableInProgressLabel":true}`,
		"selector": `{"tlsRouteSelector":{"matchLabels":{"app":"cart"}}}`,
		"several":  `{"httpRoutes":[{"name":"cart","useHeaderRoutes":true},{"name":"plain"}],"grpcRoutes":[{"name":"cart","useHeaderRoutes":true}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := neighbor
			if name == "selector" { // a TLSRoute has only one rule
				shared = nil
			}
			traffictest.Run(t, gatewayapi.NewRollout(), traffictest.Options{
				Provider: gatewayapi.PluginName, Admission: admission, Given: routes, Neighbor: shared,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) {
					ro.Spec.Strategy.Canary.TrafficRouting.Plugins = map[string]json.RawMessage{gatewayapi.PluginName: json.RawMessage(configuration)}
				},
			})
		})
	}
}

// neighbor is a Rollout with rules in the same routes.
func neighbor(t traffic.Target) traffic.Target {
	t.Rollout = t.Rollout.DeepCopy()
	t.Rollout.Name, t.Rollout.UID = "pay", "pay-uid"
	t.Rollout.Spec.Strategy.Canary.TrafficRouting.ManagedRoutes = nil
	t.StableService, t.CanaryService = "pay-stable", "pay-canary"
	t.Rollout.Spec.Strategy.Canary.StableService, t.Rollout.Spec.Strategy.Canary.CanaryService = t.StableService, t.CanaryService
	return t
}

// routes are those of a user, of every kind and name in a configuration.
func routes(t traffic.Target) []*unstructured.Unstructured {
	backend := func(name string, weight int64) any {
		return map[string]any{"name": name, "port": int64(80), "weight": weight}
	}
	both := func() []any {
		return []any{backend("cart-stable", 100), backend("cart-canary", 0), backend("legacy", 7)}
	}
	pay := func() map[string]any {
		return map[string]any{"backendRefs": []any{backend("pay-stable", 100), backend("pay-canary", 0)}}
	}
	rules := map[string][]any{
		"HTTPRoute": {
			map[string]any{"backendRefs": both(), "timeouts": map[string]any{"request": "10s"}},
			map[string]any{"backendRefs": both(), "matches": []any{map[string]any{"path": map[string]any{"type": "Exact", "value": "/cart"}}}},
			map[string]any{"backendRefs": []any{backend("cart-canary", 1)}, "name": "preview"},
			pay(),
		},
		"GRPCRoute": {map[string]any{"backendRefs": both(), "matches": []any{map[string]any{"method": map[string]any{"service": "cart.v1.Cart"}}}}, pay()},
		"TCPRoute":  {map[string]any{"backendRefs": both()}, pay()},
		"TLSRoute":  {map[string]any{"backendRefs": both()}},
	}
	var out []*unstructured.Unstructured
	for _, ref := range gatewayapi.NewRollout().Refs(t, release.Route{}, nil) {
		obj := traffictest.NewObject(ref, map[string]any{
			"parentRefs": []any{map[string]any{"name": "edge"}}, "rules": rules[ref.GVK.Kind],
		})
		if ref.GVK.Kind == "TLSRoute" {
			obj.Object["spec"].(map[string]any)["hostnames"] = []any{"cart.example.com"}
		}
		if ref.Selector != "" {
			obj.SetName("found")
		}
		obj.SetLabels(map[string]string{"app": "cart"})
		out = append(out, obj)
	}
	return out
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, gatewayapi.NewRollout(), gatewayapi.PluginName, "testdata/rollout")
}

// TestServicesOfAnotherNamespace: the route of several teams has Services of the same names in each of their namespaces.
func TestServicesOfAnotherNamespace(t *testing.T) {
	ro := &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "cart"}}
	ro.Spec.Strategy.Canary = &argov1.CanaryStrategy{TrafficRouting: &argov1.RolloutTrafficRouting{
		Plugins: map[string]json.RawMessage{gatewayapi.PluginName: json.RawMessage(`{"httpRoute":"shared","namespace":"infra"}`)},
	}}
	target := traffic.Target{Namespace: "dev", Rollout: ro, StableService: "cart", CanaryService: "cart-canary", Provider: gatewayapi.PluginName}
	rule := func(namespace string) any {
		backend := func(name string, weight int64) any {
			ref := map[string]any{"name": name, "port": int64(80), "weight": weight}
			if namespace != "" {
				ref["namespace"] = namespace
			}
			return ref
		}
		return map[string]any{"backendRefs": []any{backend("cart", 100), backend("cart-canary", 0)}}
	}
	rd := gatewayapi.NewRollout()
	ref := rd.Refs(target, release.Route{}, nil)[0]
	users := traffictest.NewObject(ref, map[string]any{"rules": []any{rule("dev"), rule("prod"), rule("")}})
	rendered, err := rd.Render(target, release.Route{Canary: 50}, traffic.Objects{{Ref: ref, Object: users}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{50, 0, 50} {
		rule := traffic.Maps(traffic.Spec(rendered[0])["rules"])[i]
		if got := traffic.Maps(rule["backendRefs"])[1]["weight"]; got != want {
			t.Errorf("rule %d: the canary has weight %v, want %d", i, got, want)
		}
	}
}
