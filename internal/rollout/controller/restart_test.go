package controller

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// createPods creates pods of all ReplicaSets, none of which is ready.
func (p *fakeCluster) createPods(n int) {
	p.Helper()
	var all appsv1.ReplicaSetList
	if err := p.client.List(p.Context(), &all); err != nil {
		p.Fatal(err)
	}
	for i := range all.Items {
		rs := &all.Items[i]
		for n := range n {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: rs.Namespace, Name: fmt.Sprint(rs.Name, "-", n), Labels: rs.Spec.Template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
			}}
			if err := p.client.Create(p.Context(), pod); err != nil {
				p.Fatal(err)
			}
		}
	}
}

// TestRefusedEvictionsAreRemembered: a disruption budget refuses all evictions, while events requeue the Rollout each second.
func TestRefusedEvictionsAreRemembered(t *testing.T) {
	const pods = 30
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	p.createPods(pods)
	p.clock.Step(time.Minute)
	p.edit(func(object *argov1.Rollout) {
		object.Spec.RestartAt = &metav1.Time{Time: p.clock.Now().Add(-time.Second)}
	})
	evictions, refuses := map[string]int{}, true
	p.refuse = func(verb string, object client.Object) error {
		if verb != "create eviction" {
			return nil
		}
		evictions[object.GetName()]++
		if refuses {
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
		}
		return nil
	}
	reconcile := func() {
		t.Helper()
		if _, err := p.reconcile(); err != nil {
			t.Fatal(err)
		}
		p.clock.Step(time.Second)
	}
	for range 10 {
		reconcile()
	}
	if len(evictions) != pods {
		t.Errorf("evictions of %d of %d pods were requested", len(evictions), pods)
	}
	for pod, n := range evictions {
		if n != 1 {
			t.Errorf("the eviction of %s was requested %d times in 10 s", pod, n)
		}
	}
	if got := len(p.reconciler.memory.Own(key).evictionRefusals); got != pods {
		t.Errorf("%d refusals are remembered, want %d", got, pods)
	}

	refuses = false
	p.clock.Step(30 * time.Second)
	for range 5 {
		reconcile()
	}
	if at := p.rollout().Status.RestartedAt; at == nil {
		t.Error("the restart is not complete after the budget permitted it")
	}
	if got := p.reconciler.memory.Own(key).evictionRefusals; len(got) != 0 {
		t.Errorf("refusals remain: %v", got)
	}
}
