package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheOptions say how a cache behaves.
type CacheOptions struct {
	// Behind is by how many events of its kind the first list of a kind is old; nil: by none.
	Behind func(schema.GroupKind) int
	// Started receives the first list of a kind, when a read or a write began to watch it; nil: it is ignored.
	Started func(schema.GroupKind, []Change)
	// Await is called when a read has to wait until the cache has seen a write. It delivers something, or fails; the
	// cache looks again afterwards. nil: such reads fail.
	Await func(context.Context, Wait) error
}

// Wait is what a read waits for.
type Wait struct {
	Kind schema.GroupKind
	// Key has no name for lists.
	Key types.NamespacedName
	// Revision to be seen, zero for none, and UIDs whose deletion has to be seen, sorted.
	Revision uint64
	Gone     []types.UID
}

// Change is what a cache learned of one object.
type Change struct {
	Kind schema.GroupKind
	Key  types.NamespacedName
	// Old is nil for objects that were not known, New for those that are gone.
	Old, New *Version
	// Missed is true where the deletion itself was not seen: a list did not have the object any more.
	Missed bool
}

func (c Change) String() string { return fmt.Sprintf("%s %s → %s", c.Key, c.Old, c.New) }

// Object that handlers of the change are called with: the new one, or the last that was known.
func (c Change) Object() *Version {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// Watch is one kind in one representation.
type Watch struct {
	Kind           schema.GroupKind
	Representation Representation
}

// Cache is what one process has seen of a server: a view for each kind, that lags on its own and moves only when it is
// told to. A view is the same for all representations of its kind.
type Cache struct {
	server  *Server
	options CacheOptions
	views   map[schema.GroupKind]*view
	watches map[Watch]bool
	indexes map[schema.GroupKind]map[string]client.IndexerFunc
}

// view is what is known of one kind.
type view struct {
	collection
	// next is the first event that was not delivered.
	next int
	// seen is the highest revision of an event that was ever delivered; gone are deletions that were seen.
	seen         uint64
	gone         map[types.UID]bool
	disconnected bool
}

// NewCache makes the cache of a process that has just started.
func (s *Server) NewCache(options CacheOptions) *Cache {
	return &Cache{
		server: s, options: options, views: map[schema.GroupKind]*view{}, watches: map[Watch]bool{},
		indexes: map[schema.GroupKind]map[string]client.IndexerFunc{},
	}
}

// Start begins to watch a kind, with a list that is behind by some events. It does nothing where the kind is watched.
func (c *Cache) Start(kind schema.GroupKind, behind int) []Change {
	if c.views[kind] != nil {
		return nil
	}
	c.views[kind] = &view{collection: collection{objects: map[types.NamespacedName]*Version{}}, gone: map[types.UID]bool{}}
	return c.Relist(kind, behind)
}

// watch is Start for reads and writes that need the kind.
func (c *Cache) watch(kind schema.GroupKind, as Representation) *view {
	c.watches[Watch{kind, as}] = true
	if v := c.views[kind]; v != nil {
		return v
	}
	behind := 0
	if c.options.Behind != nil {
		behind = c.options.Behind(kind)
	}
	changes := c.Start(kind, behind)
	if c.options.Started != nil {
		c.options.Started(kind, changes)
	}
	return c.views[kind]
}

// Watched is what reads and writes have begun to watch, sorted.
func (c *Cache) Watched() []Watch {
	watches := make([]Watch, 0, len(c.watches))
	for watch := range c.watches {
		watches = append(watches, watch)
	}
	slices.SortFunc(watches, func(a, b Watch) int {
		return cmp.Or(cmp.Compare(a.Kind.Group, b.Kind.Group), cmp.Compare(a.Kind.Kind, b.Kind.Kind), cmp.Compare(a.Representation, b.Representation))
	})
	return watches
}

// Watches is true for kinds that are watched.
func (c *Cache) Watches(kind schema.GroupKind) bool { return c.views[kind] != nil }

// Kinds that are watched, sorted.
func (c *Cache) Kinds() []schema.GroupKind {
	kinds := make([]schema.GroupKind, 0, len(c.views))
	for kind := range c.views {
		kinds = append(kinds, kind)
	}
	return sortKinds(kinds)
}

// Waiting are the kinds that have something to deliver, sorted.
func (c *Cache) Waiting() []schema.GroupKind {
	return slices.DeleteFunc(c.Kinds(), func(kind schema.GroupKind) bool { return c.Pending(kind) == 0 })
}

// Pending is how many events of a kind could be delivered.
func (c *Cache) Pending(kind schema.GroupKind) int {
	v := c.views[kind]
	if v == nil || v.disconnected {
		return 0
	}
	return len(c.server.collection(kind).events) - v.next
}

// Deliver gives the cache the next events of a kind, in order, and returns what each of them changed.
func (c *Cache) Deliver(kind schema.GroupKind, events int) []Change {
	var changes []Change
	for range min(events, c.Pending(kind)) {
		v := c.views[kind]
		event := c.server.collection(kind).events[v.next]
		v.next++
		if change, ok := v.take(event); ok {
			changes = append(changes, change)
		}
	}
	return changes
}

// take makes an event part of the view. An informer does not compare versions: it believes what comes.
func (v *view) take(event *Event) (Change, bool) {
	v.seen = max(v.seen, event.Revision)
	change := Change{Kind: event.Kind, Key: event.Key, Old: v.objects[event.Key]}
	if event.Type == Deleted {
		v.gone[event.New.UID()] = true
		if change.Old == nil {
			return change, false // what is not known cannot go
		}
		v.set(event.Key, nil)
		return change, true
	}
	change.New = event.New
	v.set(event.Key, event.New)
	return change, true
}

// Coalesce gives the cache the next events of a kind and returns, for each object, only its first and its last state.
// A reconciler that was busy meanwhile sees no more.
func (c *Cache) Coalesce(kind schema.GroupKind, events int) []Change {
	var keys []types.NamespacedName
	first := map[types.NamespacedName]Change{}
	for _, change := range c.Deliver(kind, events) {
		known, found := first[change.Key]
		if !found {
			keys = append(keys, change.Key)
			known = change
		}
		known.New = change.New
		first[change.Key] = known
	}
	var changes []Change
	for _, key := range keys {
		if change := first[key]; change.Old != change.New {
			changes = append(changes, change)
		}
	}
	return changes
}

// Rewind makes the last events of a kind come once more, as after a reconnect to a server that is behind. What the cache
// holds does not change before they do. It gives back how many events these are.
func (c *Cache) Rewind(kind schema.GroupKind, events int) int {
	v := c.views[kind]
	if v == nil {
		return 0
	}
	back := min(events, v.next)
	v.next -= back
	return back
}

// Relist replaces what is known of a kind by a list that is behind the truth by some events, and may be older than what
// was known. Deletions are seen as absence only.
func (c *Cache) Relist(kind schema.GroupKind, behind int) []Change {
	v := c.views[kind]
	if v == nil {
		return nil
	}
	events := c.server.collection(kind).events
	v.next = max(len(events)-behind, 0)
	list := collection{objects: map[types.NamespacedName]*Version{}}
	for _, event := range events[:v.next] {
		if event.Type == Deleted {
			list.set(event.Key, nil)
		} else {
			list.set(event.Key, event.New)
		}
	}
	changes := v.replace(kind, list)
	v.collection = list
	return changes
}

// replace reports how a list differs from the view.
func (v *view) replace(kind schema.GroupKind, list collection) []Change {
	var changes []Change
	for _, key := range list.keys {
		old, now := v.objects[key], list.objects[key]
		v.seen = max(v.seen, now.revision)
		if old != now {
			changes = append(changes, Change{Kind: kind, Key: key, Old: old, New: now})
		}
	}
	for _, key := range v.keys {
		if old := v.objects[key]; list.objects[key] == nil {
			v.seen = max(v.seen, old.revision)
			v.gone[old.UID()] = true
			changes = append(changes, Change{Kind: kind, Key: key, Old: old, Missed: true})
		}
	}
	return changes
}

// Disconnect stops a kind: nothing is pending until it is resumed.
func (c *Cache) Disconnect(kind schema.GroupKind) {
	if v := c.views[kind]; v != nil {
		v.disconnected = true
	}
}

// Resume continues where the kind was disconnected. A Relist before it is a reconnect whose events were gone.
func (c *Cache) Resume(kind schema.GroupKind) {
	if v := c.views[kind]; v != nil {
		v.disconnected = false
	}
}

// Peek is an object as the cache has it, nil when it has none.
func (c *Cache) Peek(kind schema.GroupKind, key types.NamespacedName) *Version {
	if v := c.views[kind]; v != nil {
		return v.objects[key]
	}
	return nil
}

// IndexField implements client.FieldIndexer. Objects are looked through at each read: there are few.
func (c *Cache) IndexField(_ context.Context, obj client.Object, field string, index client.IndexerFunc) error {
	gvk, k, err := (&live{server: c.server}).kindOf(obj)
	if err != nil {
		return err
	}
	if c.indexes[k.GroupKind] == nil {
		c.indexes[k.GroupKind] = map[string]client.IndexerFunc{}
	}
	if c.indexes[k.GroupKind][field] != nil {
		return fmt.Errorf("indexer conflict: %s has an index %s", gvk, field)
	}
	c.indexes[k.GroupKind][field] = index
	return nil
}

// indexed keeps the versions that an index gives a value for.
func (c *Cache) indexed(kind schema.GroupKind, field, value string, versions []*Version) ([]*Version, error) {
	index := c.indexes[kind][field]
	if index == nil {
		return nil, fmt.Errorf("index with name field:%s does not exist", field)
	}
	var found []*Version
	for _, v := range versions {
		typed, err := v.Typed(c.server.options.Scheme)
		if err != nil {
			return nil, err
		}
		if slices.Contains(index(typed), value) {
			found = append(found, v)
		}
	}
	return found, nil
}

var errNobodyDelivers = errors.New("the cache is behind, and nothing delivers events")
