// Package watching requeues releases when an object that they depend on changes, and detects other controllers that act on them.
//
// It knows objects by kind and name. It must not know their content, nor what a release does with them.
package watching

import (
	"cmp"
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

// Dependents records which releases depend on an object. Each reconciliation replaces all dependencies of its release, so that
// they never accumulate.
type Dependents struct {
	mu sync.Mutex
	// releasesByObject contains sorted lists, nearly all of which have one element.
	releasesByObject map[Object][]types.NamespacedName
	objectsByRelease map[types.NamespacedName][]Object
}

// NewDependents returns an empty Dependents.
func NewDependents() *Dependents {
	return &Dependents{releasesByObject: map[Object][]types.NamespacedName{}, objectsByRelease: map[types.NamespacedName][]Object{}}
}

// Set replaces the objects that a release depends on. It reports whether there is an additional one: a change of it before this
// call has requeued no release, and the objects must be read again, because the change may have come after they were read.
func (d *Dependents) Set(key types.NamespacedName, objects []Object) (added bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.objectsByRelease[key]
	if slices.Equal(before, objects) {
		return false // the usual case
	}
	d.drop(key)
	if len(objects) == 0 {
		return false
	}
	d.objectsByRelease[key] = objects
	for _, object := range objects {
		releases := d.releasesByObject[object]
		if i, found := slices.BinarySearchFunc(releases, key, compareKeys); !found {
			d.releasesByObject[object] = slices.Insert(releases, i, key)
		}
		added = added || !slices.Contains(before, object)
	}
	return added
}

// Add adds objects that a release depends on whatever else is observed. Added before they are read, no change of them is missed,
// even if an observation does not read all of them.
func (d *Dependents) Add(key types.NamespacedName, objects []Object) {
	d.mu.Lock()
	before := d.objectsByRelease[key]
	d.mu.Unlock()
	added := slices.DeleteFunc(slices.Clone(objects), func(object Object) bool { return slices.Contains(before, object) })
	if len(added) > 0 {
		d.Set(key, slices.Concat(before, added))
	}
}

// Forget drops the dependencies of a deleted release.
func (d *Dependents) Forget(key types.NamespacedName) { d.Set(key, nil) }

func (d *Dependents) drop(key types.NamespacedName) {
	for _, object := range d.objectsByRelease[key] {
		releases := d.releasesByObject[object]
		i, found := slices.BinarySearchFunc(releases, key, compareKeys)
		switch {
		case !found: // an object that the list contains twice
		case len(releases) == 1:
			delete(d.releasesByObject, object)
		default:
			d.releasesByObject[object] = slices.Delete(releases, i, i+1)
		}
	}
	delete(d.objectsByRelease, key)
}

// ReleasesFor returns the releases that depend on an object, sorted, so that the same change always has the same effect.
func (d *Dependents) ReleasesFor(object Object) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.releasesByObject[object])
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Keys returns the releases that depend on an object.
func (d *Dependents) Keys() []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.objectsByRelease))
}
