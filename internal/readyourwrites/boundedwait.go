package readyourwrites

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// AfterFunc calls f once after d, unless stop is called before. It is that of package time, or of a simulated clock.
type AfterFunc func(d time.Duration, f func()) (stop func() bool)

// WithBoundedWait wraps a client that waits until its cache has observed its own writes, so that no read waits for something that
// the cache will never observe. live reads from the API server.
//
// The client of controller-runtime waits for the version that a write returned, or for the event of a deletion. If a watch ends
// before it has delivered that version and the object is deleted meanwhile, the next list of the cache does not contain it: the
// client would wait until another object of that kind changes, in a quiet cluster for hours. Therefore the objects that were
// written are compared with the API server every five seconds, and the wait ends when the cache contains their current state.
// Reads that have nothing to wait for bypass the library, which makes them cheaper.
func WithBoundedWait(waiting client.Client, apiReader client.Reader, clk clock.PassiveClock, after AfterFunc) client.Client {
	return &boundedClient{Client: waiting, apiReader: apiReader, clock: clk, after: after, pending: map[watchedKind]pendingWrites{}}
}

type boundedClient struct {
	client.Client
	apiReader client.Reader
	clock     clock.PassiveClock
	after     AfterFunc

	mu        sync.Mutex
	pending   map[watchedKind]pendingWrites
	lastSweep time.Time
}

// pendingWrites are the writes that the library may wait for. They are removed by the first read that has observed them, and
// expire if nothing reads their objects.
type pendingWrites map[types.NamespacedName]pendingWrite

// pendingWrite is a write of one object. A deletion has no version.
type pendingWrite struct {
	version string
	at      time.Time
}

// watchedKind is a kind in one representation. Each representation has a cache of its own.
type watchedKind struct {
	kind           schema.GroupVersionKind
	representation representation
}

type representation int

const (
	typed representation = iota
	unstructuredContent
	metadataOnly
)

func representationOf(object any) representation {
	switch object.(type) {
	case *unstructured.Unstructured, *unstructured.UnstructuredList:
		return unstructuredContent
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return metadataOnly
	default:
		return typed
	}
}

// Get implements client.Client. It returns the errors of the wrapped client.
func (c *boundedClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if (&client.GetOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency {
		return c.Client.Get(ctx, key, into, options...)
	}
	kind, err := apiutil.GVKForObject(into, c.Scheme())
	if err != nil {
		return fmt.Errorf("determine the kind of %T: %w", into, err)
	}
	watched := watchedKind{kind, representationOf(into)}
	return c.read(ctx, watched, c.pendingWriteOf(watched, key),
		func(ctx context.Context) error { return c.Client.Get(ctx, key, into, options...) },
		func() error {
			return c.Client.Get(ctx, key, into, append(slices.Clip(options), client.DisableReadYourWritesConsistency)...)
		})
}

// List implements client.Client. It returns the errors of the wrapped client.
func (c *boundedClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if (&client.ListOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency {
		return c.Client.List(ctx, list, options...)
	}
	kind, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return fmt.Errorf("determine the kind of %T: %w", list, err)
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	watched := watchedKind{kind, representationOf(list)}
	return c.read(ctx, watched, c.pendingWritesOf(watched),
		func(ctx context.Context) error { return c.Client.List(ctx, list, options...) },
		func() error {
			return c.Client.List(ctx, list, append(slices.Clip(options), client.DisableReadYourWritesConsistency)...)
		})
}

// read reads immediately if no write is awaited. Otherwise it waits, and from time to time compares the awaited objects with the
// API server.
func (c *boundedClient) read(
	ctx context.Context, watched watchedKind, awaited pendingWrites, wait func(context.Context) error, immediately func() error,
) error {
	for len(awaited) > 0 {
		bounded, cancel := context.WithCancel(ctx)
		stop := c.after(cacheLagTimeout, cancel)
		err := wait(bounded)
		stop()
		expired := bounded.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil, apierrors.IsNotFound(err):
			c.dropPending(watched, awaited)
			return err
		case !expired:
			return err
		case c.areObserved(ctx, watched, awaited):
			c.dropPending(watched, awaited)
			awaited = nil
		}
	}
	return immediately()
}

// areObserved reports whether it is certain that the cache has observed all of these writes.
func (c *boundedClient) areObserved(ctx context.Context, watched watchedKind, awaited pendingWrites) bool {
	for key, write := range awaited {
		if !c.isObserved(ctx, watched, key, write.version) {
			return false
		}
	}
	return true
}

// isObserved reports whether it is certain that the cache contains the written version of an object, a later one, or the current
// state of the API server.
func (c *boundedClient) isObserved(ctx context.Context, watched watchedKind, key types.NamespacedName, version string) bool {
	cached, err := c.emptyObject(watched)
	if err != nil {
		return false
	}
	errCached := c.Client.Get(ctx, key, cached, client.DisableReadYourWritesConsistency)
	if errCached == nil && version != "" && !IsOlder(cached.GetResourceVersion(), version) {
		return true
	}
	current := &metav1.PartialObjectMetadata{}
	current.SetGroupVersionKind(watched.kind)
	errCurrent := c.apiReader.Get(ctx, key, current)
	switch {
	case apierrors.IsNotFound(errCached):
		return apierrors.IsNotFound(errCurrent)
	case errCached == nil && errCurrent == nil:
		return !IsOlder(cached.GetResourceVersion(), current.ResourceVersion)
	default:
		return false
	}
}

func (c *boundedClient) emptyObject(watched watchedKind) (client.Object, error) {
	switch watched.representation {
	case unstructuredContent:
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(watched.kind)
		return object, nil
	case metadataOnly:
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(watched.kind)
		return object, nil
	default:
		created, err := c.Scheme().New(watched.kind)
		if err != nil {
			return nil, fmt.Errorf("create an empty object: %w", err)
		}
		object, ok := created.(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T is not an object", created)
		}
		return object, nil
	}
}

// pendingWriteOf returns the write of one object that the cache may not have observed yet.
func (c *boundedClient) pendingWriteOf(watched watchedKind, key types.NamespacedName) pendingWrites {
	c.mu.Lock()
	defer c.mu.Unlock()
	if write, found := c.pending[watched][key]; found {
		return pendingWrites{key: write}
	}
	return nil
}

// pendingWritesOf returns all writes of a kind that the cache may not have observed yet.
func (c *boundedClient) pendingWritesOf(watched watchedKind) pendingWrites {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.pending[watched])
}

// dropPending drops the writes that the cache has observed, unless newer ones have replaced them.
func (c *boundedClient) dropPending(watched watchedKind, observed pendingWrites) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.pending[watched], func(key types.NamespacedName, write pendingWrite) bool { return observed[key] == write })
}

// recordPending records a successful write.
func (c *boundedClient) recordPending(watched watchedKind, key types.NamespacedName, version string) {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[watched] == nil {
		c.pending[watched] = pendingWrites{}
	}
	c.pending[watched][key] = pendingWrite{version, now}
	if now.Sub(c.lastSweep) < writeRetention {
		return
	}
	c.lastSweep = now
	for _, writes := range c.pending {
		maps.DeleteFunc(writes, func(_ types.NamespacedName, write pendingWrite) bool { return now.Sub(write.at) >= writeRetention })
	}
}

// write executes a write and records it, if the library waits for it.
func (c *boundedClient) write(object client.Object, disabled bool, write func() error) error {
	if disabled {
		return write()
	}
	kind, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return fmt.Errorf("determine the kind of %T: %w", object, err)
	}
	if err := write(); err != nil {
		return err
	}
	as := representationOf(object)
	if as == unstructuredContent {
		as = typed // the library treats it as typed, but not when it is deleted
	}
	c.recordPending(watchedKind{kind, as}, client.ObjectKeyFromObject(object), object.GetResourceVersion())
	return nil
}

// Create implements client.Client.
func (c *boundedClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	disabled := (&client.CreateOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency
	return c.write(object, disabled, func() error { return c.Client.Create(ctx, object, options...) })
}

// Update implements client.Client.
func (c *boundedClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	disabled := (&client.UpdateOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency
	return c.write(object, disabled, func() error { return c.Client.Update(ctx, object, options...) })
}

// Patch implements client.Client.
func (c *boundedClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	disabled := (&client.PatchOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency
	return c.write(object, disabled, func() error { return c.Client.Patch(ctx, object, patch, options...) })
}

// Delete implements client.Client.
func (c *boundedClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	err := c.Client.Delete(ctx, object, options...)
	if err != nil || (&client.DeleteOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency {
		return err
	}
	kind, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return fmt.Errorf("determine the kind of %T: %w", object, err)
	}
	c.recordPending(watchedKind{kind, representationOf(object)}, client.ObjectKeyFromObject(object), "")
	return nil
}

// Status implements client.Client.
func (c *boundedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.Client.
func (c *boundedClient) SubResource(name string) client.SubResourceClient {
	return boundedSubResource{SubResourceClient: c.Client.SubResource(name), client: c}
}

type boundedSubResource struct {
	client.SubResourceClient
	client *boundedClient
}

// Update implements client.SubResourceWriter.
func (r boundedSubResource) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	disabled := (&client.SubResourceUpdateOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency
	return r.client.write(object, disabled, func() error { return r.SubResourceClient.Update(ctx, object, options...) })
}

// Patch implements client.SubResourceWriter.
func (r boundedSubResource) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	disabled := (&client.SubResourcePatchOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency
	return r.client.write(object, disabled, func() error { return r.SubResourceClient.Patch(ctx, object, patch, options...) })
}
