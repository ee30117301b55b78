package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/leaktest"
	"github.com/serin-dev/serin/internal/telemetry"
)

// TestNothingRemainsOfRollouts deploys and deletes two hundred Rollouts. Every second is deleted during its second release.
func TestNothingRemainsOfRollouts(t *testing.T) {
	p, registry := newFakeCluster(t), prometheus.NewRegistry()
	p.configure(func(parts *Parts) { parts.Metrics = telemetry.New(registry) })
	comeAndGo := func(i int) {
		p.key.Name = fmt.Sprint("cart-", i)
		for _, text := range []string{cart, cartService} {
			object := p.object(strings.NewReplacer("name: cart", "name: "+p.key.Name, "app: cart", "app: "+p.key.Name, "stableService: cart", "stableService: "+p.key.Name).Replace(text))
			if err := p.client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		p.settle()
		if i%2 == 0 {
			p.edit(withImage("cart:2"))
			p.settle()
		}
		deleted := p.rollout()
		if err := p.client.Delete(t.Context(), deleted); err != nil {
			t.Fatal(err)
		}
		p.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}, deleted, nil)
		p.settle() // the Service is restored
		for _, kind := range []client.Object{&appsv1.ReplicaSet{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}, &corev1.Event{}} {
			if err := p.client.DeleteAllOf(t.Context(), kind, client.InNamespace(p.key.Namespace)); err != nil {
				t.Fatal(err)
			}
		}
		p.mu.Lock()
		p.recordedEvents = nil
		p.mu.Unlock()
	}
	leaktest.Check(t, registry, 200, func(from, to int) {
		for i := from; i < to; i++ {
			comeAndGo(i)
		}
	})
	if footprint := p.reconciler.Footprint(); len(footprint) > 0 {
		t.Errorf("the process still has state of %v", footprint)
	}
}
