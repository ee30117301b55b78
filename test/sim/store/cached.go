package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadYourWrites determines whether reads of a cache wait until it has observed the previous writes of the same client.
type ReadYourWrites int

const (
	// Never does not wait.
	Never ReadYourWrites = iota
	// AsLibrary waits like controller-runtime's EnableReadYourWritesConsistency. That library remembers writes by
	// representation. It treats an unstructured object as a typed one when it is created, updated or patched, but not when it
	// is read or deleted. Reads of unstructured objects therefore wait for deletions only.
	AsLibrary
	// Always waits for all representations, as that library documents.
	Always
)

// Client returns the client of the process with this cache. It reads from the cache and writes to the server.
func (c *Cache) Client(actor string, mode ReadYourWrites) client.Client {
	return &cachedClient{serverClient: &serverClient{server: c.server, actor: actor}, cache: c, mode: mode, written: map[Watch]*pendingWrites{}}
}

// cachedClient is a client with a cache.
type cachedClient struct {
	*serverClient
	cache   *Cache
	mode    ReadYourWrites
	written map[Watch]*pendingWrites
}

var _ client.Client = &cachedClient{}

// pendingWrites is what has to be observed before reads of one kind are answered.
type pendingWrites struct {
	least   map[types.NamespacedName]uint64
	deleted map[types.NamespacedName][]types.UID
}

// writesOf returns the record of writes of a kind in a representation.
func (c *cachedClient) writesOf(kind schema.GroupKind, as Representation) *pendingWrites {
	if c.mode == Always {
		as = ""
	}
	watch := Watch{kind, as}
	if c.written[watch] == nil {
		c.written[watch] = &pendingWrites{least: map[types.NamespacedName]uint64{}, deleted: map[types.NamespacedName][]types.UID{}}
	}
	return c.written[watch]
}

// Get implements client.Reader.
func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	key = k.keyOf(key)
	options := (&client.GetOptions{}).ApplyOptions(opts)
	v := c.cache.watch(k.GroupKind, representation(obj))
	call := c.call(Get, k, key, "")
	call.Cached = true
	var found *Version
	err = c.execute(call, func() error {
		if !options.DisableReadYourWritesConsistency {
			if err := c.await(ctx, k.GroupKind, representation(obj), key); err != nil {
				return err
			}
		}
		if found = v.objects[key]; found == nil {
			return apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.Kind}, key.Name) // the error of a cache
		}
		return nil
	})
	if err != nil {
		return err
	}
	shared := options.UnsafeDisableDeepCopy != nil && *options.UnsafeDisableDeepCopy
	return reader{scheme: c.Scheme(), cached: true, shared: shared}.into(found, gvk, obj)
}

// List implements client.Reader.
func (c *cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, k, err := c.kindOf(list)
	if err != nil {
		return err
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.Continue != "" {
		return errors.New("continue list option is not supported by the cache")
	}
	v := c.cache.watch(k.GroupKind, representation(list))
	call := c.call(List, k, types.NamespacedName{Namespace: options.Namespace}, "")
	call.Cached = true
	var found []*Version
	err = c.execute(call, func() error {
		if !options.DisableReadYourWritesConsistency {
			if err := c.await(ctx, k.GroupKind, representation(list), types.NamespacedName{}); err != nil {
				return err
			}
		}
		found, err = c.cache.list(v, k.GroupKind, options)
		return err
	})
	if err != nil {
		return err
	}
	shared := options.UnsafeDisableDeepCopy != nil && *options.UnsafeDisableDeepCopy
	return reader{scheme: c.Scheme(), cached: true, shared: shared}.intoList(found, v.seen, gvk, list)
}

func (c *Cache) list(v *view, kind schema.GroupKind, options *client.ListOptions) ([]*Version, error) {
	var found []*Version
	for _, key := range v.keys {
		if object := v.objects[key]; object != nil && selects(options, object) {
			found = append(found, object)
		}
	}
	if options.FieldSelector != nil {
		for _, requirement := range options.FieldSelector.Requirements() {
			var err error
			if found, err = c.indexed(kind, requirement.Field, requirement.Value, found); err != nil {
				return nil, err
			}
		}
	}
	if options.Limit > 0 && int64(len(found)) > options.Limit {
		found = found[:options.Limit]
	}
	return found, nil
}

// await returns once the cache has observed the writes of this client: of one object or, without a name, of a kind.
func (c *cachedClient) await(ctx context.Context, kind schema.GroupKind, as Representation, key types.NamespacedName) error {
	if c.mode == Never {
		return nil
	}
	view, noted := c.cache.views[kind], c.writesOf(kind, as)
	wait := Wait{Kind: kind, Key: key}
	for of, revision := range noted.least {
		if revision <= view.seen {
			delete(noted.least, of)
		} else if of == key || key.Name == "" {
			wait.Revision = max(wait.Revision, revision)
		}
	}
	for of, uids := range noted.deleted {
		if of == key || key.Name == "" {
			wait.Gone = append(wait.Gone, uids...)
		}
	}
	slices.Sort(wait.Gone)
	for !view.satisfies(wait) {
		if c.cache.options.Await == nil {
			return fmt.Errorf("failed to wait for cache to catch up: %w", errNobodyDelivers)
		}
		if err := cmp.Or(ctx.Err(), c.cache.options.Await(ctx, wait)); err != nil {
			return fmt.Errorf("failed to wait for cache to catch up: %w", err)
		}
	}
	for of, uids := range noted.deleted {
		if uids = slices.DeleteFunc(uids, func(uid types.UID) bool { return view.gone[uid] }); len(uids) == 0 {
			delete(noted.deleted, of)
		} else {
			noted.deleted[of] = uids
		}
	}
	return nil
}

func (v *view) satisfies(wait Wait) bool {
	return v.seen >= wait.Revision && !slices.ContainsFunc(wait.Gone, func(uid types.UID) bool { return !v.gone[uid] })
}

// recordWrite executes one write and, once it was answered, records what reads have to wait for.
func (c *cachedClient) recordWrite(obj client.Object, disabled bool, write func() error) error {
	if c.mode == Never || disabled {
		return write()
	}
	_, k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	view := c.cache.watch(k.GroupKind, representation(obj))
	if err := write(); err != nil {
		return err
	}
	revision, err := parseVersion(obj.GetResourceVersion())
	if err != nil {
		return err
	}
	if revision > view.seen {
		as := representation(obj)
		if as == Generic {
			as = Typed // see AsLibrary
		}
		noted, key := c.writesOf(k.GroupKind, as), client.ObjectKeyFromObject(obj)
		noted.least[key] = max(noted.least[key], revision)
	}
	return nil
}

// Create implements client.Writer.
func (c *cachedClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	return c.recordWrite(obj, options.DisableReadYourWritesConsistency, func() error { return c.serverClient.Create(ctx, obj, opts...) })
}

// Update implements client.Writer.
func (c *cachedClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	options := (&client.UpdateOptions{}).ApplyOptions(opts)
	return c.recordWrite(obj, options.DisableReadYourWritesConsistency, func() error { return c.serverClient.Update(ctx, obj, opts...) })
}

// Patch implements client.Writer.
func (c *cachedClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	options := (&client.PatchOptions{}).ApplyOptions(opts)
	return c.recordWrite(obj, options.DisableReadYourWritesConsistency, func() error { return c.serverClient.Patch(ctx, obj, patch, opts...) })
}

// Delete implements client.Writer. The deleted object is identified by its UID; if the caller does not set it, it is read from
// the cache.
func (c *cachedClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if c.mode == Never || options.DisableReadYourWritesConsistency {
		return c.serverClient.Delete(ctx, obj, opts...)
	}
	_, k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	view, key := c.cache.watch(k.GroupKind, representation(obj)), k.keyOf(client.ObjectKeyFromObject(obj))
	uid := obj.GetUID()
	if p := options.Preconditions; p != nil && p.UID != nil {
		uid = *p.UID
	}
	if uid == "" {
		known := view.objects[key]
		if known == nil {
			return apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.Kind}, key.Name)
		}
		uid = known.UID()
	}
	left, gone, err := c.delete(obj, opts)
	if err != nil {
		return err
	}
	noted := c.writesOf(k.GroupKind, representation(obj))
	if gone {
		noted.deleted[key] = append(noted.deleted[key], uid)
	} else if left.revision > view.seen {
		noted.least[key] = max(noted.least[key], left.revision)
	}
	return nil
}

// DeleteAllOf implements client.Writer.
func (c *cachedClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	if c.mode != Never {
		return errors.New("DeleteAllOf is not supported by clients that read their writes: list, and delete each")
	}
	return c.serverClient.DeleteAllOf(ctx, obj, opts...)
}

// Status implements client.Client.
func (c *cachedClient) Status() client.SubResourceWriter { return c.SubResource(statusOf) }

// SubResource implements client.Client.
func (c *cachedClient) SubResource(name string) client.SubResourceClient {
	return &cachedSubresource{SubResourceClient: c.serverClient.SubResource(name), client: c}
}

type cachedSubresource struct {
	client.SubResourceClient
	client *cachedClient
}

// Update implements client.SubResourceWriter.
func (r *cachedSubresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	options := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	return r.client.recordWrite(obj, options.DisableReadYourWritesConsistency, func() error { return r.SubResourceClient.Update(ctx, obj, opts...) })
}

// Patch implements client.SubResourceWriter.
func (r *cachedSubresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	return r.client.recordWrite(obj, options.DisableReadYourWritesConsistency, func() error { return r.SubResourceClient.Patch(ctx, obj, patch, opts...) })
}
