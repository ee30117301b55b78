package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

const cartScaled = `
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: cart
  labels: {team: shop, scaledobject.keda.sh/name: cart}
  annotations: {scaledobject.keda.sh/transfer-hpa-ownership: "true", autoscaling.keda.sh/paused-replicas: "0", note: mine}
spec:
  scaleTargetRef: {name: cart, kind: Deployment, envSourceContainerName: server}
  minReplicaCount: 2
  maxReplicaCount: 5
  fallback: {failureThreshold: 3, replicas: 2}
  ofTomorrow: {some: thing}
  advanced: {horizontalPodAutoscalerConfig: {name: cart-hpa, behavior: {scaleDown: {stabilizationWindowSeconds: 10}}}}
  triggers:
  - {type: prometheus, name: canary, metadata: {query: "sum(rate(requests{app='cart-canary'}[1m]))"}}
  - {type: prometheus, metadata: {query: "sum(queue{app='cart'}) + sum(queue{app='cart-primary'})"}}
  - {type: cron, metadata: {timezone: UTC}}
  - {type: cpu}`

// newScaledObjectCluster returns a cluster with a Canary whose autoscalerRef is a ScaledObject.
func newScaledObjectCluster(t *testing.T) *fakeCluster {
	t.Helper()
	w := newCartCluster(t)
	w.patchYAML(canaryGVK, "cart", `{spec: {autoscalerRef: {apiVersion: keda.sh/v1alpha1, kind: ScaledObject, name: cart}}}`)
	return w
}

func (w *fakeCluster) scaledObject(name string) *unstructured.Unstructured {
	w.t.Helper()
	return w.object(scaledObject.kind, name)
}

func TestScaledObjectIsCopied(t *testing.T) {
	w := newScaledObjectCluster(t)
	ctx := t.Context()
	c := func() *flaggerv1.Canary { return w.canary("cart") }
	if got, want := w.observe().ScalerProblem, `Keda ScaledObject cart.shop get query error: scaledobjects.keda.sh "cart" not found`; got != want {
		t.Errorf("got %q", got)
	}
	w.applyYAML(cartScaled)
	must(t, w.workload.EnsureScaler(ctx, c(), false))
	copied := w.scaledObject("cart-primary")
	trigger := func(kind, name, query string) map[string]any {
		of := map[string]any{"type": kind, "metadata": map[string]any{"query": query}}
		if name != "" {
			of["name"] = name
		}
		return of
	}
	want := map[string]any{
		"scaleTargetRef":  map[string]any{"name": "cart-primary", "kind": "Deployment", "envSourceContainerName": "server"},
		"minReplicaCount": int64(2), "maxReplicaCount": int64(5),
		"fallback":   map[string]any{"failureThreshold": int64(3), "replicas": int64(2)},
		"ofTomorrow": map[string]any{"some": "thing"},
		"advanced": map[string]any{"horizontalPodAutoscalerConfig": map[string]any{
			"name": "cart-hpa-primary", "behavior": map[string]any{"scaleDown": map[string]any{"stabilizationWindowSeconds": int64(10)}},
		}},
		"triggers": []any{
			trigger("prometheus", "canary", "sum(rate(requests{app='cart-primary'}[1m]))"),
			trigger("prometheus", "", "sum(queue{app='cart-primary'}) + sum(queue{app='cart-primary'})"),
			map[string]any{"type": "cron", "metadata": map[string]any{"timezone": "UTC"}},
			map[string]any{"type": "cpu"},
		},
	}
	if diff := cmp.Diff(want, copied.Object["spec"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]map[string]string{{"team": "shop"}, {"note": "mine"}}, []map[string]string{copied.GetLabels(), copied.GetAnnotations()}); diff != "" {
		t.Errorf("labels, annotations: %s", diff)
	}

	// Keys that KEDA sets on the copy cause no write.
	w.patchYAML(scaledObject.kind, "cart-primary", `{metadata: {labels: {scaledobject.keda.sh/name: cart-primary}, finalizers: [finalizer.keda.sh]}}`)
	w.expectNoRequests("equal", func() { must(t, w.workload.EnsureScaler(ctx, c(), true)) })
	w.patchYAML(scaledObject.kind, "cart", `{spec: {maxReplicaCount: 9, fallback: null}}`)
	w.expectNoRequests("not asked for an update", func() { must(t, w.workload.EnsureScaler(ctx, c(), false)) })
	must(t, w.workload.EnsureScaler(ctx, c(), true))
	want["maxReplicaCount"] = int64(9)
	delete(want, "fallback")
	if diff := cmp.Diff(want, w.scaledObject("cart-primary").Object["spec"]); diff != "" {
		t.Error(diff)
	}

	w.patchYAML(scaledObject.kind, "cart-primary", `{metadata: {ownerReferences: null}, spec: {scaleTargetRef: {name: other}}}`)
	expectRefused(t, w.workload.EnsureScaler(ctx, c(), true), ErrNotOwned, "ScaledObject cart-primary.shop was not created for Canary cart")
}

// If the Canary has queries, only the triggers with a configured query are changed, and no names are replaced.
func TestTheCanaryConfiguresTheQueriesOfThePrimary(t *testing.T) {
	w := newScaledObjectCluster(t)
	w.applyYAML(cartScaled)
	w.patchYAML(canaryGVK, "cart", `{spec: {autoscalerRef: {primaryScalerQueries: {canary: "sum(mine)", unknown: x}, primaryScalerReplicas: {minReplicas: 3, maxReplicas: 7}}}}`)
	must(t, w.workload.EnsureScaler(t.Context(), w.canary("cart"), false))
	spec := w.scaledObject("cart-primary").Object["spec"].(map[string]any)
	var queries []any
	for _, trigger := range jsonObjects(spec["triggers"]) {
		query, _, _ := unstructured.NestedFieldNoCopy(trigger, "metadata", "query")
		queries = append(queries, query)
	}
	if diff := cmp.Diff([]any{"sum(mine)", "sum(queue{app='cart'}) + sum(queue{app='cart-primary'})", nil, nil}, queries); diff != "" {
		t.Error(diff)
	}
	if spec["minReplicaCount"] != int64(3) || spec["maxReplicaCount"] != int64(7) {
		t.Errorf("got bounds %v and %v", spec["minReplicaCount"], spec["maxReplicaCount"])
	}
}

func TestScaledObjectIsPaused(t *testing.T) {
	w := newScaledObjectCluster(t)
	c, ctx := w.canary("cart"), t.Context()
	must(t, w.workload.PauseScaler(ctx, c)) // there is none
	must(t, w.workload.ResumeScaler(ctx, c))
	w.applyYAML(`{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: cart, annotations: {note: mine}}, spec: {minReplicaCount: 4, scaleTargetRef: {name: cart}}}`)
	annotations := func() map[string]string { return w.scaledObject("cart").GetAnnotations() }
	must(t, w.workload.PauseScaler(ctx, c))
	if diff := cmp.Diff(map[string]string{"note": "mine", kedaPausedReplicas: "0"}, annotations()); diff != "" {
		t.Error(diff)
	}
	w.expectNoRequests("paused already", func() { must(t, w.workload.PauseScaler(ctx, c)) })
	must(t, w.workload.DownToZero(ctx, c))
	must(t, w.workload.ResumeScaler(ctx, c))
	if diff := cmp.Diff(map[string]string{"note": "mine"}, annotations()); diff != "" {
		t.Error(diff)
	}
	w.expectNoRequests("resumed already", func() { must(t, w.workload.ResumeScaler(ctx, c)) })
	must(t, w.workload.UpFromZero(ctx, c))
	if got := w.observe().Target.Replicas; got != 4 {
		t.Errorf("got %d replicas, want KEDA's minimum, 4", got)
	}
	// A ScaledObject that the user paused remains paused.
	w.patchYAML(scaledObject.kind, "cart", `{metadata: {annotations: {autoscaling.keda.sh/paused-replicas: "3"}}}`)
	must(t, w.workload.ResumeScaler(ctx, c))
	if got := annotations()[kedaPausedReplicas]; got != "3" {
		t.Errorf("got %q", got)
	}
}

// Without KEDA, the observation reports the problem, and pausing is not blocked.
func TestClusterWithoutKEDA(t *testing.T) {
	w := newScaledObjectCluster(t)
	w.absent = scaledObject.kind
	c, ctx := w.canary("cart"), t.Context()
	const want = "ScaledObject cart.shop cannot be read, because this cluster does not know its kind: install the definition of keda.sh/v1alpha1"
	if got := w.observe(); got.ScalerProblem != want || !got.KindNotInstalled {
		t.Errorf("got %q, %t", got.ScalerProblem, got.KindNotInstalled)
	}
	expectRefused(t, w.workload.EnsureScaler(ctx, c, false), ErrNotInstalled, want)
	must(t, w.workload.PauseScaler(ctx, c))
	must(t, w.workload.ResumeScaler(ctx, c))
}
