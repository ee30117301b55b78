// Package watching brings releases back when an object changes that they depend on, and sees who else acts on them.
//
// It knows objects by kind and name. It must not know what they hold, nor what a release does with them.
package watching

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Thing is one object that a release depends on, whether it exists or not.
type Thing struct {
	Kind            schema.GroupKind
	Namespace, Name string
}

// Dependents knows which releases must be looked at when an object changes. What one release depends on is replaced as a
// whole at each pass, so that it never grows.
type Dependents struct {
	mu     sync.Mutex
	by     map[Thing]map[types.NamespacedName]bool
	things map[types.NamespacedName][]Thing
}

// NewDependents knows of none yet.
func NewDependents() *Dependents {
	return &Dependents{by: map[Thing]map[types.NamespacedName]bool{}, things: map[types.NamespacedName][]Thing{}}
}

// Set says what the release depends on from now on.
func (d *Dependents) Set(key types.NamespacedName, things []Thing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Equal(d.things[key], things) {
		return // the usual case
	}
	d.drop(key)
	if len(things) == 0 {
		return
	}
	d.things[key] = things
	for _, t := range things {
		if d.by[t] == nil {
			d.by[t] = map[types.NamespacedName]bool{}
		}
		d.by[t][key] = true
	}
}

// Forget drops a release that is gone.
func (d *Dependents) Forget(key types.NamespacedName) { d.Set(key, nil) }

func (d *Dependents) drop(key types.NamespacedName) {
	for _, t := range d.things[key] {
		delete(d.by[t], key)
		if len(d.by[t]) == 0 {
			delete(d.by, t)
		}
	}
	delete(d.things, key)
}

// Of are the releases that depend on an object, sorted: the same change must always lead to the same order.
func (d *Dependents) Of(t Thing) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(d.by[t]))
	for key := range d.by[t] {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// Keys are the releases that depend on something.
func (d *Dependents) Keys() []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.things))
}
