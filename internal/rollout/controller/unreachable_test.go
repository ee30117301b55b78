package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/istio/remotecluster"
)

// unreachableClient is the client of another cluster, which rejects reads or writes while that is unreachable.
type unreachableClient struct {
	client.Client
	reads, writes bool
}

var errSilent = traffic.Refuse(traffic.ErrUnreachable, "the cluster of the mesh does not answer")

func (c *unreachableClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if !c.reads {
		return errSilent
	}
	return c.Client.Get(ctx, key, into, options...)
}

func (c *unreachableClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if !c.writes {
		return errSilent
	}
	return c.Client.Patch(ctx, object, patch, options...)
}

// TestARolloutWaitsForAnUnreachableCluster, whether the objects of its route are cached or not: the status explains the wait,
// loses nothing, and the release continues automatically.
func TestARolloutWaitsForAnUnreachableCluster(t *testing.T) {
	for name, known := range map[string]bool{"cached": true, "not cached": false} {
		t.Run(name, func(t *testing.T) {
			p := clusterWithTwoRouters(t)
			mesh := &unreachableClient{Client: p.client, reads: known}
			p.reconciler.Applier.Groups = map[string]client.Client{"networking.istio.io": mesh}
			p.restart()
			p.edit(func(object *argov1.Rollout) { // its objects have to be restored
				object.Spec.Strategy.Canary.TrafficRouting.Nginx = nil
			})
			before := p.rollout().Status
			abort := p.rollout()
			abort.Status.Abort = true
			if err := p.client.Status().Update(t.Context(), abort); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				result, err := p.reconcile()
				if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > unreachableRetry {
					t.Errorf("retries in %s, error %v", result.RequeueAfter, err)
				}
				p.clock.Step(reconciler.ExplainAfter + time.Second)
			}
			p.waitForEvent("ReconciliationError: Reconciliation failed with error: the cluster of the mesh does not answer")
			after := p.rollout().Status
			if gates := shownGates(after); len(gates) == 0 || gates[0].Name != "router" || gates[0].Verdict != "wait" || gates[0].Message != errSilent.Error() {
				t.Errorf("its gates are %+v", gates)
			}
			if after.Canary.Weights.Canary.Weight != 50 || after.CurrentStepIndex == nil || *after.CurrentStepIndex != *before.CurrentStepIndex {
				t.Errorf("the status changed: %+v", after)
			}
			if n := len(after.Serin.Routed); n < 2 {
				t.Errorf("the status records %d of the routers", n)
			}
			if !p.objectsContain("VirtualService", "weight: 50") {
				t.Error("the route was written")
			}

			mesh.reads, mesh.writes = true, true
			p.settle()
			if !p.objectsContain("VirtualService", "weight: 100") || p.objectsContain("VirtualService", "testers") {
				t.Error("the abort was not applied when the cluster was reachable again")
			}
		})
	}
}

// TestObjectsOfAGroupAreReadFromItsCluster: those in the cluster of the Rollout are not read.
func TestObjectsOfAGroupAreReadFromItsCluster(t *testing.T) {
	p := newFakeCluster(t, routedObjects[:3]...) // no route here
	there := newFakeCluster(t, routedObjects[3:]...)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{"istio": istio.NewRollout("")}}
	})
	p.reconciler.Applier.Groups = map[string]client.Client{"networking.istio.io": there.client}
	p.edit(func(object *argov1.Rollout) { object.Spec.Strategy.Canary.TrafficRouting.Nginx = nil })
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	if status := p.rollout().Status; status.Phase != argov1.RolloutPhasePaused || !there.objectsContain("VirtualService", "testers") || !there.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
		t.Fatalf("phase %s: %s", status.Phase, status.Message)
	}
	was := p.rollout()
	if err := p.client.Delete(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	p.reconciler.memory.recordDeleted(was)
	if _, err := p.reconcile(); err != nil {
		t.Fatal(err)
	}
	if there.objectsContain("VirtualService", "testers") || there.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
		t.Error("the deletion restored nothing")
	}
	here := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "networking.istio.io/v1alpha3", "kind": "VirtualServiceList"}}
	if err := p.client.List(t.Context(), here); err == nil && len(here.Items) > 0 {
		t.Error("a route was created in the cluster of the Rollout")
	}
}

// TestAnUnusableSecretIsReported in the status of the Rollouts with that router, and blocks no others.
func TestAnUnusableSecretIsReported(t *testing.T) {
	p := newFakeCluster(t, routedObjects...)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{"istio": istio.NewRollout("")}}
	})
	p.reconciler.Applier.Groups = map[string]client.Client{
		"networking.istio.io": remotecluster.Refusing(traffic.ErrNotInstalled, "Secret mesh.istio-system has the label x, and its value is no kubeconfig"),
	}
	p.edit(func(object *argov1.Rollout) { object.Spec.Strategy.Canary.TrafficRouting.Nginx = nil })
	p.settle()
	want := "spec.strategy.canary.trafficRouting: Forbidden: Secret mesh.istio-system has the label x, and its value is no kubeconfig"
	if said := p.condition(argov1.RolloutInvalidSpec).Message; !strings.Contains(said, want) {
		t.Errorf("condition InvalidSpec has the message %q", said)
	}
	if p.objectsContain("DestinationRule", argov1.PodTemplateHashLabel) {
		t.Error("the objects in the cluster of the Rollout were written")
	}
	was := p.rollout()
	if err := p.client.Delete(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	p.reconciler.memory.recordDeleted(was)
	if _, err := p.reconcile(); err != nil {
		t.Errorf("the deletion: %v", err)
	}
}
