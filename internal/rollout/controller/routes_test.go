package controller

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
)

const (
	balancedCart = `
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
        alb: {ingress: cart, rootService: cart-root, servicePort: 80, stickinessConfig: {enabled: true, durationSeconds: 60}}
      steps: [{setWeight: 50}, {pause: {}}]
`
	balancedIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: cart}
spec:
  rules: [{host: cart.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: cart-root, port: {name: use-annotation}}}}]}}]
`
	cartAction = "alb.ingress.kubernetes.io/actions.cart-root"
)

func newBalancedCart(t *testing.T) *fakeCluster {
	t.Helper()
	services := []string{cartService, strings.Replace(cartService, "name: cart,", "name: cart-canary,", 1), strings.Replace(cartService, "name: cart,", "name: cart-root,", 1)}
	p := newFakeCluster(t, append(services, balancedCart, balancedIngress)...)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{"alb": alb.NewRollout(alb.Options{})}}
	})
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	return p
}

func (p *fakeCluster) ingress() *networkingv1.Ingress {
	p.Helper()
	ingress := &networkingv1.Ingress{}
	if err := p.client.Get(p.Context(), p.key, ingress); err != nil {
		p.Fatal(err)
	}
	return ingress
}

// TestAnUnreadableRouteIsWrittenAgain: a syntax error in an annotation must not stop the Rollout.
func TestAnUnreadableRouteIsWrittenAgain(t *testing.T) {
	p := newBalancedCart(t)
	ingress := p.ingress()
	action := ingress.Annotations[cartAction]
	ingress.Annotations[cartAction] = strings.TrimSuffix(action, "}")
	if err := p.client.Update(t.Context(), ingress); err != nil {
		t.Fatal(err)
	}
	p.settle()
	if got := p.ingress().Annotations[cartAction]; got != action || !strings.Contains(action, `"Weight":50`) {
		t.Errorf("the action is %s, want %s", got, action)
	}
}

// TestAChangedRouterKeepsTheRoute: after a change of the router's configuration, its objects are never without the weights of the
// release, not even between two reconciliations.
func TestAChangedRouterKeepsTheRoute(t *testing.T) {
	reconcile := func(p *fakeCluster, routed func() string) {
		p.Helper()
		for range 3 {
			if _, err := p.reconcile(); err != nil {
				p.Fatal(err)
			}
			if fault := routed(); fault != "" {
				p.Error(fault)
			}
		}
		p.settle()
	}
	t.Run("alb", func(t *testing.T) {
		p := newBalancedCart(t)
		root := "cart-root"
		routed := func() string {
			if action := p.ingress().Annotations["alb.ingress.kubernetes.io/actions."+root]; !strings.Contains(action, `"ServiceName":"cart-canary","ServicePort":"80","Weight":50`) {
				return "the action of " + root + " is " + action
			}
			return ""
		}
		p.edit(func(object *argov1.Rollout) {
			object.Spec.Strategy.Canary.TrafficRouting.ALB.StickinessConfig.DurationSeconds = 120
		})
		reconcile(p, routed)
		if action := p.ingress().Annotations[cartAction]; !strings.Contains(action, `"DurationSeconds":120`) {
			t.Errorf("the action is %s, want the new stickiness", action)
		}
		root = "cart" // the user's rules name it in addition
		ingress := p.ingress()
		ingress.Spec.Rules[0].HTTP.Paths = append(ingress.Spec.Rules[0].HTTP.Paths, *ingress.Spec.Rules[0].HTTP.Paths[0].DeepCopy())
		ingress.Spec.Rules[0].HTTP.Paths[1].Backend.Service.Name = root
		if err := p.client.Update(t.Context(), ingress); err != nil {
			t.Fatal(err)
		}
		p.edit(func(object *argov1.Rollout) { object.Spec.Strategy.Canary.TrafficRouting.ALB.RootService = root })
		reconcile(p, routed)
		if action := p.ingress().Annotations[cartAction]; !strings.Contains(action, `"ServiceName":"cart-root","ServicePort":"80","Weight":100`) {
			t.Errorf("the action of the former root Service is %s, want all requests to it", action)
		}
	})
	t.Run("istio", func(t *testing.T) {
		p := clusterWithTwoRouters(t)
		p.edit(func(object *argov1.Rollout) {
			object.Spec.Strategy.Canary.TrafficRouting.Istio.VirtualService.Routes = []string{"main"}
		})
		reconcile(p, func() string {
			if !p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
				return "the subsets select no revision"
			}
			return ""
		})
		if !p.objectsContain("VirtualService", "testers") || len(p.rollout().Status.Serin.Routed) > 1 {
			t.Errorf("the managed route is lost, or former routers remain: %+v", p.rollout().Status.Serin.Routed)
		}
	})
}

// TestRolloutsShareARoute: one of them is idle, and the other one has a weight.
func TestRolloutsShareARoute(t *testing.T) {
	shared := strings.Replace(balancedCart, `alb: {ingress: cart, rootService: cart-root, servicePort: 80, stickinessConfig: {enabled: true, durationSeconds: 60}}`,
		`plugins: {argoproj-labs/gatewayAPI: {httpRoute: shop}}`, 1)
	p := newFakeCluster(t, shared, strings.ReplaceAll(shared, "cart", "pay"), cartService, strings.Replace(cartService, "name: cart,", "name: cart-canary,", 1),
		strings.ReplaceAll(cartService, "cart", "pay"), strings.ReplaceAll(strings.Replace(cartService, "name: cart,", "name: cart-canary,", 1), "cart", "pay"), `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  rules:
  - matches: [{path: {type: PathPrefix, value: /cart}}]
    backendRefs: [{name: cart, port: 80}, {name: cart-canary, port: 80, weight: 0}]
  - matches: [{path: {type: PathPrefix, value: /pay}}]
    backendRefs: [{name: pay, port: 80}, {name: pay-canary, port: 80, weight: 0}]
`)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{gatewayapi.PluginName: gatewayapi.NewRollout()}}
	})
	rollouts := []types.NamespacedName{key, {Namespace: "shop", Name: "pay"}}
	for _, p.key = range rollouts {
		p.settle()
	}
	p.edit(withImage("pay:2"))
	p.settle()
	if weights := p.rollout().Status.Canary.Weights; weights == nil || weights.Canary.Weight != 50 {
		t.Fatalf("pay has the weights %+v, want 50", weights)
	}
	for _, p.key = range rollouts {
		p.writes = nil
		if _, err := p.reconcile(); err != nil || len(p.writes) > 0 {
			t.Errorf("%s wrote %v, %v, want nothing", p.key.Name, p.writes, err)
		}
	}
}
