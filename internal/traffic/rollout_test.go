package traffic_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
)

// fakeRouter is a router that creates one object and edits one of the user, to test the applier without a provider.
type fakeRouter struct{ features traffic.Features }

func (f fakeRouter) Features(traffic.Target) traffic.Features { return f.features }

func (fakeRouter) Refs(t traffic.Target, _ release.Route, existing traffic.Objects) []traffic.Ref {
	rule := schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1beta1", Kind: "DestinationRule"}
	service := schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1beta1", Kind: "VirtualService"}
	refs := []traffic.Ref{{
		GVK: service, Namespace: t.Namespace, Name: "users", Shared: true,
		Events: traffic.EventReasons{Changed: "Patching", Missing: "NotFound"},
	}}
	if users := existing.Get("VirtualService", t.Namespace, "users"); users != nil { // leads to the other
		refs = append(refs, traffic.Ref{
			GVK: rule, Namespace: t.Namespace, Name: "made", Owned: true,
			Events: traffic.EventReasons{Created: "Creating", NotCreated: "NotCreated", Changed: "Patching"},
		})
	}
	return refs
}

func (fakeRouter) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	users, err := existing[0].EditShared()
	if err != nil {
		return nil, err
	}
	traffic.Spec(users)["weight"] = int64(r.Canary)
	made, err := existing[1].EditOwned(t)
	if err != nil {
		return nil, err
	}
	traffic.Spec(made)["weight"] = int64(r.Canary)
	if r.Canary == 0 && t.Drained {
		made = nil
	}
	return []*unstructured.Unstructured{users, made}, nil
}

func (fakeRouter) Read(traffic.Target, traffic.Objects) (traffic.Observed, error) {
	return traffic.Observed{Found: true, Confirmed: traffic.CannotTell}, nil
}

func (fakeRouter) Validate(_ traffic.Target, existing traffic.Objects) field.ErrorList {
	if existing[0].Object == nil {
		return field.ErrorList{field.Invalid(traffic.RoutingPath(), "users", "not found")}
	}
	return nil
}

func (fakeRouter) Restore(_ traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	out := existing.Unchanged()
	if existing[0].Object != nil {
		out[0] = existing[0].Object.DeepCopy()
		delete(traffic.Spec(out[0]), "weight")
	}
	return out, nil
}

func cartRollout(routing string) *argov1.Rollout {
	ro := &argov1.Rollout{}
	ro.Name, ro.Namespace, ro.UID = "cart", "web", "0d3a5fd7-uid"
	ro.Spec.Strategy.Canary = &argov1.CanaryStrategy{CanaryService: "cart-canary", StableService: "cart-stable"}
	if routing != "" {
		ro.Spec.Strategy.Canary.TrafficRouting = &argov1.RolloutTrafficRouting{}
		if err := json.Unmarshal([]byte(routing), ro.Spec.Strategy.Canary.TrafficRouting); err != nil {
			panic(err)
		}
	}
	return ro
}

func routerOf(t *testing.T, rd traffic.Renderer) (traffic.Router, traffic.Target) {
	t.Helper()
	ro := cartRollout(`{"istio":{}}`)
	routers, err := traffic.Registry{Rollout: map[string]traffic.Renderer{"istio": rd}}.ForRollout(ro.Spec.Strategy.Canary.TrafficRouting)
	if err != nil || len(routers) != 1 {
		t.Fatalf("routers: %v, %v", routers, err)
	}
	return routers[0], routers[0].Target(ro, "6d4f", "77c9")
}

func users() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
		"metadata": map[string]any{"name": "users", "namespace": "web"}, "spec": map[string]any{"theirs": "kept"},
	}}
}

func TestApplyRolloutWritesAndReportsDifferences(t *testing.T) {
	c := newCluster(t, users())
	a := &traffic.Applier{Client: c}
	x, target := routerOf(t, fakeRouter{traffic.Features{Weights: true}})
	for i, step := range []struct {
		route   release.Route
		drained bool
		wrote   []string
		events  []traffic.Event
	}{
		{release.Route{Canary: 20}, false, []string{"patch VirtualService", "create DestinationRule"}, []traffic.Event{
			{Reason: "Patching", Message: "Updated VirtualService users.web: canary=20 stable=80"},
			{Reason: "Creating", Message: "Created DestinationRule made.web: canary=20 stable=80"},
		}},
		{release.Route{Canary: 20}, false, nil, nil},
		{release.Route{}, false, []string{"patch VirtualService", "patch DestinationRule"}, []traffic.Event{
			{Reason: "Patching", Message: "Updated VirtualService users.web: canary=0 stable=100"},
			{Reason: "Patching", Message: "Updated DestinationRule made.web: canary=0 stable=100"},
		}},
		{release.Route{}, true, []string{"delete DestinationRule"}, nil},
		{release.Route{}, true, nil, nil},
	} {
		target.Drained = step.drained
		got, err := a.Apply(t.Context(), x.Renderer, target, step.route, nil)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if diff := cmp.Diff(step.wrote, c.wrote()) + cmp.Diff(step.events, got.Events); diff != "" || got.Changed != (len(step.wrote) > 0) {
			t.Fatalf("step %d: changed %v (-want +got):\n%s", i, got.Changed, diff)
		}
	}
	if theirs, _, _ := unstructured.NestedString(c.get(t, "VirtualService", "users").Object, "spec", "theirs"); theirs != "kept" {
		t.Error("a field of the user is lost")
	}
}

func TestApplyRolloutSetsTheOwner(t *testing.T) {
	c := newCluster(t, users())
	x, target := routerOf(t, fakeRouter{})
	if _, err := (&traffic.Applier{Client: c}).Apply(t.Context(), x.Renderer, target, release.Route{}, nil); err != nil {
		t.Fatal(err)
	}
	owner := metav1.GetControllerOf(c.get(t, "DestinationRule", "made"))
	want := &metav1.OwnerReference{
		APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "cart", UID: "0d3a5fd7-uid", Controller: new(true), BlockOwnerDeletion: new(true),
	}
	if diff := cmp.Diff(want, owner); diff != "" {
		t.Errorf("owner (-want +got):\n%s", diff)
	}
}

func TestApplyRolloutReportsMissingObjectsAndFailedWrites(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c}
	x, target := routerOf(t, fakeRouter{})
	got, err := a.Apply(t.Context(), x.Renderer, target, release.Route{}, nil)
	if !errors.Is(err, traffic.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
	want := []traffic.Event{{Warning: true, Reason: "NotFound", Message: "VirtualService users.web not found"}}
	if diff := cmp.Diff(want, got.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	faults, err := a.Validate(t.Context(), x.Renderer, target)
	if err != nil || len(faults) != 1 {
		t.Errorf("faults %v, error %v, want one", faults, err)
	}

	c = newCluster(t, users())
	c.fail["create DestinationRule"] = apierrors.NewForbidden(schema.GroupResource{Resource: "destinationrules"}, "made", errors.New("no permission"))
	got, err = (&traffic.Applier{Client: c}).Apply(t.Context(), x.Renderer, target, release.Route{Canary: 20}, nil)
	if !apierrors.IsForbidden(err) || len(got.Events) != 2 || got.Events[1].Reason != "NotCreated" || !got.Events[1].Warning {
		t.Errorf("error %v, events %v", err, got.Events)
	}
}

// TestRolloutRoutesAreFoundByLabel tests a selector that also selects a named route.
func TestRolloutRoutesAreFoundByLabel(t *testing.T) {
	route := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
			"metadata": map[string]any{"name": name, "namespace": "web", "labels": map[string]any{"app": name}},
			"spec": map[string]any{"rules": []any{map[string]any{"backendRefs": []any{
				map[string]any{"name": "cart-stable"}, map[string]any{"name": "cart-canary"},
			}}}},
		}}
	}
	c := newCluster(t, route("one"), route("two"), route("three"))
	ro := cartRollout(`{"plugins":{"argoproj-labs/gatewayAPI":{"httpRoute":"one",
		"httpRouteSelector":{"matchExpressions":[{"key":"app","operator":"In","values":["one","two"]}]}}}}`)
	routers, err := gateways.ForRollout(ro.Spec.Strategy.Canary.TrafficRouting)
	if err != nil {
		t.Fatal(err)
	}
	a := &traffic.Applier{Client: c}
	target := routers[0].Target(ro, "", "")
	if _, err := a.Apply(t.Context(), routers[0].Renderer, target, release.Route{Canary: 20}, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"patch HTTPRoute", "patch HTTPRoute"}, c.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	seen, _, err := a.Observe(t.Context(), routers[0].Renderer, target)
	if err != nil || seen.Route.Canary != 20 {
		t.Errorf("observed %+v, error %v", seen, err)
	}
	if verified := routers[0].Verified(target, seen); verified == nil || !*verified {
		t.Errorf("verified = %v, want true for a gateway that reports nothing", verified)
	}
}

var gateways = traffic.Registry{Rollout: map[string]traffic.Renderer{gatewayapi.PluginName: gatewayapi.NewRollout()}}

func TestRoutersOfARollout(t *testing.T) {
	order := []string{"istio", "nginx", "alb", "smi", "ambassador", "appMesh", "traefik", "apisix", "a/b", "c/d"}
	all := traffic.Registry{Rollout: map[string]traffic.Renderer{}}
	for _, name := range order {
		all.Rollout[name] = fakeRouter{}
	}
	routers, err := all.ForRollout(cartRollout(`{"plugins":{"c/d":{},"a/b":{}},"apisix":{},"traefik":{"weightedTraefikServiceName":"x"},
		"appMesh":{},"ambassador":{"mappings":[]},"smi":{},"alb":{"servicePort":80},"nginx":{},"istio":{}}`).Spec.Strategy.Canary.TrafficRouting)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range routers {
		names = append(names, x.Name)
	}
	if diff := cmp.Diff(order, names); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}

	mixed := cartRollout(`{"plugins":{"acme/edge":{},"argoproj-labs/gatewayAPI":{},"acme/dns":{}},"nginx":{}}`).Spec.Strategy.Canary.TrafficRouting
	if diff := cmp.Diff([]string{"acme/dns", "acme/edge"}, gateways.ExternalPlugins(mixed)); diff != "" {
		t.Errorf("plugins that are not built in (-want +got):\n%s", diff)
	}
	external := cartRollout(`{"plugins":{"acme/edge":{}}}`).Spec.Strategy.Canary.TrafficRouting
	if routers, err := gateways.ForRollout(external); len(routers) != 0 || err != nil {
		t.Errorf("a plugin that is not built in: %v, %v", routers, err)
	}
	if routers, err := gateways.ForRollout(nil); routers != nil || err != nil {
		t.Errorf("without trafficRouting: %v, %v", routers, err)
	}
}

func TestServicesOfARouter(t *testing.T) {
	all := traffic.Registry{Rollout: map[string]traffic.Renderer{"istio": fakeRouter{}, "alb": fakeRouter{}}}
	for name, x := range map[string]struct {
		pair           string // canary and stable of the spec
		pingPong       bool
		state          argov1.PingPongType
		istio, balance string // canary and stable, as the router sees them
	}{
		"plain":                  {pair: "c s", istio: "c s", balance: "c s"},
		"ping-pong, at first":    {pingPong: true, pair: " ", istio: "ping pong", balance: "ping pong"},
		"ping-pong, stable ping": {pingPong: true, state: argov1.Ping, pair: " ", istio: "pong ping", balance: "pong ping"},
		"ping-pong, stable pong": {pingPong: true, state: argov1.Pong, pair: " ", istio: "ping pong", balance: "ping pong"},
		"both":                   {pingPong: true, state: argov1.Ping, pair: "c s", istio: "c s", balance: "pong ping"},
	} {
		t.Run(name, func(t *testing.T) {
			ro := cartRollout(`{"istio":{},"alb":{"servicePort":80}}`)
			c := ro.Spec.Strategy.Canary
			c.CanaryService, c.StableService = "", ""
			if x.pair != " " {
				c.CanaryService, c.StableService = "c", "s"
			}
			if x.pingPong {
				c.PingPong = &argov1.PingPongSpec{PingService: "ping", PongService: "pong"}
			}
			ro.Status.Canary.StablePingPong = x.state
			routers, err := all.ForRollout(c.TrafficRouting)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{x.istio, x.balance} {
				target := routers[i].Target(ro, "", "")
				if got := target.CanaryService + " " + target.StableService; got != want {
					t.Errorf("%s sees %q, want %q", routers[i].Name, got, want)
				}
			}
		})
	}
}

func TestARouterGetsTheFeaturesThatOnlyItSupports(t *testing.T) {
	able, unable := fakeRouter{traffic.Features{Others: true, HeaderRoutes: true, MirrorRoutes: true}}, fakeRouter{}
	route := release.Route{
		Canary: 20, Others: []release.Destination{{Service: "exp", Weight: 5}},
		HeaderRoutes: []release.HeaderRoute{{Name: "testers"}}, MirrorRoutes: []release.MirrorRoute{{Name: "shadow"}},
	}
	ro := cartRollout(`{"istio":{},"nginx":{}}`)
	routers, err := traffic.Registry{Rollout: map[string]traffic.Renderer{"istio": able, "nginx": unable}}.ForRollout(ro.Spec.Strategy.Canary.TrafficRouting)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []release.Route{route, {Canary: 20}} {
		if diff := cmp.Diff(want, routers[i].Route(routers[i].Target(ro, "", ""), route)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", routers[i].Name, diff)
		}
	}
	routers, err = traffic.Registry{Rollout: map[string]traffic.Renderer{"nginx": unable}}.ForRollout(cartRollout(`{"nginx":{}}`).Spec.Strategy.Canary.TrafficRouting)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(route, routers[0].Route(routers[0].Target(ro, "", ""), route)); diff != "" {
		t.Errorf("an unsupported feature must remain, to be refused (-want +got):\n%s", diff)
	}
}

func TestManagedRoutesOfSteps(t *testing.T) {
	header := traffic.HeaderRoute(argov1.SetHeaderRoute{Name: "testers", Match: []argov1.HeaderRoutingMatch{
		{HeaderName: "x-tester", HeaderValue: &argov1.StringMatch{Exact: "1"}}, {HeaderName: "x-nothing"},
	}})
	if diff := cmp.Diff(release.HeaderRoute{Name: "testers", Match: []release.Match{
		{Headers: map[string]release.StringMatch{"x-tester": {Exact: "1"}}},
	}}, header); diff != "" {
		t.Errorf("header route (-want +got):\n%s", diff)
	}
	mirror := traffic.MirrorRoute(argov1.SetMirrorRoute{Name: "shadow", Match: []argov1.RouteMatch{{
		Method: &argov1.StringMatch{Exact: "GET"}, Path: &argov1.StringMatch{Prefix: "/"}, Headers: map[string]argov1.StringMatch{"x": {Regex: "y"}},
	}}})
	if diff := cmp.Diff(release.MirrorRoute{Name: "shadow", Percent: 100, Match: []release.Match{{
		Method: &release.StringMatch{Exact: "GET"}, Path: &release.StringMatch{Prefix: "/"}, Headers: map[string]release.StringMatch{"x": {Regex: "y"}},
	}}}, mirror); diff != "" {
		t.Errorf("mirror route (-want +got):\n%s", diff)
	}
}
