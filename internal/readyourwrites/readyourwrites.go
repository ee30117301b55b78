// Package readyourwrites prevents decisions on a state that is older than the last write of the process itself, or than the
// state that the API server returned when the process took over a release.
//
// The client of controller-runtime prevents the first for typed objects only. After an unstructured write it waits for the
// informer of the typed object, which Serin does not use. A reconciliation directly after a write could therefore read the
// previous state and repeat or revert a step. This package knows objects by kind, name, UID and resourceVersion. It must not
// know their content.
package readyourwrites

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrStale means that the cache does not contain our own last write yet. The watch event of the write requeues the release.
var ErrStale = errors.New("the cache is behind our own last write")

// cacheLagTimeout is the time for which a new object may be missing in the cache. After it, the API server is read: another client
// may have deleted the object before the watch reported it.
const cacheLagTimeout = 5 * time.Second

// writeRetention is the minimum time for which a write is remembered, even if the cache has shown it: a watch that is restarted at
// another API server may return older versions again.
const writeRetention = 10 * time.Minute

// Client is a client whose Get of an unstructured object never returns a version that is older than its own last write, but
// ErrStale. For all other calls it is the wrapped client.
type Client struct {
	client.Client
	apiReader client.Reader
	clock     clock.PassiveClock

	mu        sync.Mutex
	writes    map[objectKey]writtenVersion
	lastSweep time.Time
}

type objectKey struct {
	kind schema.GroupKind
	key  types.NamespacedName
}

type writtenVersion struct {
	uid     types.UID
	version string
	at      time.Time
	// seenInCache is true if the cache has shown the write: an object that is missing after that is deleted.
	seenInCache bool
}

// New wraps a client that reads from caches. live reads from the API server.
func New(cached client.Client, apiReader client.Reader, clk clock.PassiveClock) *Client {
	return &Client{Client: cached, apiReader: apiReader, clock: clk, writes: map[objectKey]writtenVersion{}}
}

// Get implements client.Client. It returns ErrStale and the errors of the wrapped client.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	u, ok := into.(*unstructured.Unstructured)
	if !ok {
		return c.Client.Get(ctx, key, into, options...)
	}
	// The tracking of the library does not work for unstructured objects, but is a large part of the cost of a read.
	err := c.Client.Get(ctx, key, into, append(options, client.DisableReadYourWritesConsistency)...)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	id := objectKey{u.GroupVersionKind().GroupKind(), key}
	last, found := c.lastWrite(id)
	switch {
	case !found, err != nil && last.seenInCache:
		return err
	case err != nil:
		return c.resolveMissing(ctx, id, u.GroupVersionKind(), last, err)
	case IsOlder(u.GetResourceVersion(), last.version):
		return newStaleError(id) // also for an object of that name that was deleted before our write: a first list may be that old
	default: // our write, a newer one, or an object that another client has created since
		c.markSeen(id, last)
		return nil
	}
}

// resolveMissing decides whether a written object is not yet in the cache, or is deleted.
func (c *Client) resolveMissing(ctx context.Context, id objectKey, kind schema.GroupVersionKind, last writtenVersion, notFound error) error {
	if since := c.clock.Since(last.at); 0 <= since && since < cacheLagTimeout {
		return newStaleError(id)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(kind)
	switch err := c.apiReader.Get(ctx, id.key, live); {
	case apierrors.IsNotFound(err):
		c.dropWrite(id, last)
		return notFound
	case err != nil:
		return err
	default:
		return newStaleError(id)
	}
}

func newStaleError(id objectKey) error {
	return fmt.Errorf("read %s %s.%s: %w", id.kind.Kind, id.key.Name, id.key.Namespace, ErrStale)
}

// Create implements client.Client.
func (c *Client) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if err := CheckWrite(ctx, object); err != nil {
		return err
	}
	if withoutLibraryTracking(object) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return c.recordWrite(object, c.Client.Create(ctx, object, options...))
}

// Update implements client.Client.
func (c *Client) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	if err := CheckWrite(ctx, object); err != nil {
		return err
	}
	if withoutLibraryTracking(object) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return c.recordWrite(object, c.Client.Update(ctx, object, options...))
}

// Patch implements client.Client.
func (c *Client) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := CheckWrite(ctx, object); err != nil {
		return err
	}
	if withoutLibraryTracking(object) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return c.recordWrite(object, c.Client.Patch(ctx, object, patch, options...))
}

// withoutLibraryTracking reports whether the tracking of the library is useless for an object: it would start an informer for each
// kind of unstructured object.
func withoutLibraryTracking(object client.Object) bool {
	_, ok := object.(*unstructured.Unstructured)
	return ok
}

// Delete implements client.Client.
func (c *Client) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if err := CheckWrite(ctx, object); err != nil {
		return err
	}
	return c.Client.Delete(ctx, object, options...)
}

// recordWrite records the version that a write has returned. A write whose response was lost is not recorded: the next write that
// is based on the old version ends in a conflict.
func (c *Client) recordWrite(written client.Object, err error) error {
	u, ok := written.(*unstructured.Unstructured)
	if err != nil || !ok {
		return err
	}
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes[objectKey{u.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(u)}] = writtenVersion{uid: u.GetUID(), version: u.GetResourceVersion(), at: now}
	c.dropExpired(now)
	return nil
}

func (c *Client) dropExpired(now time.Time) {
	if now.Sub(c.lastSweep) < writeRetention {
		return
	}
	c.lastSweep = now
	for id, last := range c.writes {
		if now.Sub(last.at) >= writeRetention {
			delete(c.writes, id)
		}
	}
}

func (c *Client) lastWrite(id objectKey) (writtenVersion, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, found := c.writes[id]
	return last, found
}

// markSeen records that the cache contains a write, unless a newer write has replaced it.
func (c *Client) markSeen(id objectKey, last writtenVersion) {
	if last.seenInCache {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes[id] == last {
		last.seenInCache = true
		c.writes[id] = last
	}
}

// dropWrite drops a write, unless a newer one has replaced it.
func (c *Client) dropWrite(id objectKey, last writtenVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes[id] == last {
		delete(c.writes, id)
	}
}

// IsOlder reports whether a is older than b, for two resourceVersions of one kind. Kubernetes guarantees that they are increasing
// integers; it returns false if one of them is not an integer.
func IsOlder(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}
