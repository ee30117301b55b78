//go:build linux

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/load"
)

// TestAnEjectedCanaryServesWithoutALostRequest ejects two Canaries under load. Serin created their Services and routes, which a
// deletion of the Canaries would delete. The first ejection is not interrupted. The second one follows a failed release, and its
// process is killed twice.
func TestAnEjectedCanaryServesWithoutALostRequest(t *testing.T) {
	const namespace = "ejected"
	s := startEnvironment(t, namespace)
	of := func(name string, more ...string) []string {
		flags := "--controller-flags=-namespace=" + namespace + " -mesh-provider=gatewayapi:v1 -min-analysis-interval=1s -drain-delay=1s"
		return slices.Concat([]string{"eject", name, "-n", namespace, flags}, more)
	}
	release := func(name string) loadedEnvironment {
		canary := strings.NewReplacer("name: cart", "name: "+name, "cart.test", name+".ejected.test", "  revertOnDeletion: true\n", "").Replace(cartCanary)
		r := s.follow(name)
		s.apply(deployment(t, name, 2) + canary)
		r.waitForPhase("Initialized")
		s.waitForPodsDeleted("app=" + name)
		host := name + ".ejected.test"
		s.waitForAnswers(host, "v1")
		return loadedEnvironment{s, s.startLoad(host, 40), s.startServiceLoad(name, 80, 10)}
	}

	basket := release("basket")
	sh := commandRunner{t, shared.Kubeconfig}
	sh.checkOutput(sh.run(codeDone, of("basket", "--dry-run")...), "Service basket and HTTPRoute basket", "Nothing was changed.")
	basket.checkNoRequestLostDuring("", func() {
		p := sh.run(codeDone, of("basket", "--yes")...)
		t.Logf("output for the user:\n%s", p.stdout)
		basket.waitUntilEjected("basket")
	})
	basket.checkEjected("basket")
	sh.run(codeNotFound, of("basket", "--yes")...)

	cart := release("cart")
	r := s.follow("cart")
	cart.checkNoRequestLostDuring("v2", func() {
		s.deployVersion("cart", "v2", "ERROR_PERCENT", "50")
		sh.checkOutput(sh.run(codeDone, "get", "-n", namespace), "cart")
		r.waitFor("is in progress", inPhase("Progressing"))
		if p := sh.run(codeUserAction, of("cart", "--yes")...); !strings.Contains(p.stderr, "a release is in progress") {
			t.Errorf("the release in progress is not reported: %s", p)
		}
		r.waitForEnd("Failed")
		s.waitForPodsDeleted("app=cart")
	})
	cart.checkNoRequestLostDuring("", func() {
		for _, killedAt := range []string{"Suspend Canary cart", "Delete Canary cart"} {
			p := sh.start(of("cart", "--yes")...)
			p.waitForOutput(killedAt)
			if err := p.command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.wait()
		}
		sh.run(codeDone, of("cart", "--yes")...)
		cart.waitUntilEjected("cart")
	})
	cart.checkEjected("cart")
}

// waitUntilEjected waits until the Canary and its primary are gone.
func (a loadedEnvironment) waitUntilEjected(name string) {
	a.t.Helper()
	a.waitForObject("the Canary is deleted", canaries, name, checkAbsent)
	a.waitForObject("the primary is deleted", deployments, name+"-primary", checkAbsent)
	a.waitForPodsDeleted("app=" + name + "-primary")
	for _, side := range []string{name + "-canary", name + "-primary"} {
		a.waitForObject("Service "+side+" is deleted", services, side, checkAbsent)
	}
}

// checkEjected checks that the Deployment serves version v1, and that nothing of Serin remains.
func (a loadedEnvironment) checkEjected(name string) {
	a.t.Helper()
	a.waitForAvailable(name, 2)
	for kind, object := range map[string]*unstructured.Unstructured{"Service": a.get(services, name), "HTTPRoute": a.get(httpRoutes, name)} {
		if len(object.GetOwnerReferences()) > 0 || len(object.GetAnnotations()) > 0 {
			a.t.Errorf("%s %s has traces of Serin: %s", kind, name, object.Object["metadata"])
		}
	}
	selector, _, _ := unstructured.NestedStringMap(a.get(services, name).Object, "spec", "selector")
	if diff := cmp.Diff(map[string]string{"app": name}, selector); diff != "" {
		a.t.Errorf("selector of Service %s (-want +got):\n%s", name, diff)
	}
	counts := waitForRequests(a.t, a.gateway, 40)
	if answered := counts.ByVersion["v1"].Requests; answered != counts.Requests {
		a.t.Errorf("after the ejection v1 answered %d of %d requests: %s", answered, counts.Requests, counts)
	}
}

// referringRollout takes its template from a Deployment, which it scales down.
const referringRollout = `
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: shop}
spec:
  replicas: 2
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: shop, scaleDown: onsuccess}
  strategy: {blueGreen: {activeService: shop}}
`

// TestAnEjectedRolloutServesWithoutALostRequest ejects two Rollouts under load: one with a router and a template of its own, whose
// ejection is killed, and a blue-green one that refers to a Deployment.
func TestAnEjectedRolloutServesWithoutALostRequest(t *testing.T) {
	const namespace = "ejected-rollouts"
	s := startEnvironment(t, namespace)
	s.apply(cartRoute(t, "rollout.ejected.test") + rolloutManifest(t, "cart", 2, `{canary: {stableService: cart-stable, canaryService: cart-canary,
	  trafficRouting: {plugins: {argoproj-labs/gatewayAPI: {httpRoute: cart, namespace: ejected-rollouts}}},
	  steps: [{setWeight: 50}, {pause: {}}]}}`) + deployment(t, "shop", 2) + referringRollout)
	for _, name := range []string{"cart", "shop"} {
		s.waitForRolloutPhase(name, argov1.RolloutPhaseHealthy, "")
	}
	s.waitForDeployment("is scaled down", "shop", func(d appsv1.Deployment) error {
		if d.Status.Replicas > 0 {
			return fmt.Errorf("it has %d pods", d.Status.Replicas)
		}
		return nil
	})
	sh := commandRunner{t, shared.Kubeconfig}
	of := func(name string, more ...string) []string {
		return slices.Concat([]string{"eject", "rollout/" + name, "-n", namespace, "--controller-flags=-namespace=" + namespace}, more)
	}
	a := loadedEnvironment{s, s.startLoad("rollout.ejected.test", 40), s.startServiceLoad("shop", 80, 10)}
	waitForRequests(t, a.service, 10, "v1")
	a.checkNoRequestLostDuring("", func() {
		p := sh.start(of("cart", "--yes")...)
		p.waitForOutput("Remove Services")
		if err := p.command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.wait()
		for _, name := range []string{"cart", "shop"} {
			t.Logf("output for the user:\n%s", sh.run(codeDone, of(name, "--yes")...).stdout)
			s.waitForObject("the Rollout is deleted", rollouts, name, checkAbsent)
			s.waitForPodsDeleted("rollouts-pod-template-hash,app=" + name)
		}
	})
	for _, name := range []string{"cart", "shop"} {
		s.waitForAvailable(name, 2)
	}
	for _, name := range []string{"cart-stable", "cart-canary", "shop"} {
		service := s.get(services, name)
		if text := fmt.Sprint(service.Object["spec"], service.GetAnnotations()); strings.Contains(text, "rollouts") {
			t.Errorf("Service %s has traces of its Rollout: %s", name, text)
		}
	}
	for client, l := range map[string]*load.Load{"gateway": a.gateway, "Service": a.service} {
		counts := waitForRequests(t, l, 40)
		if answered := counts.ByVersion["v1"].Requests; answered != counts.Requests {
			t.Errorf("%s: after the ejection v1 answered %d of %d requests: %s", client, answered, counts.Requests, counts)
		}
	}
}
