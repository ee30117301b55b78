package store_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owned creates a ConfigMap with owners.
func (w *world) owned(name string, blocks bool, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	w.t.Helper()
	obj := newObject(configMapKind, name)
	var references []metav1.OwnerReference
	for _, owner := range owners {
		references = append(references, metav1.OwnerReference{
			APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: &blocks,
		})
	}
	obj.SetOwnerReferences(references)
	w.must(w.client.Create(w.t.Context(), obj))
	return obj
}

func (w *world) has(kind schema.GroupVersionKind, name string) bool {
	return w.server.Peek(kind.GroupKind(), keyOf(name)) != nil
}

func (w *world) collect(most int) int {
	w.t.Helper()
	done, err := w.server.Collect("garbage", most)
	w.must(err)
	return done
}

func TestCollectBackground(t *testing.T) {
	w := newWorld(t)
	owner, other := w.create(canary("x")), w.create(canary("z"))
	child := w.owned("child", true, owner)
	w.owned("grandchild", true, child)
	w.owned("shared", true, owner, other)
	expect(t, "garbage while all live", w.collect(9), 0)
	w.must(w.client.Delete(t.Context(), newObject(canaryKind, "x")))
	expect(t, "one step", w.collect(1), 1)
	expect(t, "all steps", w.collect(9), 2)
	expect(t, "nothing more", w.collect(9), 0)
	expect(t, "child", w.has(configMapKind, "child"), false)
	expect(t, "grandchild", w.has(configMapKind, "grandchild"), false)
	if left := w.get(configMapKind, "shared").GetOwnerReferences(); len(left) != 1 || left[0].Name != "z" {
		t.Errorf("the owners of what is shared are %v", left)
	}
}

func TestCollectForeground(t *testing.T) {
	w := newWorld(t)
	owner := w.create(canary("x"))
	child := w.owned("child", true, owner)
	w.owned("grandchild", true, child)
	w.must(w.client.Delete(t.Context(), newObject(canaryKind, "x"), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	expect(t, "owner at first", w.has(canaryKind, "x"), true)
	var order []string
	for w.collect(1) == 1 {
		events := w.server.Events()
		last := events[len(events)-1]
		order = append(order, string(last.Type)+" "+last.Key.Name)
	}
	expect(t, "order", order, []string{"modified child", "deleted grandchild", "deleted child", "deleted x"})
}

func TestCollectOrphans(t *testing.T) {
	w := newWorld(t)
	w.owned("child", true, w.create(canary("x")))
	w.must(w.client.Delete(t.Context(), newObject(canaryKind, "x"), client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	expect(t, "steps", w.collect(9), 2)
	expect(t, "owner", w.has(canaryKind, "x"), false)
	expect(t, "owners of the child", len(w.get(configMapKind, "child").GetOwnerReferences()), 0)
}

// TestCollectComparesUIDs verifies that a recreated owner is a different object.
func TestCollectComparesUIDs(t *testing.T) {
	w := newWorld(t)
	w.owned("child", false, w.create(canary("x")))
	w.must(w.client.Delete(t.Context(), newObject(canaryKind, "x")))
	w.create(canary("x"))
	expect(t, "steps", w.collect(9), 1)
	expect(t, "child", w.has(configMapKind, "child"), false)
}
