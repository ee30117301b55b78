package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
)

// TestAReleaseEndsWithItsOwnTarget: a user changes spec.targetRef and revertOnDeletion during a release. The response to the patch of
// the finalizer contains the new target, to which the effects that follow must not apply.
func TestAReleaseEndsWithItsOwnTarget(t *testing.T) {
	c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web-uid", Generation: 2}}
	c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "basket"}
	c.Spec.AutoscalerRef = &flaggerv1.AutoscalerReference{Kind: "HorizontalPodAutoscaler", Name: "basket"}
	c.Spec.RevertOnDeletion = true
	c.Spec.Service.Port, c.Spec.Analysis = 80, &flaggerv1.CanaryAnalysis{}
	c.Status.Phase = flaggerv1.CanaryPhaseProgressing
	c.Status.Serin = &flaggerv1.SerinStatus{Revision: "r2", Promoted: "r1", Shape: "canary/kubernetes/Deployment/cart"}
	cluster := newTestCluster(t, outbound.Policy{})
	observer := observerOf(t, cluster, c)
	stored := &flaggerv1.Canary{}
	if err := observer.Client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, stored); err != nil {
		t.Fatal(err)
	}
	s, err := observer.observe(t.Context(), stored, time.Now(), canary.OtherController{})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.snapshot.NextTarget; got != "Deployment/basket" {
		t.Errorf("the next target is %q, want Deployment/basket", got)
	}
	applier := effectApplier{Observer: observer, reader: observer.Client, memory: cluster.reconciler.memory}
	if err := applier.applyEffect(t.Context(), s, canary.HasFinalizer{Present: true}, s.object.Status); err != nil {
		t.Fatal(err)
	}
	if s.object.Spec.TargetRef.Name != "cart" || s.object.Spec.AutoscalerRef != nil {
		t.Errorf("after the patch, effects apply to %s with the autoscaler %v", s.object.Spec.TargetRef.Name, s.object.Spec.AutoscalerRef)
	}
	if stored.Spec.TargetRef.Name != "basket" {
		t.Error("the spec that was read was changed")
	}
}

// observerOf returns the observer of a test cluster for a Canary that the cluster does not reconcile.
func observerOf(t *testing.T, cluster *testCluster, c *flaggerv1.Canary) *Observer {
	t.Helper()
	observer := cluster.reconciler.Observer
	observer.Client = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(c.DeepCopy()).WithStatusSubresource(c).Build()
	return &observer
}

// TestAFormerTargetKeepsItsAutoscaler: a user changes spec.targetRef, but not yet spec.autoscalerRef. The maximum of that autoscaler still
// applies to the former target, but not that of an autoscaler of the next target.
func TestAFormerTargetKeepsItsAutoscaler(t *testing.T) {
	for _, autoscaler := range []string{"cart", "basket"} {
		c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web-uid", Generation: 2}}
		c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "basket"}
		c.Spec.AutoscalerRef = &flaggerv1.AutoscalerReference{Kind: "HorizontalPodAutoscaler", Name: autoscaler}
		c.Spec.Service.Port, c.Spec.Analysis = 80, &flaggerv1.CanaryAnalysis{}
		c.Status.Phase = flaggerv1.CanaryPhaseProgressing
		c.Status.Serin = &flaggerv1.SerinStatus{Revision: "r2", Promoted: "r1", Shape: "canary/kubernetes/Deployment/cart"}
		s, err := observerOf(t, newTestCluster(t, outbound.Policy{}), c).observe(t.Context(), c, time.Now(), canary.OtherController{})
		if err != nil {
			t.Fatal(err)
		}
		if kept := s.object.Spec.AutoscalerRef != nil; s.object.Spec.TargetRef.Name != "cart" || kept != (autoscaler == "cart") {
			t.Errorf("the autoscaler of %s is kept for %s: %v", autoscaler, s.object.Spec.TargetRef.Name, kept)
		}
		if c.Spec.AutoscalerRef == nil {
			t.Error("the spec that was read was changed")
		}
	}
}
