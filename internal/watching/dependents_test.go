package watching

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var cart, other = types.NamespacedName{Namespace: "shop", Name: "cart"}, types.NamespacedName{Namespace: "shop", Name: "other"}

func TestDependenciesAreReplacedAndForgotten(t *testing.T) {
	d := NewDependents()
	config := Object{schema.GroupKind{Kind: "ConfigMap"}, "shop", "prices"}
	target := Object{schema.GroupKind{Group: "apps", Kind: "Deployment"}, "shop", "cart"}
	for _, step := range []struct {
		objects []Object
		added   bool
	}{{[]Object{config}, true}, {[]Object{config}, false}, {[]Object{target, config}, true}, {[]Object{config, target}, false}, {[]Object{target}, false}, {nil, false}, {[]Object{config, target}, true}} {
		if got := d.Set(cart, step.objects); got != step.added {
			t.Errorf("set %v: there is an additional object: %t, want %t", step.objects, got, step.added)
		}
	}
	d.Set(other, []Object{config})
	if got := len(d.ReleasesFor(config)); got != 2 {
		t.Errorf("got %d releases for the ConfigMap, want 2", got)
	}
	d.Set(cart, []Object{target})
	if got := d.ReleasesFor(config); len(got) != 1 || got[0] != other {
		t.Errorf("got %v, want %v alone", got, other)
	}
	d.Set(cart, []Object{target, config, target})
	if got := d.ReleasesFor(config); !slices.Equal(got, []types.NamespacedName{cart, other}) {
		t.Errorf("got %v, want both, sorted", got)
	}
	d.Forget(cart)
	if got := d.ReleasesFor(target); len(got) != 0 {
		t.Errorf("got %v for an object that was listed twice, want none", got)
	}
	d.Forget(other)
	d.Add(cart, []Object{target, config})
	d.Add(cart, []Object{config})
	if got := d.ReleasesFor(config); !slices.Equal(got, []types.NamespacedName{cart}) {
		t.Errorf("got %v for an object that was added, want %v", got, cart)
	}
	if d.Set(cart, []Object{config, target}) {
		t.Error("an object that was added before it was observed is additional")
	}
	d.Forget(cart)
	if len(d.releasesByObject) != 0 || len(d.objectsByRelease) != 0 {
		t.Errorf("state that remains: %v %v", d.releasesByObject, d.objectsByRelease)
	}
}
