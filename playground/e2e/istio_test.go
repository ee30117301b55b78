//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Istio cannot run here. Its CRDs are installed, so that the routes are tested with the API server; a fake Prometheus returns the
// metrics.

// virtualService contains the fields of a VirtualService that the tests use.
type virtualService struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Gateways []string    `json:"gateways"`
		Hosts    []string    `json:"hosts"`
		HTTP     []istioRule `json:"http"`
	} `json:"spec"`
}

type istioRule struct {
	Match   []map[string]any `json:"match,omitempty"`
	Rewrite map[string]any   `json:"rewrite,omitempty"`
	Retries map[string]any   `json:"retries,omitempty"`
	Timeout string           `json:"timeout,omitempty"`
	Route   []struct {
		Destination struct {
			Host string `json:"host"`
		} `json:"destination"`
		Weight int `json:"weight"`
	} `json:"route"`
}

// destinations returns the destinations of a rule as host=weight, in order.
func (r istioRule) destinations() string {
	var parts []string
	for _, to := range r.Route {
		parts = append(parts, fmt.Sprintf("%s=%d", to.Destination.Host, to.Weight))
	}
	return strings.Join(parts, " ")
}

// canaryWeights returns the different weights of the canary in a VirtualService, in order.
func canaryWeights(h *history[virtualService], from int) []int {
	states, _ := h.statesFrom(from)
	var all []int
	for _, s := range states {
		for _, rule := range s.object.Spec.HTTP {
			for _, to := range rule.Route {
				if strings.HasSuffix(to.Destination.Host, "-canary") && (len(all) == 0 || all[len(all)-1] != to.Weight) {
					all = append(all, to.Weight)
				}
			}
		}
	}
	return all
}

const cartScaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: cart}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  minReplicas: 1
  maxReplicas: 4
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}
---
`

func TestManifestOfTheFirstVersionWorksAsWritten(t *testing.T) {
	t.Parallel()
	prometheus, address := startFakePrometheus(t, func(query string) float64 {
		if strings.Contains(query, "istio_requests_total") {
			return 100
		}
		return 12
	})
	s := startEnvironment(t, "first", "-mesh-provider", "istio", "-metrics-server", address, "-drain-delay", "0s")
	s.keepPodsReady(t)
	routes := recordHistory[virtualService](t, virtuals, s.namespace)
	s.apply(deploymentByHand("cart", 1) + cartScaler)
	r := s.follow("cart")
	// The manifest is unchanged except for shorter intervals; the default interval is a minute.
	s.apply(readExample(t, "canary-2018", "    threshold: 5\n", "    threshold: 5\n    interval: 1s\n", "interval: 1m", "interval: 3s", "interval: 30s", "interval: 2s"))
	r.waitForPhase("Initialized")
	if shown, err := shared.Kubectl(t.Context(), "", "get", "canary", "-n", s.namespace); err != nil || !strings.Contains(shown, "cart") || !strings.Contains(shown, "Initialized") {
		t.Errorf("kubectl get canary prints %q (%v)", shown, err)
	}
	scaler := convert[autoscalingv2.HorizontalPodAutoscaler](t, s.get(scalers, "cart-primary"))
	if ref := scaler.Spec.ScaleTargetRef; ref.Name != "cart-primary" || scaler.Spec.MaxReplicas != 4 {
		t.Errorf("the primary's autoscaler is %+v", scaler.Spec)
	}

	r = s.follow("cart")
	mark := routes.length()
	s.deployVersion("cart", "v2")
	r.waitForEnd("Succeeded")
	if diff := cmp.Diff([]int{10, 20, 30, 40, 50, 0}, canaryWeights(routes, mark)); diff != "" {
		t.Errorf("weights of the route (-want +got):\n%s", diff)
	}
	var observed []int
	for _, w := range r.windows() {
		observed = append(observed, w.weight)
	}
	if diff := cmp.Diff([]int{10, 20, 30, 40, 50}, observed); diff != "" {
		t.Errorf("weights of the windows (-want +got):\n%s", diff)
	}

	r = s.follow("cart")
	prometheus.setValue(func(query string) float64 {
		if strings.Contains(query, "istio_requests_total") {
			return 98.5
		}
		return 12
	})
	s.deployVersion("cart", "v3")
	r.waitForEnd("Failed")
	r.waitForEvent("Canary failed!")
	if eventTexts := strings.Join(r.eventMessages(), "\n"); !strings.Contains(eventTexts, "Halt cart.first advancement success rate 98.50% < 99%") ||
		!strings.Contains(eventTexts, "Rolling back cart.first failed checks threshold reached 5") {
		t.Errorf("events of a success rate that is too low:\n%s", eventTexts)
	}

	r = s.follow("cart")
	prometheus.setValue(func(query string) float64 {
		if strings.Contains(query, "istio_requests_total") {
			return 100
		}
		return 501
	})
	s.deployVersion("cart", "v4")
	r.waitForEnd("Failed")
	r.waitForEvent("Halt cart.first advancement request duration 501ms > 500ms")
	want := map[string]bool{
		`sum(rate(istio_requests_total{reporter="destination",destination_workload_namespace="first",destination_workload=~"cart",response_code!~"5.*"}[3s])) / ` +
			`sum(rate(istio_requests_total{reporter="destination",destination_workload_namespace="first",destination_workload=~"cart"}[3s])) * 100`: true,
		`histogram_quantile(0.99, sum(rate(istio_request_duration_milliseconds_bucket{reporter="destination",destination_workload_namespace="first",destination_workload=~"cart"}[2s])) by (le))`: true,
	}
	asked := prometheus.receivedQueries()
	for query := range asked {
		if !strings.Contains(query, "istio_") {
			delete(asked, query) // the check that the provider is reachable
		}
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
}

func TestWeightsRiseWindowByWindowAndNotWhileAnAutoscalerScales(t *testing.T) {
	t.Parallel()
	prometheus, address := startFakePrometheus(t, always(100))
	s := startEnvironment(t, "weights", "-mesh-provider", "istio", "-metrics-server", address, "-drain-delay", "0s")
	hooks := startReceiver(t)
	routes := recordHistory[virtualService](t, virtuals, s.namespace)
	s.apply(deploymentByHand("cart", 1) + cartScaler)
	r := s.follow("cart")
	s.apply(readExample(t, "canary-weights", "  analysis:\n    interval: 1m", "  analysis:\n    interval: 1s",
		"http://loadtester.shop/", hooks.url("/load"), "{max: 500}, interval: 1m", "{max: 500}, interval: 1s", "{min: 99}, interval: 1m", "{min: 99}, interval: 1s"))
	s.waitForDeployment("is there", "cart-primary", hasReplicas(1))
	s.makePodsReady("app=cart-primary", 1)
	r.waitForPhase("Initialized")
	s.get(scalers, "cart-primary")
	for _, name := range []string{"cart", "cart-primary", "cart-canary"} {
		s.get(services, name)
	}
	s.waitForDeployment("is scaled to zero", "cart", hasReplicas(0))

	r = s.follow("cart")
	s.deployVersion("cart", "v2")
	r.waitForPhase("Progressing")
	promoted := make(chan error, 1)
	go func() {
		_, err := shared.Kubectl(context.WithoutCancel(t.Context()), "", "wait", "canary/cart", "-n", s.namespace, "--for=condition=promoted", "--timeout=3m")
		promoted <- err
	}()
	s.waitForDeployment("has its pod", "cart", hasReplicas(1))
	s.makePodsReady("app=cart", 1)
	r.waitFor("has weight 15", hasWeight(15))

	// An autoscaler scales the target, and then the primary. No window is evaluated while a pod of the target is missing. While a
	// pod of the primary is missing, the window is repeated. The weight does not change, however long that takes; the gate is in
	// the status after half a minute.
	s.patch(deployments, "cart", `{"spec":{"replicas":2}}`)
	waits := r.waitFor("waits for the pods of its target", hasWaitingGate("cart.weights not ready"))
	s.makePodsReady("app=cart", 1)
	after := r.waitFor("advances", func(c canary) error {
		if c.Status.CanaryWeight == waits.Status.CanaryWeight {
			return errors.New("not yet")
		}
		return nil
	})
	if after.Status.CanaryWeight != waits.Status.CanaryWeight+5 {
		t.Errorf("after the wait for the target the weight went from %d to %d", waits.Status.CanaryWeight, after.Status.CanaryWeight)
	}
	s.patch(deployments, "cart-primary", `{"spec":{"replicas":3}}`)
	s.waitForDeployment("has more pods", "cart-primary", hasReplicas(3))
	why, err := exec.CommandContext(t.Context(), serin, "why", "cart", "-n", s.namespace, "--kubeconfig", shared.Kubeconfig).CombinedOutput()
	if err != nil || !strings.Contains(string(why), "cart-primary.weights not ready") {
		t.Errorf("output of serin why cart while the primary is scaled (%v):\n%s", err, why)
	}
	s.makePodsReady("app=cart-primary", 2)
	r.waitFor("has its last weight", hasWeight(50))
	r.waitForPhase("Promoting")
	s.keepPodsReady(t)
	end := r.waitForEnd("Succeeded")
	if err := <-promoted; err != nil {
		t.Error(err)
	}
	st := end.Status
	if st.CanaryWeight != 0 || st.FailedChecks != 0 || st.Iterations != 0 || st.LastAppliedSpec == "" || st.LastAppliedSpec != st.LastPromotedSpec {
		t.Errorf("status at the end is %+v", st)
	}
	if c := end.condition("Promoted"); c.Status != metav1.ConditionTrue || c.Reason != "Succeeded" {
		t.Errorf("condition Promoted at the end is %+v", c)
	}
	if diff := cmp.Diff([]int{0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 0}, canaryWeights(routes, 0)); diff != "" {
		t.Errorf("weights of the route (-want +got):\n%s", diff)
	}
	// How many windows the primary takes to become ready depends on the load of the machine.
	windows, loadTests := len(r.windows()), len(callsByKey(hooks.callsTo("/load")))
	if windows < 10 || loadTests != windows {
		t.Errorf("%d windows, %d load tests, want the same number of both, at least one for each of 10 weights", windows, loadTests)
	}

	r = s.follow("cart")
	mark := routes.length()
	prometheus.setValue(always(50))
	s.deployVersion("cart", "v3")
	r.waitForEnd("Failed")
	r.waitForEvent("Canary failed!")
	if eventTexts := strings.Join(r.eventMessages(), "\n"); !strings.Contains(eventTexts, "Rolling back cart.weights failed checks threshold reached 10") {
		t.Errorf("ten failed checks had to roll back:\n%s", eventTexts)
	}
	if diff := cmp.Diff([]int{5, 0}, canaryWeights(routes, mark)); diff != "" {
		t.Errorf("weights of the route in a release that fails its checks (-want +got):\n%s", diff)
	}
	s.checkRoutedBeforeScaled(routes, mark, "cart")
}

// checkRoutedBeforeScaled checks that the canary was scaled down only after it received no more traffic.
func (s *environment) checkRoutedBeforeScaled(routes *history[virtualService], mark int, name string) {
	s.t.Helper()
	states, _ := routes.statesFrom(mark)
	last := states[len(states)-1].object.Metadata
	s.waitForDeployment("is scaled to zero", name, hasReplicas(0))
	scaled := s.get(deployments, name)
	// The resourceVersions of all objects in one etcd are ordered.
	if before, after := last.ResourceVersion, scaled.GetResourceVersion(); len(before) > len(after) || len(before) == len(after) && before > after {
		s.t.Errorf("the pods were scaled down (version %s) before the route changed (version %s)", after, before)
	}
}

// hasWaitingGate checks that a waiting gate in the status contains the text.
func hasWaitingGate(text string) func(canary) error {
	return func(c canary) error {
		for _, g := range c.Status.Serin.Gates {
			if g.Verdict == "wait" && strings.Contains(g.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("no gate waits for that: %+v", c.Status.Serin.Gates)
	}
}

func hasWeight(weight int) func(canary) error {
	return func(c canary) error {
		if c.Status.CanaryWeight != weight {
			return errors.New("another weight")
		}
		return nil
	}
}

// hasReplicas checks the number of pods of a Deployment, whether ready or not.
func hasReplicas(n int32) func(appsv1.Deployment) error {
	return func(d appsv1.Deployment) error {
		if *d.Spec.Replicas != n || d.Status.Replicas != n {
			return fmt.Errorf("it has %d of %d pods, want %d", d.Status.Replicas, *d.Spec.Replicas, n)
		}
		return nil
	}
}

func TestPortsRetriesTimeoutAndRewriteReachServicesAndRoute(t *testing.T) {
	t.Parallel()
	_, address := startFakePrometheus(t, always(100))
	s := startEnvironment(t, "ports", "-metrics-server", address, "-drain-delay", "0s")
	s.keepPodsReady(t)
	s.apply(replaceTexts(t, deploymentByHand("search", 1), "        ports: [{name: http, containerPort: 8080}]\n", `        ports: [{name: http, containerPort: 8080}, {name: metrics, containerPort: 9090}]
      - name: istio-proxy
        image: serin.dev/demo:v1
        ports: [{name: http-envoy-prom, containerPort: 15090}]
`))
	r := s.follow("search")
	s.apply(readExample(t, "canary-ports", "interval: 30s", "interval: 1s"))
	r.waitForPhase("Initialized")
	type port struct {
		Name   string
		Number int32
		Target string
	}
	for _, name := range []string{"search", "search-primary", "search-canary"} {
		var ports []port
		for _, p := range convert[corev1.Service](t, s.get(services, name)).Spec.Ports {
			ports = append(ports, port{p.Name, p.Port, p.TargetPort.String()})
		}
		if diff := cmp.Diff([]port{{"http", 80, "http"}, {"metrics", 9090, "9090"}}, ports); diff != "" {
			t.Errorf("ports of Service %s (-want +got):\n%s", name, diff)
		}
	}
	route := convert[virtualService](t, s.get(virtuals, "search")).Spec
	rule := route.HTTP[0]
	rule.Route = nil
	want := istioRule{
		Match:   []map[string]any{{"uri": map[string]any{"prefix": "/"}}},
		Rewrite: map[string]any{"uri": "/"},
		Retries: map[string]any{"attempts": int64(3), "perTryTimeout": "1s"},
		Timeout: "5s",
	}
	if diff := cmp.Diff(want, rule); diff != "" {
		t.Errorf("rule of the VirtualService (-want +got):\n%s", diff)
	}
	s.deployVersion("search", "v2")
	r.waitForEnd("Succeeded")
}

func TestIstioRoutesByHeaderAndCookieForTenIterations(t *testing.T) {
	t.Parallel()
	prometheus, address := startFakePrometheus(t, always(100))
	s := startEnvironment(t, "istio-ab", "-metrics-server", address, "-drain-delay", "0s")
	s.keepPodsReady(t)
	s.apply(deploymentByHand("web", 1))
	r := s.follow("web")
	s.apply(readExample(t, "canary-ab", "interval: 30s", "interval: 1s", "interval: 1m", "interval: 2s"))
	r.waitForPhase("Initialized")
	r = s.follow("web")
	s.deployVersion("web", "v2")
	r.waitFor("is in its first iteration", func(c canary) error {
		if c.Status.Iterations != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	route := convert[virtualService](t, s.get(virtuals, "web")).Spec
	if diff := cmp.Diff([]string{"shop/public"}, route.Gateways); diff != "" {
		t.Errorf("gateways (-want +got):\n%s", diff)
	}
	wantMatch := []map[string]any{
		{"headers": map[string]any{"x-user": map[string]any{"exact": "insider"}}},
		{"headers": map[string]any{"cookie": map[string]any{"regex": "^(.*?;)?(canary=always)(;.*)?$"}}},
	}
	if len(route.HTTP) != 2 || route.HTTP[0].destinations() != "web-primary=0 web-canary=100" || route.HTTP[1].destinations() != "web-primary=100" {
		t.Errorf("rules of the VirtualService are %+v", route.HTTP)
	} else if diff := cmp.Diff(wantMatch, route.HTTP[0].Match); diff != "" {
		t.Errorf("matches of the canary (-want +got):\n%s", diff)
	}
	r.waitForEnd("Succeeded")
	if windows := r.windows(); len(windows) != 10 {
		t.Errorf("%d iterations, want ten", len(windows))
	}
	r = s.follow("web")
	prometheus.setValue(always(98))
	s.deployVersion("web", "v3")
	r.waitForEnd("Failed")
	r.waitForEvent("Rolling back web.istio-ab failed checks threshold reached 2")
}

// TestDeletionRestoresTheUsersObjectsBeforeThePrimaryIsDeleted checks the order of the steps when a Canary is deleted.
func TestDeletionRestoresTheUsersObjectsBeforeThePrimaryIsDeleted(t *testing.T) {
	t.Parallel()
	_, address := startFakePrometheus(t, always(100))
	s := startEnvironment(t, "revert", "-metrics-server", address)
	s.keepPodsReady(t)
	s.apply(deploymentByHand("leave", 2) + `
apiVersion: v1
kind: Service
metadata: {name: leave, annotations: {team: blue}}
spec: {selector: {app: leave, tier: web}, ports: [{name: web, port: 80, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: {name: leave, labels: {team: blue}}
spec:
  hosts: [leave.example.com]
  http: [{timeout: 7s, route: [{destination: {host: leave}}]}]
`)
	service, route := s.get(services, "leave"), s.get(virtuals, "leave")
	r := s.follow("leave")
	s.apply(readExample(t, "canary-revert", "interval: 30s", "interval: 1s"))
	r.waitForPhase("Initialized")
	s.waitForDeployment("is scaled to zero", "leave", hasReplicas(0))
	if taken := s.get(virtuals, "leave"); cmp.Equal(route.Object["spec"], taken.Object["spec"]) {
		t.Error("the user's VirtualService was not changed")
	}
	s.patch(deployments, "leave-primary", `{"spec":{"replicas":3}}`) // as an autoscaler might
	s.waitForAvailable("leave-primary", 3)

	primary := recordHistory[appsv1.Deployment](t, deployments, s.namespace)
	s.delete(canaries, "leave")
	s.waitForObject("the Canary is deleted", canaries, "leave", checkAbsent)
	s.waitForObject("the primary is deleted", deployments, "leave-primary", checkAbsent)
	s.waitForAvailable("leave", 3)
	for kind, before := range map[*unstructured.Unstructured]*unstructured.Unstructured{s.get(services, "leave"): service, s.get(virtuals, "leave"): route} {
		if diff := cmp.Diff(before.Object["spec"], kind.Object["spec"]); diff != "" {
			t.Errorf("spec of the user's %s (-before +after):\n%s", before.GetKind(), diff)
		}
		if diff := cmp.Diff(before.GetAnnotations(), kind.GetAnnotations()); diff != "" {
			t.Errorf("annotations of the user's %s (-before +after):\n%s", before.GetKind(), diff)
		}
		if diff := cmp.Diff(before.GetLabels(), kind.GetLabels()); diff != "" {
			t.Errorf("labels of the user's %s (-before +after):\n%s", before.GetKind(), diff)
		}
	}
	// At all times there were enough available pods.
	states, _ := primary.statesFrom(0)
	available := map[string]int32{}
	for _, state := range states {
		available[state.name] = state.object.Status.AvailableReplicas
		if state.deleted {
			available[state.name] = 0
		}
		if len(available) == 2 && available["leave"]+available["leave-primary"] < 3 {
			t.Errorf("when %s had %d pods, only %v served", state.name, state.object.Status.AvailableReplicas, available)
		}
	}
}
