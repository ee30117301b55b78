package controller

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/nginx"
)

const routedCart = `
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: cart, generation: 1}
spec:
  replicas: 2
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: cart, image: "cart:1"}]}
  strategy:
    canary:
      stableService: cart
      canaryService: cart-canary
      trafficRouting:
        managedRoutes: [{name: testers}]
        istio:
          virtualService: {name: cart}
          destinationRule: {name: cart, canarySubsetName: canary, stableSubsetName: stable}
        nginx: {stableIngress: cart}
      steps:
        - setWeight: 50
        - setHeaderRoute: {name: testers, match: [{headerName: x-tester, headerValue: {exact: "1"}}]}
        - pause: {}
`

var routedObjects = []string{routedCart, cartService, strings.Replace(cartService, "name: cart,", "name: cart-canary,", 1), `
apiVersion: networking.istio.io/v1alpha3
kind: VirtualService
metadata: {name: cart}
spec:
  hosts: [cart]
  http: [{name: main, route: [{destination: {host: cart}}, {destination: {host: cart-canary}, weight: 0}]}]
`, `
apiVersion: networking.istio.io/v1alpha3
kind: DestinationRule
metadata: {name: cart}
spec:
  host: cart
  subsets: [{name: stable, labels: {app: cart}}, {name: canary, labels: {app: cart}}]
`, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: cart}
spec:
  rules: [{host: cart.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: cart, port: {number: 80}}}}]}}]
`}

// clusterWithTwoRouters returns a cluster whose cart is paused in the middle of a release, behind two routers.
func clusterWithTwoRouters(t *testing.T) *fakeCluster {
	t.Helper()
	p := newFakeCluster(t, routedObjects...)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{"istio": istio.NewRollout(""), "nginx": nginx.NewRollout()}}
	})
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	if status := p.rollout().Status; status.Phase != argov1.RolloutPhasePaused || status.Canary.Weights.Canary.Weight != 50 {
		t.Fatalf("phase %s: %s, weights %+v", status.Phase, status.Message, status.Canary.Weights)
	}
	if !p.objectsContain("VirtualService", "testers") || !p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) || !p.objectsContain("Ingress", `canary-weight: "50"`) {
		t.Fatal("the routers have no route")
	}
	return p
}

// restart replaces the process.
func (p *fakeCluster) restart() { p.reconciler = New(p.reconciler.Parts) }

// replaceClient replaces the client of the reconciler.
func (p *fakeCluster) replaceClient(c client.Client) { p.cache.Client = c }

// configure replaces the reconciler by one with other parts.
func (p *fakeCluster) configure(change func(parts *Parts)) {
	parts := p.reconciler.Parts
	change(&parts)
	p.reconciler = New(parts)
}

// objectsContain reports whether one of the objects of a kind contains a text.
func (p *fakeCluster) objectsContain(kind, text string) bool {
	p.Helper()
	version := map[string]string{
		"Ingress": "networking.k8s.io/v1", "ServiceResolver": "consul.hashicorp.com/v1alpha1", "ServiceSplitter": "consul.hashicorp.com/v1alpha1",
	}[kind]
	if version == "" {
		version = "networking.istio.io/v1alpha3"
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": version, "kind": kind + "List"}}
	if err := p.client.List(p.Context(), list, client.InNamespace(key.Namespace)); err != nil {
		p.Fatal(err)
	}
	return slices.ContainsFunc(list.Items, func(object unstructured.Unstructured) bool {
		raw, err := yaml.Marshal(object.Object)
		if err != nil {
			p.Fatal(err)
		}
		return strings.Contains(string(raw), text)
	})
}

func (p *fakeCluster) canaryIngress() error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"})
	return p.client.Get(p.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "cart-cart-canary"}, object)
}

// TestARemovedRouterIsRestored, whether Serin runs at the time or starts later: the user's objects at once, objects that were
// created for the release when it ends.
func TestARemovedRouterIsRestored(t *testing.T) {
	for name, meanwhile := range map[string]func(*fakeCluster){"running": func(*fakeCluster) {}, "down": (*fakeCluster).restart} {
		t.Run(name, func(t *testing.T) {
			p := clusterWithTwoRouters(t)
			p.edit(func(object *argov1.Rollout) {
				c := object.Spec.Strategy.Canary
				c.TrafficRouting, c.Steps = nil, slices.Delete(c.Steps, 1, 2) // this step needs a router
			})
			meanwhile(p)
			p.settle()
			if p.objectsContain("VirtualService", "testers") || p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) || p.objectsContain("DestinationRule", argov1.ManagedByAnnotation) {
				t.Error("Istio's objects still contain fields of the Rollout")
			}
			if !p.objectsContain("VirtualService", "weight: 50") {
				t.Error("the weights were changed")
			}
			if err := p.canaryIngress(); err != nil {
				t.Errorf("in the middle of the release the canary's Ingress does not exist: %v", err)
			}

			meanwhile(p)
			done := p.rollout()
			done.Status.PromoteFull = true
			if err := p.client.Status().Update(t.Context(), done); err != nil {
				t.Fatal(err)
			}
			p.settle()
			if status := p.rollout().Status; status.Phase != argov1.RolloutPhaseHealthy || status.Serin != nil && len(status.Serin.Routed) > 0 {
				t.Errorf("phase %s, and the status records %+v", status.Phase, status.Serin)
			}
			if err := p.canaryIngress(); !apierrors.IsNotFound(err) {
				t.Errorf("after the release the canary's Ingress still exists: %v", err)
			}
		})
	}
}

func TestAChangedRouterIsRestored(t *testing.T) {
	p := clusterWithTwoRouters(t)
	p.edit(func(object *argov1.Rollout) {
		object.Spec.Strategy.Canary.TrafficRouting.Istio.DestinationRule = nil
	})
	p.restart()
	p.settle()
	if p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
		t.Error("the DestinationRule still has a revision")
	}
	if !p.objectsContain("VirtualService", "testers") || !p.objectsContain("VirtualService", "weight: 50") || !p.objectsContain("Ingress", `canary-weight: "50"`) {
		t.Error("a route that is still named was removed")
	}
}

func TestAManagedRouteThatIsNoLongerNamedIsRemoved(t *testing.T) {
	p := clusterWithTwoRouters(t)
	p.edit(func(object *argov1.Rollout) {
		c := object.Spec.Strategy.Canary
		c.TrafficRouting.ManagedRoutes = nil
		c.Steps = slices.Delete(c.Steps, 1, 2)
	})
	p.restart()
	p.settle()
	if p.objectsContain("VirtualService", "testers") {
		t.Errorf("the route still exists: %+v", p.rollout().Status.Serin)
	}
}

func TestAStrategyWithoutRoutersRestoresThem(t *testing.T) {
	p := clusterWithTwoRouters(t)
	p.edit(func(object *argov1.Rollout) {
		object.Spec.Strategy = argov1.RolloutStrategy{BlueGreen: &argov1.BlueGreenStrategy{ActiveService: "cart"}}
	})
	p.restart()
	p.settle()
	if p.objectsContain("VirtualService", "testers") || p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
		t.Error("Istio's objects still contain fields of the Rollout")
	}
}

// TestARouteInAnotherNamespaceIsRefused once the administrator forbids it, and blocks neither the routes that replace it nor the
// deletion.
func TestARouteInAnotherNamespaceIsRefused(t *testing.T) {
	p := clusterWithTwoRouters(t)
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1alpha3", Kind: "VirtualService"})
	if err := p.client.Get(t.Context(), key, route); err != nil {
		t.Fatal(err)
	}
	elsewhere := client.ObjectKey{Namespace: "bank", Name: "cart"}
	route.SetNamespace(elsewhere.Namespace)
	route.SetResourceVersion("")
	if err := p.client.Create(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	p.edit(func(object *argov1.Rollout) {
		routing := object.Spec.Strategy.Canary.TrafficRouting
		routing.Istio.VirtualService.Name, routing.Istio.DestinationRule = "cart.bank", nil
	})
	p.settle()
	if err := p.client.Get(t.Context(), elsewhere, route); err != nil {
		t.Fatal(err)
	}

	p.configure(func(parts *Parts) { parts.Routers.NoCrossNamespace = true })
	p.settle()
	const want = "spec.strategy.canary.trafficRouting: Forbidden: can't access VirtualService cart.bank, cross-namespace references are blocked " +
		"(-no-cross-namespace-refs): use a VirtualService in namespace shop"
	if condition := p.condition(argov1.RolloutInvalidSpec); !strings.Contains(condition.Message, want) {
		t.Fatalf("condition InvalidSpec has the message %q", condition.Message)
	}
	before := route.GetResourceVersion()
	p.edit(func(object *argov1.Rollout) {
		object.Spec.Strategy.Canary.TrafficRouting.Istio.VirtualService.Name = "cart"
	})
	p.restart()
	p.settle()
	if status := p.rollout().Status; status.Phase != argov1.RolloutPhasePaused {
		t.Fatalf("with a route in its own namespace: phase %s: %s", status.Phase, status.Message)
	}

	p.edit(func(object *argov1.Rollout) {
		object.Spec.Strategy.Canary.TrafficRouting.Istio.VirtualService.Name = "cart.bank"
	})
	was := p.rollout()
	if err := p.client.Delete(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	p.reconciler.memory.recordDeleted(was)
	if _, err := p.reconcile(); err != nil {
		t.Errorf("the deletion: %v", err)
	}
	if err := p.client.Get(t.Context(), elsewhere, route); err != nil || route.GetResourceVersion() != before {
		t.Errorf("the route in the other namespace was written: %v", err)
	}
}
