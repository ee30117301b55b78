//go:build linux

package e2e_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
)

var ingresses = networkingv1.SchemeGroupVersion.WithResource("ingresses")

const frontIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: front
  annotations: {nginx.ingress.kubernetes.io/proxy-body-size: 8m}
spec:
  rules:
  - host: front.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}
`

// TestNGINXGetsASecondIngress checks the Ingress at each step. The tests with ingress-nginx itself are in nginx_test.go.
func TestNGINXGetsASecondIngress(t *testing.T) {
	t.Parallel()
	_, address := startFakePrometheus(t, always(100))
	s := startEnvironment(t, "nginx", "-metrics-server", address, "-drain-delay", "0s")
	hooks := startReceiver(t)
	s.keepPodsReady(t)
	s.apply(deploymentByHand("front", 1))
	const ref = "  ingressRef: {apiVersion: networking.k8s.io/v1, kind: Ingress, name: front}\n"
	changes := []string{"interval: 10s", "interval: 1s", "interval: 1m}", "interval: 1s}", "http://loadtester.shop/", hooks.url("/load")}

	r := s.follow("front")
	s.apply(readExample(t, "canary-nginx", append(changes, ref, "")...))
	r.waitForEvent("ingress selector is empty")
	s.apply(readExample(t, "canary-nginx", changes...))
	r.waitForEvent(`ingress front.nginx get query error: ingresses.networking.k8s.io "front" not found`)
	s.waitForObject("there is no second Ingress yet", ingresses, "front-canary", checkAbsent)
	s.waitForDeployment("keeps its pod", "front", hasReplicas(1))
	s.apply(frontIngress)
	r.waitForPhase("Initialized")
	before := s.get(ingresses, "front")

	copied := recordHistory[networkingv1.Ingress](t, ingresses, s.namespace)
	r = s.follow("front")
	s.deployVersion("front", "v2")
	r.waitForEnd("Succeeded")
	var weights []string
	states, _ := copied.statesFrom(0)
	for _, state := range states {
		if state.name != "front-canary" {
			continue
		}
		says := state.object.Annotations
		if says["nginx.ingress.kubernetes.io/canary"] != "true" || says["nginx.ingress.kubernetes.io/proxy-body-size"] != "8m" {
			t.Errorf("the second Ingress has the annotations %v", says)
		}
		if weight := says["nginx.ingress.kubernetes.io/canary-weight"]; len(weights) == 0 || weights[len(weights)-1] != weight {
			weights = append(weights, weight)
		}
	}
	want := []string{"0", "5", "10", "15", "20", "25", "30", "35", "40", "45", "50", "0"}
	if diff := cmp.Diff(want, weights); diff != "" {
		t.Errorf("weights of the second Ingress (-want +got):\n%s", diff)
	}
	if after := s.get(ingresses, "front"); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("the user's Ingress was changed (-before +after):\n%s", cmp.Diff(before, after))
	}
}

// TestADefinitionThatComesLaterIsFoundWithoutARestart runs alone, because it deletes a CRD that other tests use.
func TestADefinitionThatComesLaterIsFoundWithoutARestart(t *testing.T) {
	const orders = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: orders}
spec:
  provider: apisix
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: orders}
  routeRef: {apiVersion: apisix.apache.org/v2, kind: ApisixRoute, name: shop}
  service: {port: 80, targetPort: 8080}
  analysis: {interval: 1s, threshold: 1, stepWeight: 50}
`
	const route = `
apiVersion: apisix.apache.org/v2
kind: ApisixRoute
metadata: {name: shop}
spec: {http: [{name: orders, match: {paths: ["/*"]}, backends: [{serviceName: orders, servicePort: 80}]}]}
`
	definitions := filepath.Join(repository, "internal", "traffic", "apisix", "testdata", "definitions.yaml")
	if _, err := shared.Kubectl(t.Context(), "", "delete", "-f", definitions); err != nil {
		t.Fatal(err)
	}
	s := startEnvironment(t, "definition", "-drain-delay", "0s")
	s.keepPodsReady(t)
	s.apply(deploymentByHand("orders", 1))
	r := s.follow("orders")
	s.apply(orders)
	const missing = "ApisixRoute is not known to this cluster: install its definition (apisix.apache.org, v2), or choose another spec.provider"
	r.waitFor("is blocked", func(c canary) error {
		if blocked := c.condition("Blocked"); blocked.Status != "True" || blocked.Message != missing {
			return errors.New(string(blocked.Status) + " " + blocked.Message)
		}
		return nil
	})
	if err := shared.ApplyFolder(t.Context(), definitions); err != nil {
		t.Fatal(err)
	}
	s.kubectl(route, "apply", "-f", "-")
	r.waitForPhase("Initialized")
	s.kubectl("", "get", "apisixroute/shop-orders-canary")
}
