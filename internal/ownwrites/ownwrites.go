// Package ownwrites keeps a decision from being made on a view that is older than what the process itself wrote last, or
// than what the API server showed when the process took a release over.
//
// The library's client does the first for typed objects only: what is written unstructured it waits for under the name of
// the typed view, which nobody reads, so that a pass right after a write may see the object as it was before, and take a
// step twice or back. This package knows objects by kind, name, UID and resourceVersion, and nothing of what they hold.
package ownwrites

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

// ErrBehind says that the cache has not seen our own last write yet. Its watch event brings the release back.
var ErrBehind = errors.New("the cache is behind our own last write")

// patience is how long an object that was just made may be missing in the cache before the API server is asked whether
// it is still there: somebody may have deleted it before any watch told of it.
const patience = 5 * time.Second

// remembers is for how long a write is remembered, at least. It outlasts that the cache has shown it: a watch that begins
// anew at another API server may go back.
const remembers = 10 * time.Minute

// Client is a client whose Get of an unstructured object never gives one that is older than its own last write: it
// returns ErrBehind instead. Everything else is the client's that it wraps.
type Client struct {
	client.Client
	live  client.Reader
	clock clock.PassiveClock

	mu    sync.Mutex
	last  map[object]written
	swept time.Time
}

type object struct {
	kind schema.GroupKind
	key  types.NamespacedName
}

type written struct {
	uid     types.UID
	version string
	at      time.Time
	// shown is true since the cache had it: when it is missing after that, it is gone.
	shown bool
}

// New wraps a client that reads from caches. live reads from the API server.
func New(cached client.Client, live client.Reader, clk clock.PassiveClock) *Client {
	return &Client{Client: cached, live: live, clock: clk, last: map[object]written{}}
}

// Get implements client.Client. Errors: ErrBehind, and those of the wrapped client.
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
	of := object{u.GroupVersionKind().GroupKind(), key}
	last, found := c.remembered(of)
	switch {
	case !found, err != nil && last.shown:
		return err
	case err != nil:
		return c.missing(ctx, of, u.GroupVersionKind(), last, err)
	case Older(u.GetResourceVersion(), last.version):
		return behind(of) // also one that was deleted before ours was made: a first list may be that old
	default: // as new as what was written, or made by somebody else since
		c.show(of, last)
		return nil
	}
}

// missing decides about an object that was written and is not in the cache: not yet, or not any more.
func (c *Client) missing(ctx context.Context, of object, kind schema.GroupVersionKind, last written, notFound error) error {
	if since := c.clock.Since(last.at); 0 <= since && since < patience {
		return behind(of)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(kind)
	switch err := c.live.Get(ctx, of.key, live); {
	case apierrors.IsNotFound(err):
		c.forget(of, last)
		return notFound
	case err != nil:
		return err
	default:
		return behind(of)
	}
}

func behind(of object) error {
	return fmt.Errorf("look at %s %s.%s: %w", of.kind.Kind, of.key.Name, of.key.Namespace, ErrBehind)
}

// Create implements client.Client.
func (c *Client) Create(ctx context.Context, made client.Object, options ...client.CreateOption) error {
	if err := Allowed(ctx, made); err != nil {
		return err
	}
	if unwatched(made) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return c.remember(made, c.Client.Create(ctx, made, options...))
}

// Update implements client.Client.
func (c *Client) Update(ctx context.Context, made client.Object, options ...client.UpdateOption) error {
	if err := Allowed(ctx, made); err != nil {
		return err
	}
	if unwatched(made) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return c.remember(made, c.Client.Update(ctx, made, options...))
}

// Patch implements client.Client.
func (c *Client) Patch(ctx context.Context, made client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := Allowed(ctx, made); err != nil {
		return err
	}
	if unwatched(made) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return c.remember(made, c.Client.Patch(ctx, made, patch, options...))
}

// unwatched is true of what the library notes a write of for nobody: its books would cost an observer of each kind.
func unwatched(made client.Object) bool {
	_, ok := made.(*unstructured.Unstructured)
	return ok
}

// Delete implements client.Client.
func (c *Client) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if err := Allowed(ctx, object); err != nil {
		return err
	}
	return c.Client.Delete(ctx, object, options...)
}

// remember keeps the version that a write gave. A write whose answer was lost is not known here: the next one that is
// decided on the old version ends in a conflict.
func (c *Client) remember(made client.Object, err error) error {
	u, ok := made.(*unstructured.Unstructured)
	if err != nil || !ok {
		return err
	}
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[object{u.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(u)}] = written{uid: u.GetUID(), version: u.GetResourceVersion(), at: now}
	c.sweep(now)
	return nil
}

func (c *Client) sweep(now time.Time) {
	if now.Sub(c.swept) < remembers {
		return
	}
	c.swept = now
	for of, last := range c.last {
		if now.Sub(last.at) >= remembers {
			delete(c.last, of)
		}
	}
}

func (c *Client) remembered(of object) (written, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, found := c.last[of]
	return last, found
}

// show remembers that the cache has what was written, unless a newer write has replaced it.
func (c *Client) show(of object, last written) {
	if last.shown {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last[of] == last {
		last.shown = true
		c.last[of] = last
	}
}

// forget drops what is remembered, unless a newer write has replaced it.
func (c *Client) forget(of object, last written) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last[of] == last {
		delete(c.last, of)
	}
}

// Older compares resourceVersions of one kind. Kubernetes promises that they are whole numbers that grow; where one is
// not, nothing is said to be older.
func Older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}
