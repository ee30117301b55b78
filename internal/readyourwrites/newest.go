package readyourwrites

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewestVersions prevents a process from acting on an outdated state of a release: the first list of a cache may come from an API
// server that lags, and the old spec may request what the current one forbids. For each release it records the newest version of
// one object that the API server has returned to this process. Older versions are rejected. All of this state may be lost:
// without a recorded version, the object is read from the API server.
type NewestVersions struct {
	description string
	apiReader   client.Reader

	mu       sync.Mutex
	versions map[types.NamespacedName]objectVersion
}

// objectVersion is the version of the object with a UID.
type objectVersion struct {
	uid             types.UID
	resourceVersion string
}

// NewNewestVersions returns an empty NewestVersions. description names the objects in errors; live reads from the API server.
func NewNewestVersions(description string, apiReader client.Reader) *NewestVersions {
	return &NewestVersions{description: description, apiReader: apiReader, versions: map[types.NamespacedName]objectVersion{}}
}

// VerifyTakeover verifies the cached object before the process acts on a release. Without a recorded version it reads the object
// once from the API server into an empty object of its kind. It returns ErrStale if the cached object is older, or deleted by
// now, and the errors of the API server.
func (n *NewestVersions) VerifyTakeover(ctx context.Context, key types.NamespacedName, cached, into client.Object) error {
	if n.knownVersion(key, cached.GetUID()) == "" {
		switch err := n.apiReader.Get(ctx, client.ObjectKeyFromObject(cached), into); {
		case apierrors.IsNotFound(err), err == nil && into.GetUID() != cached.GetUID():
			return n.staleError(key)
		case err != nil:
			return fmt.Errorf("read %s %s from the API server: %w", n.description, key, err)
		}
		n.RecordVersion(key, into)
	}
	return n.VerifyNotStale(key, cached)
}

// VerifyNotStale returns ErrStale if the cached object is older than the recorded version.
func (n *NewestVersions) VerifyNotStale(key types.NamespacedName, cached client.Object) error {
	if IsOlder(cached.GetResourceVersion(), n.knownVersion(key, cached.GetUID())) {
		return n.staleError(key)
	}
	return nil
}

// RecordVersion records a version that the API server has returned.
func (n *NewestVersions) RecordVersion(key types.NamespacedName, returned client.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.versions[key] = objectVersion{returned.GetUID(), returned.GetResourceVersion()}
}

// RecordIfUnknown records the version that a successful write has returned, unless a version of the object is recorded.
func (n *NewestVersions) RecordIfUnknown(key types.NamespacedName, written client.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, found := n.versions[key]; !found || known.uid != written.GetUID() {
		n.versions[key] = objectVersion{written.GetUID(), written.GetResourceVersion()}
	}
}

// Forget drops the version of a release that was deleted or that another process serves. It must also be called after a failed
// write: the write may have succeeded and only its response was lost, and the same decision must not be made again on the same
// state.
func (n *NewestVersions) Forget(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.versions, key)
}

// knownVersion returns the oldest acceptable version; empty means unknown.
func (n *NewestVersions) knownVersion(key types.NamespacedName, uid types.UID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.versions[key]; known.uid == uid {
		return known.resourceVersion
	}
	return ""
}

func (n *NewestVersions) staleError(key types.NamespacedName) error {
	return fmt.Errorf("read %s %s: %w", n.description, key, ErrStale)
}

// Keys returns the releases with a recorded version.
func (n *NewestVersions) Keys() []types.NamespacedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.versions))
}
