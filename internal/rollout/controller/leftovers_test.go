package controller

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/nginx"
)

// requestsAtStart are the releases that a process that starts looks at because of the objects of a kind.
func (p *fakeCluster) requestsAtStart(gvk schema.GroupVersionKind) []reconcile.Request {
	p.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := p.client.List(p.Context(), list); err != nil {
		p.Fatal(err)
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, p.reconciler.AffectedReleases(p.Context(), gvk.GroupKind(), nil, &list.Items[i])...)
	}
	return out
}

func (p *fakeCluster) deleteRollout() {
	p.Helper()
	if err := p.client.Delete(p.Context(), p.rollout()); err != nil {
		p.Fatal(err)
	}
}

// TestObjectsOfADeletedRolloutAreRestoredByAnotherProcess: the Rollout was deleted while no process watched. The next process
// finds it by the marks on the users' objects, also if it is stopped at each of its writes, and sends no further requests
// afterwards.
func TestObjectsOfADeletedRolloutAreRestoredByAnotherProcess(t *testing.T) {
	for name, test := range map[string]struct {
		manifests []string
		seen      schema.GroupVersionKind // what leads there
	}{
		"by Services":      {routedObjects, serviceKind},
		"by subsets alone": {withoutServices(), istio.NewRollout("").MarkedKind()},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakeCluster(t, test.manifests...)
			p.configure(func(parts *Parts) {
				parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{"istio": istio.NewRollout(""), "nginx": nginx.NewRollout()}}
			})
			p.configure(func(parts *Parts) { parts.MarkedKinds = parts.Routers.MarkedKinds() })
			p.settle()
			p.edit(withImage("cart:2"))
			p.settle()
			if !p.objectsContain("VirtualService", "testers") || !p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
				t.Fatal("the routers were not notified")
			}
			p.deleteRollout()
			for range 20 { // each of which dies after one write
				p.restart()
				if requests := p.requestsAtStart(test.seen); !slices.Contains(requests, reconcile.Request{NamespacedName: key}) {
					break
				}
				written := 0
				p.refuse = func(string, client.Object) error {
					if written++; written > 1 {
						return errAway
					}
					return nil
				}
				_, _ = p.reconcile()
			}
			p.refuse = nil
			for _, left := range []struct{ kind, text string }{
				{"VirtualService", "testers"},
				{"DestinationRule", argov1.PodTemplateHashLabel},
				{"DestinationRule", argov1.ManagedByAnnotation},
				{"DestinationRule", argov1.RoutedByAnnotation},
			} {
				if p.objectsContain(left.kind, left.text) {
					t.Errorf("%s still has %s", left.kind, left.text)
				}
			}
			for _, name := range []string{"cart", "cart-canary"} {
				found, err := managedObjects{p.client}.getService(t.Context(), key.Namespace, name)
				if err != nil {
					t.Fatal(err)
				}
				if found == nil {
					continue
				}
				selector, _, _ := unstructured.NestedStringMap(found.Object, "spec", "selector")
				if selector[argov1.PodTemplateHashLabel] != "" || selector["app"] != "cart" || found.GetAnnotations()[argov1.ManagedByAnnotation] != "" ||
					found.GetAnnotations()[argov1.RoutedByAnnotation] != "" || found.GetAnnotations()["owner"] != "web" {
					t.Errorf("Service %s: %v, %v", name, selector, found.GetAnnotations())
				}
			}
			p.restart()
			p.writes, p.live = nil, nil
			if _, err := p.reconcile(); err != nil || len(p.writes) > 0 || len(p.live) > 0 {
				t.Errorf("restored, it wrote %v, read %v: %v", p.writes, p.live, err)
			}
		})
	}
}

// TestMarkedObjectsAreRestoredWhenArgoRolloutsStops: the Rollout was deleted while Argo Rollouts was running, and only objects
// other than Services have its mark.
func TestMarkedObjectsAreRestoredWhenArgoRolloutsStops(t *testing.T) {
	p := newFakeCluster(t, withoutServices()...)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{"istio": istio.NewRollout(""), "nginx": nginx.NewRollout()}}
		parts.MarkedKinds = parts.Routers.MarkedKinds()
	})
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	p.deleteRollout()
	p.restart()
	p.reconciler.OtherController = argoRolloutsWatch(t, argoRolloutsDeployment("argo-rollouts", 1))
	p.reconciler.OtherController.IsPermitted = permitAll
	if result, err := p.reconcile(); err != nil || result.RequeueAfter <= 0 || !p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
		t.Errorf("while Argo Rollouts runs, it is requeued after %s, %v", result.RequeueAfter, err)
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(argoRolloutsDeployment("argo-rollouts", 1))
	if err != nil {
		t.Fatal(err)
	}
	p.reconciler.OtherController = argoRolloutsWatch(t)
	requests := p.reconciler.AffectedReleases(t.Context(), deploymentKind.GroupKind(), &unstructured.Unstructured{Object: raw}, nil)
	if !slices.Contains(requests, reconcile.Request{NamespacedName: key}) {
		t.Errorf("the deletion of Argo Rollouts requeues %v, want %v", requests, key)
	}
	p.settle()
	if p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
		t.Error("the DestinationRule was not restored")
	}
}

// TestAStandbyRetainsNoDeletedRollout: it watches Rollouts for weeks before it reconciles one. When it leads, it restores the
// objects of a Rollout that the previous leader did not restore.
func TestAStandbyRetainsNoDeletedRollout(t *testing.T) {
	p := clusterWithTwoRouters(t)
	deleted := p.rollout()
	p.deleteRollout()
	event := func() []reconcile.Request {
		return p.reconciler.AffectedReleases(t.Context(), argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind).GroupKind(), deleted, nil)
	}
	if event(); p.reconciler.memory.deletedRollout(key) == nil {
		t.Error("the process that served the Rollout does not record its deletion")
	}
	p.restart()
	if requests := event(); p.reconciler.memory.deletedRollout(key) != nil || !slices.Contains(requests, reconcile.Request{NamespacedName: key}) {
		t.Errorf("the standby retains the Rollout, or queues %v", requests)
	}
	p.settle()
	if p.objectsContain("VirtualService", "testers") || p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
		t.Error("the objects of the Rollout were not restored")
	}
}

// withoutServices are those of routed, with Istio's subsets alone.
func withoutServices() []string {
	all := slices.Clone(routedObjects)
	all[0] = strings.NewReplacer("      stableService: cart\n      canaryService: cart-canary\n", "", "        nginx: {stableIngress: cart}\n", "").Replace(all[0])
	all[3] = strings.Replace(all[3], "{destination: {host: cart}}, {destination: {host: cart-canary}, weight: 0}", "{destination: {host: cart, subset: stable}}, {destination: {host: cart, subset: canary}, weight: 0}", 1)
	return all
}

// TestANewRolloutOfTheNameContinuesWithTheObjects of the one that was deleted meanwhile. Objects that the new one does not name
// are restored.
func TestANewRolloutOfTheNameContinuesWithTheObjects(t *testing.T) {
	p := clusterWithTwoRouters(t)
	p.deleteRollout()
	p.restart()
	again, _ := p.object(strings.NewReplacer(
		"        managedRoutes: [{name: testers}]\n", "", "          virtualService: {name: cart}\n          destinationRule: {name: cart, canarySubsetName: canary, stableSubsetName: stable}\n", "",
		"        istio:\n", "", "        - setHeaderRoute: {name: testers, match: [{headerName: x-tester, headerValue: {exact: \"1\"}}]}\n", "",
	).Replace(routedCart)).(*argov1.Rollout)
	if err := p.client.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	p.settle()
	if p.objectsContain("VirtualService", "testers") || p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
		t.Error("what the new one does not name was not restored")
	}
	found, err := managedObjects{p.client}.getService(t.Context(), key.Namespace, "cart")
	if err != nil || found.GetAnnotations()[argov1.ManagedByAnnotation] != "cart" || !strings.Contains(found.GetAnnotations()[argov1.RoutedByAnnotation], "nginx") {
		t.Errorf("the Service was not taken over: %v, %v", found.GetAnnotations(), err)
	}
	if text := found.GetAnnotations()[argov1.RoutedByAnnotation]; strings.Contains(text, "istio") || strings.Contains(text, "testers") {
		t.Errorf("the Service still records restored routers: %s", text)
	}
}

// TestServicesOfARolloutOfAnotherControllerAreUnchanged: the Rollout has the label of another controller.
func TestServicesOfARolloutOfAnotherControllerAreUnchanged(t *testing.T) {
	p := clusterWithTwoRouters(t)
	p.restart()
	p.writes = nil
	if _, err := p.reconciler.restorer.restoreLeftovers(t.Context(), key); err != nil || len(p.writes) > 0 {
		t.Errorf("wrote %v, %v", p.writes, err)
	}
}
