package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/serin-dev/serin/internal/jsontree"
)

// shopService is a Service with the fields that the API server allocates.
const shopService = `
apiVersion: v1
kind: Service
metadata: {name: shop, labels: {team: web, argocd.argoproj.io/instance: shop}, annotations: {note: mine}}
spec:
  type: NodePort
  clusterIP: 10.0.0.7
  clusterIPs: [10.0.0.7]
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  selector: {version: v1}
  ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP, nodePort: 30001}]`

// newServiceCluster returns a cluster with a Service and a Canary for it.
func newServiceCluster(t *testing.T) (*fakeCluster, Workload) {
	t.Helper()
	w := newFakeCluster(t)
	w.applyYAML(shopService)
	w.applyYAML(`{apiVersion: flagger.app/v1beta1, kind: Canary, metadata: {name: shop}, spec: {targetRef: {apiVersion: v1, kind: Service, name: shop}, analysis: {interval: 10s}}}`)
	return w, w.workload.ForCanary(w.canary("shop"))
}

func (w *fakeCluster) spec(name string) map[string]any {
	w.t.Helper()
	spec, _ := w.object(serviceKind, name).Object["spec"].(map[string]any)
	return spec
}

// A copy has the fields that the user set, and none that the API server allocated to the target (W82).
func TestAServiceIsCopiedWithoutAllocatedFields(t *testing.T) {
	w, kind := newServiceCluster(t)
	ctx, c := t.Context(), w.canary("shop")
	must(t, kind.EnsureServices(ctx, c, true))
	must(t, kind.EnsurePrimary(ctx, c, "", "id-1", true))
	want := map[string]any{
		"type": "NodePort", "ipFamilyPolicy": "SingleStack", "selector": map[string]any{"version": "v1"},
		"ports": []any{map[string]any{"name": "http", "port": int64(80), "targetPort": int64(8080), "protocol": "TCP"}},
	}
	for _, name := range []string{"shop-primary", "shop-canary"} {
		if diff := cmp.Diff(want, w.spec(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(map[string]string{"team": "web"}, w.object(serviceKind, name).GetLabels()); diff != "" {
			t.Errorf("%s: labels %s", name, diff)
		}
	}
	o, err := kind.Observe(ctx, c)
	must(t, err)
	if !o.PrimaryUpToDate || o.Problem != "" || !o.Target.Readiness.Ready || o.Primary.PromotionID != "id-1" || o.FlaggerConfigs != nil {
		t.Errorf("got %+v", o)
	}

	// Copies retain the fields that the API server allocates to them.
	for name, address := range map[string]string{"shop-primary": "10.0.0.8", "shop-canary": "10.0.0.9"} {
		w.patchYAML(serviceKind, name, `{spec: {clusterIP: `+address+`, clusterIPs: [`+address+`], ipFamilies: [IPv4], ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP, nodePort: 30009}]}}`)
	}
	w.expectNoRequests("equal", func() {
		must(t, kind.EnsureServices(ctx, c, true))
		must(t, kind.EnsurePrimary(ctx, c, "", "id-2", true))
	})
	w.patchYAML(serviceKind, "shop", `{spec: {selector: {version: v2}, ports: [{name: http, port: 80, targetPort: 9090, protocol: TCP, nodePort: 30001}]}}`)
	must(t, kind.EnsureServices(ctx, c, true))
	want["selector"] = map[string]any{"version": "v2"}
	want["clusterIP"], want["clusterIPs"], want["ipFamilies"] = "10.0.0.9", []any{"10.0.0.9"}, []any{"IPv4"}
	want["ports"] = []any{map[string]any{"name": "http", "port": int64(80), "targetPort": int64(9090), "protocol": "TCP", "nodePort": int64(30009)}}
	if diff := cmp.Diff(want, w.spec("shop-canary")); diff != "" {
		t.Error(diff)
	}
	if selector, _, _ := unstructured.NestedString(w.object(serviceKind, "shop-primary").Object, "spec", "selector", "version"); selector != "v1" {
		t.Errorf("the primary follows without being asked: %s", selector)
	}
}

func TestAServiceIsPromotedAndRestored(t *testing.T) {
	w, kind := newServiceCluster(t)
	ctx, c := t.Context(), w.canary("shop")
	must(t, kind.EnsurePrimary(ctx, c, "", "id-1", true))
	before := w.spec("shop-primary")
	first, err := kind.Observe(ctx, c)
	must(t, err)
	w.patchYAML(serviceKind, "shop", `{spec: {selector: {version: v2}}}`)
	second, err := kind.Observe(ctx, c)
	must(t, err)
	if first.Target.Revision == second.Target.Revision || first.Target.FlaggerHash == second.Target.FlaggerHash || second.PrimaryUpToDate {
		t.Errorf("got %+v, then %+v", first, second)
	}
	expectRefused(t, kind.EnsurePrimary(ctx, c, first.Target.Revision, "id-2", true), ErrTargetChanged, "service shop.shop has revision "+second.Target.Revision)
	expectRefused(t, kind.CopyTemplate(ctx, c, first.Target.Revision, "id-2"), ErrTargetChanged, "service shop.shop has revision "+second.Target.Revision)
	must(t, kind.CopyTemplate(ctx, c, second.Target.Revision, "id-2"))
	w.expectNoRequests("copied already", func() { must(t, kind.CopyTemplate(ctx, c, second.Target.Revision, "id-2")) })
	if got, err := kind.Observe(ctx, c); err != nil || !got.PrimaryUpToDate || got.Primary.PromotionID != "id-2" {
		t.Errorf("got %+v, %v", got, err)
	}
	must(t, kind.RestoreTemplate(ctx, c, "id-3"))
	w.expectNoRequests("restored already", func() { must(t, kind.RestoreTemplate(ctx, c, "id-3")) })
	if diff := cmp.Diff(before, w.spec("shop-primary")); diff != "" {
		t.Error(diff)
	}
	expectRefused(t, kind.RestoreTemplate(ctx, c, "id-4"), ErrHistoryGone, "service shop-primary.shop lacks")
	must(t, w.client.Delete(ctx, w.object(serviceKind, "shop-primary")))
	expectRefused(t, kind.RecreatePrimary(ctx, c, TemplateSource{}, "", "id-5"), ErrHistoryGone, "service shop-primary.shop does not exist, and its previous spec is unknown")
}

func TestServicesOfOtherOwnersAreUnchanged(t *testing.T) {
	for _, name := range []string{"shop-primary", "shop-canary"} {
		w, kind := newServiceCluster(t)
		w.applyYAML(`{apiVersion: v1, kind: Service, metadata: {name: ` + name + `}, spec: {selector: {app: theirs}}}`)
		c := w.canary("shop")
		err := kind.EnsurePrimary(t.Context(), c, "", "id-1", true)
		if name == "shop-canary" {
			err = kind.EnsureServices(t.Context(), c, true)
		}
		expectRefused(t, err, ErrNotOwned, "Service "+name+".shop was not created for Canary shop")
		if len(w.versionsOf("Service/"+name)) != 1 {
			t.Errorf("%s was written", name)
		}
	}
}

func TestAHeadlessServiceCannotFollow(t *testing.T) {
	w, kind := newServiceCluster(t)
	ctx, c := t.Context(), w.canary("shop")
	must(t, kind.EnsureServices(ctx, c, true))
	w.patchYAML(serviceKind, "shop", `{spec: {type: ClusterIP, clusterIP: None, clusterIPs: [None]}}`)
	expectRefused(t, kind.EnsureServices(ctx, c, true), ErrUnusable, "service shop-canary.shop cannot follow shop, because only one of them is headless")
	must(t, w.client.Delete(ctx, w.object(serviceKind, "shop-canary")))
	must(t, kind.EnsureServices(ctx, c, true))
	if got := w.spec("shop-canary")["clusterIP"]; got != "None" {
		t.Errorf("got address %v", got)
	}
	w.expectNoRequests("equal", func() { must(t, kind.EnsureServices(ctx, c, true)) })
	must(t, w.client.Delete(ctx, w.object(serviceKind, "shop")))
	expectRefused(t, kind.EnsureServices(ctx, c, true), ErrUnusable, `service shop.shop get query error: services "shop" not found`)
}

// A copy has the user's fields of its target and its own allocated fields, and a second update changes nothing.
func TestUpdatingACopyIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		service := func(name string) *unstructured.Unstructured {
			spec := map[string]any{"type": rapid.SampledFrom([]string{"ClusterIP", "NodePort", "LoadBalancer"}).Draw(t, "type")}
			address := rapid.StringMatching(`10\.0\.0\.[1-9]`).Draw(t, "address")
			spec["clusterIP"], spec["clusterIPs"] = address, []any{address}
			var ports []any
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"http", "grpc", "admin"}), rapid.ID[string]).Draw(t, "ports") {
				port := map[string]any{"name": name, "port": rapid.Int64Range(1, 9).Draw(t, "port")}
				if spec["type"] != "ClusterIP" {
					port["nodePort"] = rapid.Int64Range(30000, 30009).Draw(t, "nodePort")
				}
				ports = append(ports, port)
			}
			if ports != nil {
				spec["ports"] = ports
			}
			obj := newObject(serviceKind, namespace, name)
			obj.Object["spec"] = spec
			return obj
		}
		copied, target := service("copy"), service("target")
		before := runtime.DeepCopyJSON(copied.Object)
		once := withTargetSpec(copied, target)
		if !jsontree.Equal(specWithoutAllocated(once), specWithoutAllocated(target)) {
			t.Fatalf("got %v, want %v", specWithoutAllocated(once), specWithoutAllocated(target))
		}
		if once.Object["spec"].(map[string]any)["clusterIP"] != before["spec"].(map[string]any)["clusterIP"] {
			t.Fatal("the address changed")
		}
		if !jsontree.Equal(before, copied.Object) {
			t.Fatal("the argument was changed")
		}
		if twice := withTargetSpec(once, target); !jsontree.Equal(once.Object, twice.Object) {
			t.Fatalf("got %v, then %v", once.Object, twice.Object)
		}
	})
}
