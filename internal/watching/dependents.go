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

// Object is one object that a release depends on, whether it exists or not.
type Object struct {
	Kind            schema.GroupKind
	Namespace, Name string
}

// Dependents knows which releases must be looked at when an object changes. What one release depends on is replaced as a
// whole at each pass, so that it never grows.
type Dependents struct {
	mu               sync.Mutex
	releasesByObject map[Object]map[types.NamespacedName]bool
	objectsByRelease map[types.NamespacedName][]Object
}

// NewDependents knows of none yet.
func NewDependents() *Dependents {
	return &Dependents{releasesByObject: map[Object]map[types.NamespacedName]bool{}, objectsByRelease: map[types.NamespacedName][]Object{}}
}

// Set says what the release depends on from now on.
func (d *Dependents) Set(key types.NamespacedName, things []Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Equal(d.objectsByRelease[key], things) {
		return // the usual case
	}
	d.drop(key)
	if len(things) == 0 {
		return
	}
	d.objectsByRelease[key] = things
	for _, t := range things {
		if d.releasesByObject[t] == nil {
			d.releasesByObject[t] = map[types.NamespacedName]bool{}
		}
		d.releasesByObject[t][key] = true
	}
}

// Forget drops a release that is gone.
func (d *Dependents) Forget(key types.NamespacedName) { d.Set(key, nil) }

func (d *Dependents) drop(key types.NamespacedName) {
	for _, t := range d.objectsByRelease[key] {
		delete(d.releasesByObject[t], key)
		if len(d.releasesByObject[t]) == 0 {
			delete(d.releasesByObject, t)
		}
	}
	delete(d.objectsByRelease, key)
}

// ReleasesFor are the releases that depend on an object, sorted: the same change must always lead to the same order.
func (d *Dependents) ReleasesFor(t Object) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(d.releasesByObject[t]))
	for key := range d.releasesByObject[t] {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// Keys are the releases that depend on something.
func (d *Dependents) Keys() []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.objectsByRelease))
}
