// Package readyourwrites prevents decisions on a view that is older than what the process itself wrote last, or
// than what the API server showed when the process took a release over.
//
// The library's client does the first for typed objects only: what is written unstructured it waits for under the name of
// the typed view, which nobody reads, so that a pass right after a write may see the object as it was before, and take a
// step twice or back. This package knows objects by kind, name, UID and resourceVersion, and nothing of what they hold.
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

// ErrStale says that the cache has not seen our own last write yet. Its watch event brings the release back.
var ErrStale = errors.New("the cache is behind our own last write")

// cacheLagTimeout is how long an object that was just made may be missing in the cache before the API server is asked whether
// it is still there: somebody may have deleted it before any watch told of it.
const cacheLagTimeout = 5 * time.Second

// writeRetention is for how long a write is remembered, at least. It outlasts that the cache has shown it: a watch that begins
// anew at another API server may go back.
const writeRetention = 10 * time.Minute

// Client is a client whose Get of an unstructured object never gives one that is older than its own last write: it
// returns ErrStale instead. Everything else is the client's that it wraps.
type Client struct {
	client.Client
	live  client.Reader
	clock clock.PassiveClock

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
	// seenInCache is true since the cache had it: when it is missing after that, it is gone.
	seenInCache bool
}

// New wraps a client that reads from caches. live reads from the API server.
func New(cached client.Client, live client.Reader, clk clock.PassiveClock) *Client {
	return &Client{Client: cached, live: live, clock: clk, writes: map[objectKey]writtenVersion{}}
}

// Get implements client.Client. Errors: ErrStale, and those of the wrapped client.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	u, ok := into.(*unstructured.Unstructured)
	if !ok {
		return c.Client.Get(ctx, key, into, options...)
	}
	// Where the library's promise does not hold, keeping the books for it is a large part of a read's cost.
	err := c.Client.Get(ctx, key, into, append(options, client.DisableReadYourWritesConsistency)...)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	of := objectKey{u.GroupVersionKind().GroupKind(), key}
	last, found := c.lastWrite(of)
	switch {
	case !found, err != nil && last.seenInCache:
		return err
	case err != nil:
		return c.resolveMissing(ctx, of, u.GroupVersionKind(), last, err)
	case IsOlder(u.GetResourceVersion(), last.version):
		return newStaleError(of) // also one that was deleted before ours was made: a first list may be that old
	default: // as new as what was written, or made by somebody else since
		c.markSeen(of, last)
		return nil
	}
}

// resolveMissing decides about an object that was written and is not in the cache: not yet, or not any more.
func (c *Client) resolveMissing(ctx context.Context, of objectKey, kind schema.GroupVersionKind, last writtenVersion, notFound error) error {
	if since := c.clock.Since(last.at); 0 <= since && since < cacheLagTimeout {
		return newStaleError(of)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(kind)
	switch err := c.live.Get(ctx, of.key, live); {
	case apierrors.IsNotFound(err):
		c.dropWrite(of, last)
		return notFound
	case err != nil:
		return err
	default:
		return newStaleError(of)
	}
}

func newStaleError(of objectKey) error {
	return fmt.Errorf("look at %s %s.%s: %w", of.kind.Kind, of.key.Name, of.key.Namespace, ErrStale)
}

// Create implements client.Client.
func (c *Client) Create(ctx context.Context, made client.Object, options ...client.CreateOption) error {
	if err := CheckWrite(ctx, made); err != nil {
		return err
	}
	if withoutLibraryTracking(made) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return c.recordWrite(made, c.Client.Create(ctx, made, options...))
}

// Update implements client.Client.
func (c *Client) Update(ctx context.Context, made client.Object, options ...client.UpdateOption) error {
	if err := CheckWrite(ctx, made); err != nil {
		return err
	}
	if withoutLibraryTracking(made) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return c.recordWrite(made, c.Client.Update(ctx, made, options...))
}

// Patch implements client.Client.
func (c *Client) Patch(ctx context.Context, made client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := CheckWrite(ctx, made); err != nil {
		return err
	}
	if withoutLibraryTracking(made) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return c.recordWrite(made, c.Client.Patch(ctx, made, patch, options...))
}

// withoutLibraryTracking is true of what the library notes a write of for nobody: its books would cost an observer of each kind.
func withoutLibraryTracking(made client.Object) bool {
	_, ok := made.(*unstructured.Unstructured)
	return ok
}

// Delete implements client.Client.
func (c *Client) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if err := CheckWrite(ctx, object); err != nil {
		return err
	}
	return c.Client.Delete(ctx, object, options...)
}

// recordWrite keeps the version that a write gave. A write whose answer was lost is not known here: the next one that is
// decided on the old version ends in a conflict.
func (c *Client) recordWrite(made client.Object, err error) error {
	u, ok := made.(*unstructured.Unstructured)
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
	for of, last := range c.writes {
		if now.Sub(last.at) >= writeRetention {
			delete(c.writes, of)
		}
	}
}

func (c *Client) lastWrite(of objectKey) (writtenVersion, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, found := c.writes[of]
	return last, found
}

// markSeen remembers that the cache has what was written, unless a newer write has replaced it.
func (c *Client) markSeen(of objectKey, last writtenVersion) {
	if last.seenInCache {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes[of] == last {
		last.seenInCache = true
		c.writes[of] = last
	}
}

// dropWrite drops what is remembered, unless a newer write has replaced it.
func (c *Client) dropWrite(of objectKey, last writtenVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes[of] == last {
		delete(c.writes, of)
	}
}

// IsOlder compares resourceVersions of one kind. Kubernetes promises that they are whole numbers that grow; where one is
// not, nothing is said to be older.
func IsOlder(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}
