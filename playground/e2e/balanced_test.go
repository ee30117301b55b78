//go:build linux

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	networking "k8s.io/client-go/applyconfigurations/networking/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic/alb/albtest"
)

const (
	balancerARN = "arn:aws:elasticloadbalancing:eu-west-1:1:loadbalancer/app/shop/1"
	canaryARN   = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/canary/2"
	stableARN   = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/stable/3"
)

const balancedObjects = stableAndCanaryServices + `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  rules: [{http: {paths: [{path: /*, pathType: ImplementationSpecific, backend: {service: {name: cart-stable, port: {name: use-annotation}}}}]}}]
---
apiVersion: elbv2.k8s.aws/v1beta1
kind: TargetGroupBinding
metadata: {name: k8s-stable}
spec: {serviceRef: {name: cart-stable, port: 80}, targetGroupARN: "` + stableARN + `", targetType: ip}
---
`

// TestAReleaseWaitsForAWS uses a load balancer that applies the Ingress late: the release waits until the load balancer has
// each weight, and the old pods remain until the target group of the stable Service contains the new ones.
func TestAReleaseWaitsForAWS(t *testing.T) {
	t.Parallel()
	region := &albtest.Region{
		Balancers: []*albtest.Balancer{{
			ARN: balancerARN, Name: "shop", Host: "shop.eu-west-1.elb.amazonaws.com", Groups: []string{canaryARN, stableARN},
			Listeners: [][]map[string]int{{{canaryARN: 0, stableARN: 100}}},
		}},
		Tags:     map[string]string{canaryARN: "balanced/shop-cart-canary:80", stableARN: "balanced/shop-cart-stable:80"},
		PageSize: 100,
	}
	s := newEnvironment(t, "balanced")
	for name, value := range region.Serve(t) {
		s.env = append(s.env, name+"="+value)
	}
	s.startSerin("-aws-verify-target-group")
	s.apply(balancedObjects + rolloutManifest(t, "cart", 2, `{canary: {stableService: cart-stable, canaryService: cart-canary, scaleDownDelaySeconds: 1,
	  trafficRouting: {alb: {ingress: shop, servicePort: 80}}, steps: [{setWeight: 20}, {pause: {}}]}}`))
	_, err := shared.Client.NetworkingV1().Ingresses(s.namespace).ApplyStatus(t.Context(), ingressStatus("shop", s.namespace, region.Balancers[0].Host), metav1.ApplyOptions{FieldManager: "aws", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")

	s.releaseVersion("cart", "v2")
	s.waitForIngressWeight(20)
	s.waitForGate("route-confirmed", "load balancer shop gives Service cart-canary weight 0, and 20 is wanted")
	setListenerWeights := func(canary, stable int) {
		region.Change(func(r *albtest.Region) {
			r.Balancers[0].Listeners = [][]map[string]int{{{canaryARN: canary, stableARN: stable}}}
		})
	}
	setListenerWeights(20, 80)
	paused := s.waitForPausedAt(20)
	if v := paused.Status.Canary.Weights.Verified; v == nil || !*v {
		t.Errorf("the status does not report the weight as verified: %s", toJSON(t, paused.Status.Canary.Weights))
	}
	want := &argov1.ALBStatus{
		Ingress: "shop", LoadBalancer: argov1.AWSResourceRef{Name: "shop", ARN: balancerARN, FullName: "app/shop/1"},
		CanaryTargetGroup: argov1.AWSResourceRef{Name: "targetgroup/canary/2", ARN: canaryARN, FullName: "targetgroup/canary/2"},
		StableTargetGroup: argov1.AWSResourceRef{Name: "targetgroup/stable/3", ARN: stableARN, FullName: "targetgroup/stable/3"},
	}
	if got := paused.Status.ALB; got == nil || *got != *want {
		t.Errorf("the status has %s", toJSON(t, got))
	}

	setListenerWeights(100, 0) // this time before the Ingress changes
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	s.waitForIngressWeight(0)
	s.waitForGate("route-confirmed", "load balancer shop gives Service cart-canary weight 100, and 0 is wanted")
	setListenerWeights(0, 100)
	s.waitForGate("route-confirmed", "the target group of TargetGroupBinding k8s-stable does not have")
	if got := s.podCounts("cart"); got != "v1=2 v2=2" {
		t.Errorf("the pods are %s", got)
	}
	var targets []albtest.Target
	pods, err := shared.Client.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=cart"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if strings.HasSuffix(pod.Spec.Containers[0].Image, ":v2") {
			targets = append(targets, albtest.Target{IP: pod.Status.PodIP, Port: 8080, State: "healthy"})
		}
	}
	region.Change(func(r *albtest.Region) { r.Targets = map[string][]albtest.Target{stableARN: targets} })
	s.waitForPods("cart", "v2=2")
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.events.waitForState(t, "there is an event that the target group contains the pods", 0, func(e state[corev1.Event]) error {
		if e.object.Reason != "TargetGroupVerified" || !strings.HasPrefix(e.object.Message, "Service cart-stable: ") {
			return fmt.Errorf("%s: %s", e.object.Reason, e.object.Message)
		}
		return nil
	})
}

// waitForIngressWeight waits until the Ingress contains a weight of the canary.
func (s *environment) waitForIngressWeight(weight int) {
	s.t.Helper()
	s.waitForObject(fmt.Sprintf("Ingress shop has weight %d", weight), ingresses, "shop", func(object *unstructured.Unstructured) error {
		var action struct {
			ForwardConfig struct{ TargetGroups []struct{ Weight int } }
		}
		text := convert[networkingv1.Ingress](s.t, object).Annotations["alb.ingress.kubernetes.io/actions.cart-stable"]
		if err := json.Unmarshal([]byte(text), &action); err != nil || len(action.ForwardConfig.TargetGroups) == 0 || action.ForwardConfig.TargetGroups[0].Weight != weight {
			return errors.New(text)
		}
		return nil
	})
}

// waitForGate waits until a gate of Rollout cart waits with the given reason.
func (s *environment) waitForGate(gate, why string) {
	s.t.Helper()
	s.waitForObject("gate "+gate+" waits: "+why, rollouts, "cart", func(object *unstructured.Unstructured) error {
		status := convert[argov1.Rollout](s.t, object).Status
		if status.Serin != nil {
			for _, g := range status.Serin.Gates {
				if g.Name == gate && g.Verdict == "wait" && strings.Contains(g.Message, why) {
					return nil
				}
			}
		}
		return errors.New(toJSON(s.t, status.Serin))
	})
}

// ingressStatus returns the status of an Ingress with a load balancer.
func ingressStatus(name, namespace, host string) *networking.IngressApplyConfiguration {
	return networking.Ingress(name, namespace).WithStatus(networking.IngressStatus().WithLoadBalancer(
		networking.IngressLoadBalancerStatus().WithIngress(networking.IngressLoadBalancerIngress().WithHostname(host))))
}
