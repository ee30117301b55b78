package gloo_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/gloo"
)

// TestTheUpstreamOfThePrimaryRemains: after serin eject, it leads to the pods of the target, through the apex Service.
func TestTheUpstreamOfThePrimaryRemains(t *testing.T) {
	c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "cart-uid"}}
	c.Spec.TargetRef.Name, c.Spec.Service.Port = "cart", 80
	target := traffic.Target{Canary: c, Namespace: "shop", Apex: "cart", StableService: "cart-primary", CanaryService: "cart-canary", SelectorLabel: "app"}
	rd := gloo.New(nil)
	lookups := func(objects []*unstructured.Unstructured) traffic.Objects {
		out := traffic.Objects{}
		for i, ref := range rd.Refs(target, release.Route{}, nil) {
			x := traffic.Lookup{Ref: ref}
			if objects != nil {
				x.Object = objects[i]
			}
			out = append(out, x)
		}
		return out
	}
	objects, err := rd.Render(target, release.Route{}, lookups(nil))
	if err != nil {
		t.Fatal(err)
	}
	isController := true
	for _, obj := range objects {
		obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "flagger.app/v1beta1", Kind: "Canary", Name: "cart", UID: "cart-uid", Controller: &isController}})
	}
	handed, err := traffic.HandOver(rd, target, lookups(objects))
	if err != nil {
		t.Fatal(err)
	}
	restored, err := rd.Restore(target, lookups(handed))
	if err != nil {
		t.Fatal(err)
	}
	const upstream = "shop-cart-primaryupstream-80"
	want := []any{
		map[string]any{"kube": map[string]any{
			"serviceName": "cart", "serviceNamespace": "shop", "servicePort": int64(80), "selector": map[string]any{"app": "cart"},
		}},
		nil, // deleted with the Canary
		map[string]any{"routes": []any{map[string]any{
			"inheritablePathMatchers": true,
			"routeAction": map[string]any{"multi": map[string]any{"destinations": []any{
				map[string]any{"destination": map[string]any{"upstream": map[string]any{"name": upstream, "namespace": "shop"}}, "weight": int64(100)},
			}}},
		}}},
	}
	got := make([]any, len(restored))
	for i, obj := range restored {
		if obj != nil && len(obj.GetOwnerReferences()) == 0 {
			got[i] = obj.Object["spec"]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects after the Canary (-want +got):\n%s", diff)
	}
}
