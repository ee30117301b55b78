package controller

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb"
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
