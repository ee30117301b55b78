package controller

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/consul"
)

var annotatedObjects = []string{`
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: cart, generation: 1}
spec:
  replicas: 2
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}, annotations: {consul.hashicorp.com/service-meta-version: "1"}}
    spec: {containers: [{name: cart, image: "cart:1"}]}
  strategy:
    canary:
      trafficRouting:
        plugins:
          hashicorp/consul: {serviceName: cart, canarySubsetName: canary, stableSubsetName: stable}
      steps: [{setWeight: 50}, {pause: {}}]
`, `
apiVersion: consul.hashicorp.com/v1alpha1
kind: ServiceResolver
metadata: {name: cart}
spec: {defaultSubset: stable, subsets: {stable: {filter: ""}, canary: {filter: ""}}}
`, `
apiVersion: consul.hashicorp.com/v1alpha1
kind: ServiceSplitter
metadata: {name: cart}
spec: {splits: [{weight: 100, serviceSubset: stable}, {weight: 0, serviceSubset: canary}]}
`}

// TestARouterThatIdentifiesRevisionsByAnnotations: it gets the annotations of both revisions, during the release, afterwards,
// and after another process has found a deleted Rollout.
func TestARouterThatIdentifiesRevisionsByAnnotations(t *testing.T) {
	p := newFakeCluster(t, annotatedObjects...)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{consul.PluginName: consul.NewRollout()}}
		parts.MarkedKinds = parts.Routers.MarkedKinds()
	})
	release := func(version string) {
		t.Helper()
		p.edit(func(object *argov1.Rollout) {
			object.Spec.Template.Annotations = map[string]string{"consul.hashicorp.com/service-meta-version": version}
		})
		p.settle()
	}
	expect := func(when string, texts map[string]string) {
		t.Helper()
		for text, kind := range texts {
			if !p.objectsContain(kind, text) {
				t.Errorf("%s: no %s contains %q; phase %s: %s", when, kind, text, p.rollout().Status.Phase, p.rollout().Status.Message)
			}
		}
	}
	p.settle()
	release("2")
	expect("during the release", map[string]string{
		"canary:\n      filter: Service.Meta.version == 2\n    stable:\n      filter: Service.Meta.version == 1\n": "ServiceResolver",
		"serviceSubset: canary\n    weight: 50\n": "ServiceSplitter",
	})
	p.promoteFully()
	p.settle()
	expect("after the release", map[string]string{
		"stable:\n      filter: Service.Meta.version == 2\n": "ServiceResolver",
		"serviceSubset: stable\n    weight: 100\n":           "ServiceSplitter",
	})
	p.deleteRollout()
	p.restart()
	if requests := p.requestsAtStart(consul.NewRollout().MarkedKind()); !slices.Contains(requests, reconcile.Request{NamespacedName: key}) {
		t.Errorf("a new process queues %v", requests)
	}
	if _, err := p.reconcile(); err != nil {
		t.Fatal(err)
	}
	if p.objectsContain("ServiceResolver", "Service.Meta") || p.objectsContain("ServiceResolver", argov1.ManagedByAnnotation) {
		t.Error("the ServiceResolver of the deleted Rollout was not restored")
	}
}

// TestRevisionsWithTheSameAnnotationAreRefused: the release waits with a message, and receives no traffic.
func TestRevisionsWithTheSameAnnotationAreRefused(t *testing.T) {
	p := newFakeCluster(t, annotatedObjects...)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{consul.PluginName: consul.NewRollout()}}
	})
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	p.waitForEvent("so that Consul cannot distinguish them")
	if !p.objectsContain("ServiceSplitter", "serviceSubset: canary\n    weight: 0\n") {
		t.Error("the canary has a weight")
	}
}
