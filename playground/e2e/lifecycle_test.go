//go:build linux

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/playground/load"
)

// boundTail is the probability with which a count may exceed a bound by chance. It is so small that this never happens in
// practice.
const boundTail = 1e-9

// settleTime is the time until the gateway serves a changed route. Requests during this time are not counted in shares.
const settleTime = time.Second

// userObjects are the objects of the user before the Canary exists: clients use the host name at the gateway, and the Service.
const userObjects = `
apiVersion: v1
kind: Service
metadata: {name: cart}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart}
spec:
  parentRefs: [{name: gateway, namespace: playground}]
  hostnames: [cart.test]
  rules: [{backendRefs: [{name: cart, port: 80}]}]
`

const cartCanary = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: cart}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  revertOnDeletion: true
  service:
    port: 80
    targetPort: http
    hosts: [cart.test]
    gatewayRefs: [{name: gateway, namespace: playground}]
  analysis:
    interval: 3s
    threshold: 2
    stepWeights: [20, 50]
    metrics:
    - {name: request-success-rate, interval: 5s, thresholdRange: {min: 99}}
    - {name: request-duration, interval: 5s, thresholdRange: {max: 500}}
`

// cartWindow is the interval of cartCanary.
const cartWindow = 3 * time.Second

// loadedEnvironment is an environment with a steady load on one application, through the gateway and through the Service.
type loadedEnvironment struct {
	*environment
	gateway, service *load.Load
}

// TestEachStepReceivesItsShareAndNoRequestIsLost runs the life of one application under load: the Canary is initialized while
// the application serves, a version is promoted, two are rolled back, a release is restarted on a new revision, and the
// Canary is deleted.
//
// It runs alone, because the shares of requests are most accurate when the gateway has no other load.
func TestEachStepReceivesItsShareAndNoRequestIsLost(t *testing.T) {
	a := loadedEnvironment{environment: startEnvironment(t, "acts")}
	a.apply(deployment(t, "cart", 2) + userObjects)
	a.waitForAvailable("cart", 2)
	before := map[string]*unstructured.Unstructured{"Service": a.get(services, "cart"), "HTTPRoute": a.get(httpRoutes, "cart")}
	a.gateway, a.service = a.startLoad("cart.test", 80), a.startServiceLoad("cart", 80, 10)
	for _, part := range []struct {
		name string
		run  func(*testing.T, loadedEnvironment)
	}{
		{"adoption of a live Deployment", testAdoption},
		{"promotion", testPromotion},
		{"rollback of a version with errors", testRollbackOfErrors},
		{"rollback of a slow version", testRollbackOfLatency},
		{"restart on a new revision", testRestart},
		{"deletion", func(t *testing.T, a loadedEnvironment) { testDeletion(t, a, before) }},
	} {
		passed := t.Run(part.name, func(t *testing.T) {
			a.t = t // waits in this part fail the subtest
			part.run(t, a)
		})
		a.t = t
		if !passed {
			return // the next part requires the state that this one should have reached
		}
	}
}

// checkNoRequestLostDuring checks that no request is lost during an operation, and that requests fail only at the bad version.
func (a loadedEnvironment) checkNoRequestLostDuring(badVersion string, operation func()) {
	a.t.Helper()
	gatewayBefore, serviceBefore := a.gateway.Counts(), a.service.Counts()
	operation()
	waitForRequests(a.t, a.gateway, 40)
	for client, counts := range map[string]load.Counts{"gateway": a.gateway.Counts().Since(gatewayBefore), "Service": a.service.Counts().Since(serviceBefore)} {
		if failed := counts.Failed() - counts.ByVersion[badVersion].Errors; failed != 0 {
			a.t.Errorf("%d requests to the %s failed: %s", failed, client, counts)
		}
	}
}

func testAdoption(t *testing.T, a loadedEnvironment) {
	a.checkNoRequestLostDuring("", func() {
		r := a.follow("cart")
		a.apply(cartCanary)
		r.waitForPhase("Initialized")
		a.waitForPodsDeleted("app=cart")
	})
	counts := waitForRequests(t, a.gateway, 40)
	if answered := counts.ByVersion["v1"].Requests; answered != counts.Requests {
		t.Errorf("after the adoption v1 answered %d of %d requests: %s", answered, counts.Requests, counts)
	}
}

func testPromotion(t *testing.T, a loadedEnvironment) {
	r := a.follow("cart")
	a.checkNoRequestLostDuring("", func() {
		a.deployVersion("cart", "v2")
		r.waitForEnd("Succeeded")
		a.waitForPodsDeleted("app=cart")
	})
	a.checkPromotion(r.windows(), "v2", 20, 50)
	const want = `New revision detected! Scaling up cart.acts
Starting canary analysis for cart.acts
Advance cart.acts canary weight 20
Advance cart.acts canary weight 50
Copying cart.acts template spec to cart-primary.acts
Routing all traffic to primary
Promotion completed! Scaling down cart.acts`
	r.waitForEvent("Promotion completed!")
	if diff := cmp.Diff(want, strings.Join(r.eventMessages(), "\n")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// promote releases a version, and checks that no request is lost and that each of the weights receives its share.
func (a loadedEnvironment) promote(name, version string, weights ...int) {
	a.t.Helper()
	r := a.follow(name)
	a.checkNoRequestLostDuring("", func() {
		a.deployVersion(name, version)
		r.waitForEnd("Succeeded")
		a.waitForPodsDeleted("app=" + name)
	})
	a.checkPromotion(r.windows(), version, weights...)
}

// checkPromotion checks that the windows of a promoted release had these weights, that the version received its share in each, and
// that it answers all requests now.
func (a loadedEnvironment) checkPromotion(windows []window, version string, weights ...int) {
	a.t.Helper()
	var got []int
	for _, w := range windows {
		got = append(got, w.weight)
		a.checkShare(w, version)
	}
	if diff := cmp.Diff(weights, got); diff != "" {
		a.t.Errorf("weights of the windows (-want +got):\n%s", diff)
	}
	counts := waitForRequests(a.t, a.gateway, 40)
	if answered := counts.ByVersion[version].Requests; answered != counts.Requests {
		a.t.Errorf("after the promotion %s answered %d of %d requests: %s", version, answered, counts.Requests, counts)
	}
}

// checkShare checks that the version received the weight's share of the requests of a window.
func (a loadedEnvironment) checkShare(w window, version string) {
	a.t.Helper()
	a.checkShareBetween(w, version, settleTime, cartWindow)
}

// checkShareBetween is checkShare for a part of the window, given as times after its start.
func (a loadedEnvironment) checkShareBetween(w window, version string, from, to time.Duration) {
	a.t.Helper()
	counts := a.gateway.Between(w.start.Add(from), w.start.Add(to))
	low, high := load.BinomialBounds(counts.Requests, float64(w.weight)/100, boundTail)
	if got := counts.ByVersion[version].Requests; got < low || got > high {
		a.t.Errorf("at weight %d version %s got %d of %d requests, want %d to %d", w.weight, version, got, counts.Requests, low, high)
	}
}

// runRollback releases a bad version and returns the counts of the requests while it received traffic.
func runRollback(t *testing.T, a loadedEnvironment, version string, env ...string) load.Counts {
	r := a.follow("cart")
	a.checkNoRequestLostDuring(version, func() {
		a.deployVersion("cart", version, env...)
		r.waitForEnd("Failed")
		a.waitForPodsDeleted("app=cart")
	})
	// Each failed check opens a window, including the one that reaches the threshold; nothing is observed in that window.
	windows := slices.DeleteFunc(r.windows(), func(w window) bool { return w.failedChecks >= 2 })
	for _, w := range windows {
		if w.weight != 20 {
			t.Errorf("version %s was observed at weight %d, want 20", version, w.weight)
		}
		a.checkShare(w, version)
	}
	if len(windows) != 2 {
		t.Fatalf("version %s was observed for %d windows, want 2, which is the threshold of failed checks", version, len(windows))
	}
	r.waitForEvent("Canary failed! Scaling down cart.acts")
	if !strings.Contains(strings.Join(r.eventMessages(), "\n"), "Rolling back cart.acts failed checks threshold reached 2") {
		t.Errorf("no event reports the rollback:\n%s", strings.Join(r.eventMessages(), "\n"))
	}
	after := waitForRequests(t, a.gateway, 40)
	if answered := after.ByVersion["v2"].Requests; answered != after.Requests {
		t.Errorf("after the rollback v2 answered %d of %d requests: %s", answered, after.Requests, after)
	}
	var first, last time.Time
	for _, sample := range a.gateway.Samples() {
		if sample.Version == version {
			if first.IsZero() || sample.StartedAt.Before(first) {
				first = sample.StartedAt
			}
			if sample.StartedAt.After(last) {
				last = sample.StartedAt
			}
		}
	}
	if end := windows[len(windows)-1].start.Add(cartWindow); first.Before(windows[0].start.Add(-settleTime)) || last.Before(end.Add(-settleTime)) {
		t.Errorf("version %s answered from %s to %s, want from the first to the last of its windows, %s to %s", version, first, last, windows[0].start, end)
	}
	return a.gateway.Between(first, last.Add(1))
}

func testRollbackOfErrors(t *testing.T, a loadedEnvironment) {
	const errorRate = 0.5
	counts := runRollback(t, a, "v3", "ERROR_PERCENT", fmt.Sprint(errorRate*100))
	// The bad version may receive its share of the requests, and fail the part of them that its error rate determines.
	_, maximum := load.BinomialBounds(counts.Requests, 0.2, boundTail)
	if got := counts.ByVersion["v3"].Requests; got > maximum {
		t.Errorf("v3 got %d of %d requests, at weight 20 at most %d", got, counts.Requests, maximum)
	}
	_, maximum = load.BinomialBounds(counts.Requests, 0.2*errorRate, boundTail)
	if got := counts.Failed(); got == 0 || got > maximum {
		t.Errorf("%d of %d requests failed, want 1 to %d: %s", got, counts.Requests, maximum, counts)
	}
}

func testRollbackOfLatency(t *testing.T, a loadedEnvironment) {
	counts := runRollback(t, a, "v4", "LATENCY", "900ms")
	_, maximum := load.BinomialBounds(counts.Requests, 0.2, boundTail)
	if got := counts.ByVersion["v4"].Requests; got > maximum {
		t.Errorf("%d of %d requests were slow, at weight 20 at most %d", got, counts.Requests, maximum)
	}
	if failed := counts.Failed(); failed != 0 {
		t.Errorf("%d requests failed of a version that is only slow: %s", failed, counts)
	}
}

func testRestart(t *testing.T, a loadedEnvironment) {
	r := a.follow("cart")
	a.checkNoRequestLostDuring("", func() {
		a.deployVersion("cart", "v5")
		r.waitFor("has weight 50", func(c canary) error {
			if c.Status.CanaryWeight != 50 {
				return fmt.Errorf("another weight")
			}
			return nil
		})
		a.deployVersion("cart", "v6")
		r.waitFor("restarts its analysis", func(c canary) error {
			if c.Status.Phase != "Progressing" || c.Status.CanaryWeight != 0 {
				return fmt.Errorf("the analysis has not restarted")
			}
			return nil
		})
		r.waitForEnd("Succeeded")
		a.waitForPodsDeleted("app=cart")
	})
	r.waitForEvent("New revision detected! Restarting analysis for cart.acts")
	var weights []int
	for _, w := range r.windows() {
		weights = append(weights, w.weight)
	}
	if diff := cmp.Diff([]int{20, 50, 20, 50}, weights); diff != "" {
		t.Errorf("weights of the windows (-want +got):\n%s", diff)
	}
	counts := waitForRequests(t, a.gateway, 40)
	if answered := counts.ByVersion["v6"].Requests; answered != counts.Requests {
		t.Errorf("after the promotion v6 answered %d of %d requests: %s", answered, counts.Requests, counts)
	}
}

func testDeletion(t *testing.T, a loadedEnvironment, before map[string]*unstructured.Unstructured) {
	a.checkNoRequestLostDuring("", func() {
		a.delete(canaries, "cart")
		a.waitForObject("the Canary is deleted", canaries, "cart", checkAbsent)
		a.waitForObject("the primary is deleted", deployments, "cart-primary", checkAbsent)
		a.waitForPodsDeleted("app=cart-primary")
	})
	a.waitForAvailable("cart", 2)
	counts := waitForRequests(t, a.gateway, 40)
	if answered := counts.ByVersion["v6"].Requests; answered != counts.Requests {
		t.Errorf("after the deletion v6 answered %d of %d requests: %s", answered, counts.Requests, counts)
	}
	after := map[string]*unstructured.Unstructured{"Service": a.get(services, "cart"), "HTTPRoute": a.get(httpRoutes, "cart")}
	for kind, original := range before {
		if diff := cmp.Diff(original.Object["spec"], after[kind].Object["spec"]); diff != "" {
			t.Errorf("spec of the user's %s (-before +after):\n%s", kind, diff)
		}
		if diff := cmp.Diff(original.GetAnnotations(), after[kind].GetAnnotations()); diff != "" {
			t.Errorf("annotations of the user's %s (-before +after):\n%s", kind, diff)
		}
	}
	for _, name := range []string{"cart-canary", "cart-primary"} {
		a.waitForObject("Service "+name+" is deleted", services, name, checkAbsent)
	}
}
