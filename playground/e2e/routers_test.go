//go:build linux

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	vocabulary "github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb"
	"github.com/serin-dev/serin/internal/traffic/ambassador"
	"github.com/serin-dev/serin/internal/traffic/apisix"
	"github.com/serin-dev/serin/internal/traffic/appmesh"
	"github.com/serin-dev/serin/internal/traffic/consul"
	"github.com/serin-dev/serin/internal/traffic/contour"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/traffic/gloo"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/nginx"
	"github.com/serin-dev/serin/internal/traffic/openshift"
	"github.com/serin-dev/serin/internal/traffic/smi"
	"github.com/serin-dev/serin/internal/traffic/traefik"
)

// rolloutRouters are the routers of the controller. The registry of the controller is not used, because it would link all its
// dependencies.
var rolloutRouters = traffic.Registry{Rollout: map[string]traffic.Renderer{
	"istio": istio.NewRollout(""), "nginx": nginx.NewRollout(), "alb": alb.NewRollout(alb.Options{}), "smi": smi.NewRollout(""),
	"ambassador": ambassador.NewRollout(""), "appMesh": appmesh.NewRollout(), "traefik": traefik.NewRollout(""), "apisix": apisix.NewRollout(),
	consul.PluginName: consul.NewRollout(), contour.PluginName: contour.NewRollout(), gatewayapi.PluginName: gatewayapi.NewRollout(), gloo.PluginName: gloo.NewRollout(),
	openshift.PluginName: openshift.NewRollout(),
}}

// TestRoutersOfRolloutsOnARealAPIServer applies weights, experiments and managed routes with each router of the examples, as
// far as the router supports them. The API server admits the objects, applying a route twice changes nothing, and the route
// reads back.
func TestRoutersOfRolloutsOnARealAPIServer(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(repository, "docs", "examples", "rollout-*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			for _, router := range exerciseRouters(t, "router-"+name, string(text)) {
				tried[router] = true
			}
		})
	}
	for router := range rolloutRouters.Rollout {
		if !tried[router] {
			t.Errorf("no example has router %s", router)
		}
	}
}

// exerciseRouters applies the routes of a release with the routers of an example, and returns their names.
func exerciseRouters(t *testing.T, namespace, manifest string) (names []string) {
	s := newEnvironment(t, namespace)
	s.kubectl(manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
	scheme := runtime.NewScheme()
	if err := argov1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", controllerKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.New(config, kube.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ro := &argov1.Rollout{}
	if err := c.Get(t.Context(), kube.ObjectKey{Namespace: namespace, Name: "cart"}, ro); err != nil {
		t.Fatal(err)
	}
	if ro.Spec.Strategy.Canary == nil || ro.Spec.Strategy.Canary.TrafficRouting == nil {
		return nil // an example without a router
	}
	ro.Spec.Strategy.Canary.TrafficRouting.ManagedRoutes = []argov1.ManagedRoute{{Name: "testers"}, {Name: "shadow"}}
	routers, err := rolloutRouters.ForRollout(ro.Spec.Strategy.Canary.TrafficRouting)
	if err != nil {
		t.Fatal(err)
	}
	a := &traffic.Applier{Client: c, FieldOwner: "serin"}
	for _, router := range routers {
		names = append(names, router.Name)
		target := router.Target(ro, "6d4f", "77c9")
		if faults, err := a.Validate(t.Context(), router.Renderer, target); err != nil || len(faults) > 0 {
			t.Fatalf("%s: faults %v, error %v", router.Name, faults, err)
		}
		for _, route := range []vocabulary.Route{{}, fullRoute(router.Renderer.Features(target)), {Canary: 100}, {}} {
			applyAndVerify(t, a, router, target, route)
		}
		target.Drained = true
		applyAndVerify(t, a, router, target, vocabulary.Route{})
		for range 2 {
			if err := a.Restore(t.Context(), router.Renderer, target); err != nil {
				t.Errorf("%s: restore: %v", router.Name, err)
			}
		}
		owned, err := a.Owned(t.Context(), router.Renderer, target)
		if err == nil {
			err = a.Delete(t.Context(), target, owned)
		}
		if err != nil {
			t.Errorf("%s: delete owned objects: %v", router.Name, err)
		}
		if remaining, err := a.Owned(t.Context(), router.Renderer, target); err != nil || len(remaining) > 0 {
			t.Errorf("%s: objects that were not deleted: %v, error %v", router.Name, remaining, err)
		}
	}
	return names
}

// fullRoute returns a route with all features of a router.
func fullRoute(f traffic.Features) vocabulary.Route {
	r := vocabulary.Route{Canary: 20}
	if f.Others {
		r.Others = []vocabulary.Destination{{Service: "cart-exp", Weight: 5, Revision: "58b1"}}
	}
	if f.HeaderRoutes {
		r.HeaderRoutes = []vocabulary.HeaderRoute{{Name: "testers", Match: []vocabulary.Match{
			{Headers: map[string]vocabulary.StringMatch{"x-tester": {Exact: "1"}}}, {Headers: map[string]vocabulary.StringMatch{"x-group": {Exact: "in"}}},
		}}}
	}
	if f.MirrorRoutes {
		r.MirrorRoutes = []vocabulary.MirrorRoute{{Name: "shadow", Percent: 30, Match: []vocabulary.Match{{Path: &vocabulary.StringMatch{Prefix: "/"}}}}}
	}
	return r
}

// applyAndVerify applies a route twice and checks that it reads back.
func applyAndVerify(t *testing.T, a *traffic.Applier, router traffic.Router, target traffic.Target, route vocabulary.Route) {
	t.Helper()
	if _, err := a.Apply(t.Context(), router.Renderer, target, router.Route(target, route), nil); err != nil {
		t.Fatalf("%s: %s: %v", router.Name, route, err)
	}
	again, err := a.Apply(t.Context(), router.Renderer, target, router.Route(target, route), nil)
	if err != nil || again.Changed {
		t.Errorf("%s: %s again: changed %v, error %v", router.Name, route, again.Changed, err)
	}
	seen, _, err := a.Observe(t.Context(), router.Renderer, target)
	if err != nil || !seen.Found || seen.Route.Canary != route.Canary || len(seen.Route.Others) != len(route.Others) {
		t.Errorf("%s: %s reads back as %+v, error %v", router.Name, route, seen, err)
	}
}
