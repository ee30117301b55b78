package workload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Service that Serin created is handed over: the Canary no longer owns it, it still selects the primary, and restoring the
// user's Services makes it select the target, without a trace of Serin.
func TestTheServiceOfTheClientsIsHandedOver(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	must(t, w.workload.EnsureServices(t.Context(), c, true))
	selector := func() map[string]string {
		selector, _, _ := unstructured.NestedStringMap(w.object(serviceKind, "cart").Object, "spec", "selector")
		return selector
	}
	for range 2 { // the second call has no effect
		must(t, w.workload.HandOverServices(t.Context(), c))
	}
	must(t, w.workload.EnsureServices(t.Context(), c, true)) // reconciliations continue until the Canary is deleted
	service := w.object(serviceKind, "cart")
	if owner := metav1.GetControllerOf(service); owner != nil {
		t.Errorf("the Service is still controlled by %s %s", owner.Kind, owner.Name)
	}
	if diff := cmp.Diff(map[string]string{"app": "cart-primary"}, selector()); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	for _, side := range []string{"cart-primary", "cart-canary"} {
		if metav1.GetControllerOf(w.object(serviceKind, side)) == nil {
			t.Errorf("Service %s would remain after the deletion of the Canary", side)
		}
	}
	ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
	for range 2 {
		must(t, w.workload.RestoreServices(t.Context(), c))
	}
	if diff := cmp.Diff(map[string]string{"app": "cart"}, selector()); diff != "" {
		t.Errorf("restored selector (-want +got):\n%s", diff)
	}
	restored := w.object(serviceKind, "cart")
	restoredPorts, _, _ := unstructured.NestedSlice(restored.Object, "spec", "ports")
	if diff := cmp.Diff(ports, restoredPorts); diff != "" {
		t.Errorf("restored ports (-want +got):\n%s", diff)
	}
	if len(restored.GetAnnotations()) > 0 {
		t.Errorf("annotations remain: %v", restored.GetAnnotations())
	}
}

// A failed release left its template in the target: the template of the primary is restored, with the names of the target.
func TestTheTemplateOfThePrimaryIsRestoredToTheTarget(t *testing.T) {
	w := newCartCluster(t)
	w.patchYAML(deploymentKind, "cart", `{spec: {template: {metadata: {annotations: {team: shop}}, spec: {
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: cart}}}],
      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: node, labelSelector: {matchExpressions: [{key: app, operator: In, values: [cart]}]}}]}}}}}}`)
	c := w.canary("cart")
	promoted := podTemplate(w.object(deploymentKind, "cart"))
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	must(t, w.workload.DownToZero(t.Context(), c))
	w.setImage("cart:bad")
	if w.observe().PrimaryUpToDate {
		t.Fatal("the failed version counts as promoted")
	}
	for range 2 { // the second call has no effect
		must(t, w.workload.RestoreTarget(t.Context(), c))
	}
	if diff := cmp.Diff(promoted, podTemplate(w.object(deploymentKind, "cart"))); diff != "" {
		t.Errorf("template of the target (-want +got):\n%s", diff)
	}
	if o := w.observe(); !o.PrimaryUpToDate || o.Target.Replicas != 0 {
		t.Errorf("up to date %v, %d replicas", o.PrimaryUpToDate, o.Target.Replicas)
	}
}

// The content of configuration belongs to the user, and is not overwritten.
func TestChangedConfigurationIsNotRestored(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.setImage("cart:bad")
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	expectRefused(t, w.workload.RestoreTarget(t.Context(), c), ErrUnusable,
		"ConfigMap env changed since the version that serves was promoted: restore the content of ConfigMap env-primary, or release it")
	if text := w.object(deploymentKind, "cart"); !strings.Contains(toText(t, text), "cart:bad") {
		t.Error("the template was restored without its configuration")
	}
}

func TestWithoutPrimaryNothingIsRestoredToTheTarget(t *testing.T) {
	w := newCartCluster(t)
	expectRefused(t, w.workload.RestoreTarget(t.Context(), w.canary("cart")), ErrUnusable, "Deployment cart-primary.")
}

func toText(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	text, err := object.MarshalJSON()
	must(t, err)
	return string(text)
}
