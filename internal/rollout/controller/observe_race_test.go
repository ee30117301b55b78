package controller

import (
	"context"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestAChangeDuringTheFirstObservationIsNotLost: the process has just started and does not know yet which Rollouts depend on the
// Deployment when the event arrives, so that the event requeues none.
func TestAChangeDuringTheFirstObservationIsNotLost(t *testing.T) {
	p := newFakeCluster(t, strings.Replace(lentCart, "onsuccess", "never", 1), lender, cartService)
	p.settle()
	p.restart()
	var once sync.Once
	var requests []reconcile.Request
	p.replaceClient(interceptor.NewClient(p.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, into, options...)
			before, ok := into.(*unstructured.Unstructured)
			if err != nil || !ok || before.GetKind() != "Deployment" {
				return err
			}
			once.Do(func() {
				after := before.DeepCopy()
				containers := []any{map[string]any{"name": "cart", "image": "cart:2"}}
				if err := unstructured.SetNestedSlice(after.Object, containers, "spec", "template", "spec", "containers"); err != nil {
					t.Error(err)
				}
				if err := c.Update(ctx, after); err != nil {
					t.Error(err)
				}
				requests = p.reconciler.AffectedReleases(ctx, deploymentKind.GroupKind(), before, after)
			})
			return nil
		},
	}))
	s, err := p.reconciler.observeAndWatch(t.Context(), p.rollout(), p.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.spec.Template.Spec.Containers[0].Image; got != "cart:2" && len(requests) == 0 {
		t.Errorf("observed image %q, and the event of cart:2 requeued no Rollout", got)
	}
}
