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

// NewestVersions keeps a process from acting on releases as they were long ago: the first list of a cache may come from an API
// server that lags, and what an object asked for then may be what the present one forbids. Of each release it knows the
// newest version of one object that the API server gave to this process; nothing older is acted on. All of it may be lost:
// where nothing is known, the API server is asked.
type NewestVersions struct {
	description string
	live        client.Reader

	mu       sync.Mutex
	versions map[types.NamespacedName]objectVersion
}

// objectVersion of the very object with that UID.
type objectVersion struct {
	uid             types.UID
	resourceVersion string
}

// NewNewestVersions knows nothing yet. what the objects are is for errors; live reads from the API server.
func NewNewestVersions(what string, live client.Reader) *NewestVersions {
	return &NewestVersions{description: what, live: live, versions: map[types.NamespacedName]objectVersion{}}
}

// VerifyTakeover is for who is about to act on what a cache has of a release: where nothing is known, it is read once from the API
// server, into an empty object of its kind. Errors: ErrStale while the cache is older, or has what is gone by now, and
// those of the API server.
func (n *NewestVersions) VerifyTakeover(ctx context.Context, of types.NamespacedName, cached, into client.Object) error {
	if n.knownVersion(of, cached.GetUID()) == "" {
		switch err := n.live.Get(ctx, client.ObjectKeyFromObject(cached), into); {
		case apierrors.IsNotFound(err), err == nil && into.GetUID() != cached.GetUID():
			return n.staleError(of)
		case err != nil:
			return fmt.Errorf("read %s %s from the API server: %w", n.description, of, err)
		}
		n.RecordVersion(of, into)
	}
	return n.VerifyNotStale(of, cached)
}

// VerifyNotStale is ErrStale of an object that is older than what is known of it.
func (n *NewestVersions) VerifyNotStale(of types.NamespacedName, cached client.Object) error {
	if IsOlder(cached.GetResourceVersion(), n.knownVersion(of, cached.GetUID())) {
		return n.staleError(of)
	}
	return nil
}

// RecordVersion takes a version that the API server gave.
func (n *NewestVersions) RecordVersion(of types.NamespacedName, given client.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.versions[of] = objectVersion{given.GetUID(), given.GetResourceVersion()}
}

// RecordIfUnknown takes a version that a write has shown to be the newest, where none is known.
func (n *NewestVersions) RecordIfUnknown(of types.NamespacedName, written client.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, found := n.versions[of]; !found || known.uid != written.GetUID() {
		n.versions[of] = objectVersion{written.GetUID(), written.GetResourceVersion()}
	}
}

// Forget is for a release that is gone or somebody else's, and after a write that failed: it may have been done, and the
// answer lost. What was decided before it must not be decided again on the same view.
func (n *NewestVersions) Forget(of types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.versions, of)
}

// knownVersion is the oldest that may be acted on; empty: none is known.
func (n *NewestVersions) knownVersion(of types.NamespacedName, uid types.UID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.versions[of]; known.uid == uid {
		return known.resourceVersion
	}
	return ""
}

func (n *NewestVersions) staleError(of types.NamespacedName) error {
	return fmt.Errorf("look at %s %s: %w", n.description, of, ErrStale)
}

// Keys are the releases of which a version is known.
func (n *NewestVersions) Keys() []types.NamespacedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.versions))
}
