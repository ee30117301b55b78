package workload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

func TestScale(t *testing.T) {
	const hpa = `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: cart}, spec: {minReplicas: 3, maxReplicas: 9, scaleTargetRef: {kind: Deployment, name: cart}}}`
	replicas := func(w *fakeCluster) int32 { return w.observe().Target.Replicas }
	targetAtZero := func(t *testing.T) *fakeCluster {
		w := newCartCluster(t)
		must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false))
		w.patchYAML(deploymentKind, "cart-primary", `{spec: {replicas: 4}}`)
		must(t, w.workload.DownToZero(t.Context(), w.canary("cart")))
		if got := replicas(w); got != 0 {
			t.Fatalf("got %d, want 0", got)
		}
		w.expectNoRequests("at zero", func() { must(t, w.workload.DownToZero(t.Context(), w.canary("cart"))) })
		return w
	}
	t.Run("to the primary's", func(t *testing.T) {
		w := targetAtZero(t)
		must(t, w.workload.UpFromZero(t.Context(), w.canary("cart")))
		if got := replicas(w); got != 4 {
			t.Errorf("got %d, want 4", got)
		}
		w.patchYAML(deploymentKind, "cart", `{spec: {replicas: 1}}`)
		w.expectNoRequests("somebody scales", func() { must(t, w.workload.UpFromZero(t.Context(), w.canary("cart"))) })
		must(t, w.workload.UpToPrimary(t.Context(), w.canary("cart")))
		if got := replicas(w); got != 4 {
			t.Errorf("up to the primary: got %d, want 4", got)
		}
		w.patchYAML(deploymentKind, "cart", `{spec: {replicas: 7}}`)
		w.expectNoRequests("more than the primary", func() { must(t, w.workload.UpToPrimary(t.Context(), w.canary("cart"))) })
	})
	t.Run("the primary to the target's", func(t *testing.T) {
		w := newCartCluster(t)
		must(t, w.workload.PrimaryUpFromZero(t.Context(), w.canary("cart"))) // there is none
		must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false))
		w.patchYAML(deploymentKind, "cart", `{spec: {replicas: 3}}`)
		w.patchYAML(deploymentKind, "cart-primary", `{spec: {replicas: 0}}`)
		must(t, w.workload.PrimaryUpFromZero(t.Context(), w.canary("cart")))
		if got := w.observe().Primary.Replicas; got != 3 {
			t.Errorf("got %d, want 3", got)
		}
		w.patchYAML(deploymentKind, "cart-primary", `{spec: {replicas: 1}}`)
		w.expectNoRequests("one that has pods", func() { must(t, w.workload.PrimaryUpFromZero(t.Context(), w.canary("cart"))) })
	})
	t.Run("to the least of the autoscaler", func(t *testing.T) {
		w := targetAtZero(t)
		w.patchYAML(canaryGVK, "cart", `{spec: {autoscalerRef: {apiVersion: autoscaling/v2beta2, kind: HorizontalPodAutoscaler, name: cart}}}`)
		want := `HorizontalPodAutoscaler cart.shop get query error: horizontalpodautoscalers.autoscaling "cart" not found`
		if err := w.workload.UpFromZero(t.Context(), w.canary("cart")); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		w.applyYAML(hpa)
		must(t, w.workload.UpFromZero(t.Context(), w.canary("cart")))
		if got := replicas(w); got != 3 {
			t.Errorf("got %d, want 3", got)
		}
	})
	t.Run("no more than the maximum of the autoscaler", func(t *testing.T) {
		w := targetAtZero(t)
		w.patchYAML(canaryGVK, "cart", `{spec: {autoscalerRef: {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, name: web}}}`)
		w.patchYAML(deploymentKind, "cart-primary", `{spec: {replicas: 6}}`)
		must(t, w.workload.UpToPrimary(t.Context(), w.canary("cart"))) // without the autoscaler
		if got := replicas(w); got != 6 {
			t.Errorf("got %d without an autoscaler, want 6", got)
		}
		w.patchYAML(deploymentKind, "cart", `{spec: {replicas: 0}}`)
		w.applyYAML(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}}}`)
		must(t, w.workload.UpToPrimary(t.Context(), w.canary("cart")))
		if got, limit := replicas(w), w.observe().TargetLimit; got != 2 || limit != 2 {
			t.Errorf("got %d, limit %d, want 2", got, limit)
		}
	})
	t.Run("without a primary", func(t *testing.T) {
		w := targetAtZero(t)
		must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
		must(t, w.workload.UpToPrimary(t.Context(), w.canary("cart")))
		if got := replicas(w); got != 1 {
			t.Errorf("got %d, want 1", got)
		}
	})
}

func TestScalesTarget(t *testing.T) {
	w := newCartCluster(t)
	expect := func(want bool, why string) {
		t.Helper()
		if got, err := w.workload.ScalesTarget(t.Context(), w.canary("cart")); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", why, got, err, want)
		}
	}
	expect(false, "no autoscaler")
	w.patchYAML(canaryGVK, "cart", `{spec: {autoscalerRef: {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, name: web}}}`)
	expect(false, "one that does not exist")
	w.applyYAML(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}}}`)
	expect(true, "that of the target")
	w.patchYAML(horizontalPodAutoscaler.kind, "web", `{spec: {scaleTargetRef: {name: next}}}`)
	expect(false, "that of another target")
	w.patchYAML(canaryGVK, "cart", `{spec: {autoscalerRef: {apiVersion: example.com/v1, kind: Scaler, name: web}}}`)
	expect(false, "an unknown kind")
	w.patchYAML(canaryGVK, "cart", `{spec: {autoscalerRef: {apiVersion: keda.sh/v1alpha1, kind: ScaledObject, name: web}}}`)
	w.absent = scaledObject.kind
	expect(false, "KEDA is not installed")
	w.absent = schema.GroupVersionKind{}
	w.applyYAML(`{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: web}, spec: {scaleTargetRef: {name: cart}}}`)
	expect(true, "KEDA's default kind")
}

func TestScaler(t *testing.T) {
	w := newCartCluster(t)
	c := func() *flaggerv1.Canary { return w.canary("cart") }
	must(t, w.workload.EnsureScaler(t.Context(), c(), true)) // without an autoscalerRef
	w.patchYAML(canaryGVK, "cart", `{spec: {autoscalerRef: {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, name: web, primaryScalerReplicas: {minReplicas: 4}}}}`)
	want := `HorizontalPodAutoscaler web.shop get query error: horizontalpodautoscalers.autoscaling "web" not found`
	if got := w.observe().ScalerProblem; got != want {
		t.Errorf("got %q", got)
	}
	w.applyYAML(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, labels: {team: shop, kustomize.toolkit.fluxcd.io/name: a}, annotations: {note: mine}}, spec: {minReplicas: 2, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}}}`)
	must(t, w.workload.EnsureScaler(t.Context(), c(), false))
	copied := w.object(horizontalPodAutoscaler.kind, "web-primary")
	if diff := cmp.Diff(map[string]any{
		"minReplicas": int64(4), "maxReplicas": int64(9),
		"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart-primary"},
	}, copied.Object["spec"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"team": "shop"}, copied.GetLabels()); diff != "" || copied.GetAnnotations() != nil {
		t.Errorf("%s, annotations %v", diff, copied.GetAnnotations())
	}
	// Labels and annotations that users add to the copy or the source must not cause writes indefinitely (W68).
	w.patchYAML(horizontalPodAutoscaler.kind, "web-primary", `{metadata: {annotations: {theirs: x}}}`)
	w.expectNoRequests("equal", func() { must(t, w.workload.EnsureScaler(t.Context(), c(), true)) })
	w.patchYAML(horizontalPodAutoscaler.kind, "web", `{spec: {maxReplicas: 20}, metadata: {labels: {team: other}}}`)
	w.expectNoRequests("not asked for an update", func() { must(t, w.workload.EnsureScaler(t.Context(), c(), false)) })
	must(t, w.workload.EnsureScaler(t.Context(), c(), true))
	if got := intOrDefault(w.object(horizontalPodAutoscaler.kind, "web-primary").Object, 0, "spec", "maxReplicas"); got != 20 {
		t.Errorf("got %d, want 20", got)
	}
	w.applyYAML(strings.NewReplacer("name: cart", "name: basket", "app: cart", "app: basket").Replace(cartTarget))
	w.patchYAML(canaryGVK, "cart", `{spec: {targetRef: {name: basket}}}`)
	must(t, w.workload.EnsureScaler(t.Context(), c(), false))
	if got, _, _ := unstructured.NestedString(w.object(horizontalPodAutoscaler.kind, "web-primary").Object, "spec", "scaleTargetRef", "name"); got != "basket-primary" {
		t.Errorf("after a change of spec.targetRef, the autoscaler scales %s, want basket-primary", got)
	}
	w.patchYAML(canaryGVK, "cart", `{spec: {targetRef: {name: cart}}}`)
	must(t, w.workload.EnsureScaler(t.Context(), c(), false))
	w.expectNoRequests("equal again", func() { must(t, w.workload.EnsureScaler(t.Context(), c(), true)) })

	w.patchYAML(horizontalPodAutoscaler.kind, "web-primary", `{metadata: {ownerReferences: null}, spec: {scaleTargetRef: {name: other}}}`)
	expectRefused(t, w.workload.EnsureScaler(t.Context(), c(), true), ErrNotOwned, "HorizontalPodAutoscaler web-primary.shop was not created for Canary cart")

	w.patchYAML(canaryGVK, "cart", `{spec: {autoscalerRef: {kind: VerticalPodAutoscaler}}}`)
	if got := w.observe().ScalerProblem; !strings.Contains(got, "copies only HorizontalPodAutoscalers and ScaledObjects") {
		t.Errorf("got %q", got)
	}
}
