package appmesh_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/appmesh"
)

// TestTheNodesOfTheTargetRemain: after serin eject, the pods of the target, which serve, belong to the same nodes as when they were
// started, and these lead to the apex Service, which selects them.
func TestTheNodesOfTheTargetRemain(t *testing.T) {
	mapping := []any{map[string]any{"portMapping": map[string]any{"port": int64(80), "protocol": "http"}}}
	routes := func(rule string, target map[string]any) []any {
		target["weight"] = int64(100)
		return []any{map[string]any{"name": "cart", rule: map[string]any{
			"match": map[string]any{"prefix": "/"}, "action": map[string]any{"weightedTargets": []any{target}},
		}}}
	}
	embeddedNode := map[string]any{
		"meshName": "prod", "listeners": mapping, "serviceDiscovery": map[string]any{"dns": map[string]any{"hostName": "cart.shop"}},
	}
	for version, want := range map[appmesh.Version]map[string]any{
		appmesh.V1Beta1: {
			"VirtualNode cart-canary": embeddedNode,
			"VirtualNode cart":        embeddedNode,
			"VirtualService cart.shop": map[string]any{
				"meshName": "prod", "virtualRouter": map[string]any{"name": "cart", "listeners": mapping},
				"routes": routes("http", map[string]any{"virtualNodeName": "cart-canary"}),
			},
		},
		appmesh.V1Beta2: {
			"VirtualNode cart-canary": map[string]any{
				"listeners": mapping, "podSelector": map[string]any{"matchLabels": map[string]any{"app": "cart"}},
				"serviceDiscovery": map[string]any{"dns": map[string]any{"hostname": "cart.shop.svc.cluster.local."}},
			},
			"VirtualRouter cart": map[string]any{
				"listeners": mapping, "routes": routes("httpRoute", map[string]any{"virtualNodeRef": map[string]any{"name": "cart-canary"}}),
			},
			"VirtualService cart": map[string]any{
				"provider": map[string]any{"virtualRouter": map[string]any{"virtualRouterRef": map[string]any{"name": "cart"}}},
			},
		},
	} {
		c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "cart-uid"}}
		c.Spec.TargetRef.Name, c.Spec.Service.Port, c.Spec.Service.MeshName = "cart", 80, "prod"
		target := traffic.Target{Canary: c, Namespace: "shop", Apex: "cart", StableService: "cart-primary", CanaryService: "cart-canary", SelectorLabel: "app"}
		rd := appmesh.New(version)
		existing := traffic.Objects{}
		for _, ref := range rd.Refs(target, release.Route{}, nil) {
			existing = append(existing, traffic.Lookup{Ref: ref})
		}
		save := func(objects []*unstructured.Unstructured, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			for i, obj := range objects {
				existing[i].Object = obj
			}
		}
		save(rd.Render(target, release.Route{}, existing))
		isController := true
		for _, x := range existing {
			x.Object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "flagger.app/v1beta1", Kind: "Canary", Name: "cart", UID: "cart-uid", Controller: &isController}})
		}
		save(traffic.HandOver(rd, target, existing))
		save(rd.Restore(target, existing))
		got := map[string]any{}
		for _, x := range existing {
			if x.Object != nil && len(x.Object.GetOwnerReferences()) == 0 { // others are deleted with the Canary
				got[x.Ref.GVK.Kind+" "+x.Ref.Name] = x.Object.Object["spec"]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: objects after the Canary (-want +got):\n%s", version, diff)
		}
	}
}
