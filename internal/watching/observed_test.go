package watching

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestOnlyTheEventOfAnObservedVersionIsDropped: an event of any other version may announce something new, also that of an older one.
func TestOnlyTheEventOfAnObservedVersionIsDropped(t *testing.T) {
	kind := schema.GroupKind{Kind: "Service"}
	object := func(name string, uid types.UID, resourceVersion string) client.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid, ResourceVersion: resourceVersion}}
	}
	version := func(name string, uid types.UID, resourceVersion string) ObjectVersion {
		return VersionOf(kind, object(name, uid, resourceVersion))
	}
	var o Observed
	o.Record(cart, []ObjectVersion{version("cart", "a", "7"), version("cart-primary", "b", "8")})
	for name, tc := range map[string]struct {
		event client.Object
		want  []types.NamespacedName
	}{
		"an observed version":               {object("cart", "a", "7"), []types.NamespacedName{other}},
		"a newer version":                   {object("cart", "a", "9"), []types.NamespacedName{cart, other}},
		"an older version":                  {object("cart", "a", "6"), []types.NamespacedName{cart, other}},
		"an object of the same name":        {object("cart", "c", "7"), []types.NamespacedName{cart, other}},
		"a deleted object":                  {nil, []types.NamespacedName{cart, other}},
		"another object":                    {object("basket", "a", "7"), []types.NamespacedName{cart, other}},
		"another observed object's version": {object("cart", "b", "8"), []types.NamespacedName{cart, other}},
	} {
		var got []types.NamespacedName
		for _, request := range o.Drop([]reconcile.Request{{NamespacedName: cart}, {NamespacedName: other}}, kind, tc.event) {
			got = append(got, request.NamespacedName)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s requeues %v, want %v", name, got, tc.want)
		}
	}
	o.Record(cart, []ObjectVersion{version("cart", "a", "8")})
	request := []reconcile.Request{{NamespacedName: cart}}
	if got := o.Drop(slices.Clone(request), kind, object("cart", "a", "7")); len(got) != 1 {
		t.Error("a version of an earlier observation is still dropped")
	}
	if o.Forget(cart); len(o.Drop(slices.Clone(request), kind, object("cart", "a", "8"))) != 1 || len(o.Keys()) != 0 {
		t.Errorf("versions of a forgotten release remain: %v", o.Keys())
	}
}
