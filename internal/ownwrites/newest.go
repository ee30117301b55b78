package ownwrites

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

// Newest keeps a process from acting on releases as they were long ago: the first list of a cache may come from an API
// server that lags, and what an object asked for then may be what the present one forbids. Of each release it knows the
// newest version of one object that the API server gave to this process; nothing older is acted on. All of it may be lost:
// where nothing is known, the API server is asked.
type Newest struct {
	what string
	live client.Reader

	mu sync.Mutex
	of map[types.NamespacedName]version
}

// version of the very object with that UID.
type version struct {
	uid             types.UID
	resourceVersion string
}

// NewestOf knows nothing yet. what the objects are is for errors; live reads from the API server.
func NewestOf(what string, live client.Reader) *Newest {
	return &Newest{what: what, live: live, of: map[types.NamespacedName]version{}}
}

// TakeOver is for who is about to act on what a cache has of a release: where nothing is known, it is read once from the API
// server, into an empty object of its kind. Errors: ErrBehind while the cache is older, or has what is gone by now, and
// those of the API server.
func (n *Newest) TakeOver(ctx context.Context, of types.NamespacedName, cached, into client.Object) error {
	if n.version(of, cached.GetUID()) == "" {
		switch err := n.live.Get(ctx, client.ObjectKeyFromObject(cached), into); {
		case apierrors.IsNotFound(err), err == nil && into.GetUID() != cached.GetUID():
			return n.behind(of)
		case err != nil:
			return fmt.Errorf("read %s %s from the API server: %w", n.what, of, err)
		}
		n.Knows(of, into)
	}
	return n.Look(of, cached)
}

// Look is ErrBehind of an object that is older than what is known of it.
func (n *Newest) Look(of types.NamespacedName, cached client.Object) error {
	if Older(cached.GetResourceVersion(), n.version(of, cached.GetUID())) {
		return n.behind(of)
	}
	return nil
}

// Knows takes a version that the API server gave.
func (n *Newest) Knows(of types.NamespacedName, given client.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[of] = version{given.GetUID(), given.GetResourceVersion()}
}

// Proves takes a version that a write has shown to be the newest, where none is known.
func (n *Newest) Proves(of types.NamespacedName, written client.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, found := n.of[of]; !found || known.uid != written.GetUID() {
		n.of[of] = version{written.GetUID(), written.GetResourceVersion()}
	}
}

// Forget is for a release that is gone or somebody else's, and after a write that failed: it may have been done, and the
// answer lost. What was decided before it must not be decided again on the same view.
func (n *Newest) Forget(of types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, of)
}

// version is the oldest that may be acted on; empty: none is known.
func (n *Newest) version(of types.NamespacedName, uid types.UID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.of[of]; known.uid == uid {
		return known.resourceVersion
	}
	return ""
}

func (n *Newest) behind(of types.NamespacedName) error {
	return fmt.Errorf("look at %s %s: %w", n.what, of, ErrBehind)
}

// Keys are the releases of which a version is known.
func (n *Newest) Keys() []types.NamespacedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.of))
}
