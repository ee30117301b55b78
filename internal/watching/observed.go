package watching

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ObjectVersion is an object in the version in which it was observed.
type ObjectVersion struct {
	Object
	// Version is the UID and the resourceVersion, separated by a slash.
	Version string
}

// VersionOf returns the version of an object of a kind.
func VersionOf(kind schema.GroupKind, object client.Object) ObjectVersion {
	return ObjectVersion{
		Object:  Object{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()},
		Version: string(object.GetUID()) + "/" + object.GetResourceVersion(),
	}
}

// Observed records the versions of objects in the last observation of each release. A cache contains a new version before the event
// handlers are called, so that a reconciliation may observe it before its event would requeue the release. Such an event requeues
// nothing: what it announces has been taken into account, or its reconciliation has failed and is repeated anyway. A version that a
// reconciliation writes itself is not among the observed ones, so that its event requeues the release once.
//
// Its zero value has none.
type Observed struct {
	mu       sync.Mutex
	versions map[types.NamespacedName][]ObjectVersion
}

// Record replaces the versions that a release has observed.
func (o *Observed) Record(key types.NamespacedName, versions []ObjectVersion) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.versions == nil {
		o.versions = map[types.NamespacedName][]ObjectVersion{}
	}
	o.versions[key] = versions
}

// Drop returns the requests without those of releases that have observed an object of a kind in this version already. A deleted
// object (nil) has no version, and drops none.
func (o *Observed) Drop(requests []reconcile.Request, kind schema.GroupKind, object client.Object) []reconcile.Request {
	if object == nil || len(requests) == 0 {
		return requests
	}
	version := VersionOf(kind, object)
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(requests, func(r reconcile.Request) bool { return slices.Contains(o.versions[r.NamespacedName], version) })
}

// Forget drops the versions of a deleted release.
func (o *Observed) Forget(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.versions, key)
}

// Keys returns the releases with recorded versions.
func (o *Observed) Keys() []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.versions))
}
