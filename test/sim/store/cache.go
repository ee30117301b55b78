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

// CacheOptions are the options of a cache.
type CacheOptions struct {
	// ListLag returns by how many events the first list of a kind is outdated; nil: by none.
	ListLag func(schema.GroupKind) int
	// Started receives the first list of a kind whose watch was started by a read or a write; nil: it is ignored.
	Started func(schema.GroupKind, []Change)
	// Await is called when a read has to wait until the cache has observed a write. It delivers an event, or fails; the cache
	// then checks again. If nil, such reads fail.
	Await func(context.Context, Wait) error
}

// Wait describes what a read waits for.
type Wait struct {
	Kind schema.GroupKind
	// Key has no name for lists.
	Key types.NamespacedName
	// Revision is the revision that must be observed, zero for none, and UIDs are the objects whose deletion must be observed,
	// sorted.
	Revision uint64
	Gone     []types.UID
}

// Change is a change of one object that a cache observed.
type Change struct {
	Kind schema.GroupKind
	Key  types.NamespacedName
	// Old is nil for objects that were not known, New for objects that are gone.
	Old, New *Version
	// Missed is true if the deletion itself was not observed: a list no longer contained the object.
	Missed bool
}

func (c Change) String() string { return fmt.Sprintf("%s %s → %s", c.Key, c.Old, c.New) }

// Object returns the object with which handlers of the change are called: the new one, or the last that was known.
func (c Change) Object() *Version {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// Watch is a watch of one kind in one representation.
type Watch struct {
	Kind           schema.GroupKind
	Representation Representation
}

// Cache is what one process has observed of a server. It has a view of each kind, which lags independently and advances only on
// request. All representations of a kind share its view.
type Cache struct {
	server  *Server
	options CacheOptions
	views   map[schema.GroupKind]*view
	watches map[Watch]bool
	indexes map[schema.GroupKind]map[string]client.IndexerFunc
}

// view is the observed state of one kind.
type view struct {
	collection
	// next is the first event that has not been delivered.
	next int
	// seen is the highest revision of an event that was ever delivered; gone are the deletions that were observed.
	seen         uint64
	gone         map[types.UID]bool
	disconnected bool
}

// NewCache returns the cache of a process that has just started.
func (s *Server) NewCache(options CacheOptions) *Cache {
	return &Cache{
		server: s, options: options, views: map[schema.GroupKind]*view{}, watches: map[Watch]bool{},
		indexes: map[schema.GroupKind]map[string]client.IndexerFunc{},
	}
}

// Start starts the watch of a kind, with a list that is outdated by some events. It does nothing if the kind is already
// watched.
func (c *Cache) Start(kind schema.GroupKind, behind int) []Change {
	if c.views[kind] != nil {
		return nil
	}
	c.views[kind] = &view{collection: collection{objects: map[types.NamespacedName]*Version{}}, gone: map[types.UID]bool{}}
	return c.Relist(kind, behind)
}

// watch starts the watch of a kind that a read or a write needs.
func (c *Cache) watch(kind schema.GroupKind, as Representation) *view {
	c.watches[Watch{kind, as}] = true
	if v := c.views[kind]; v != nil {
		return v
	}
	behind := 0
	if c.options.ListLag != nil {
		behind = c.options.ListLag(kind)
	}
	changes := c.Start(kind, behind)
	if c.options.Started != nil {
		c.options.Started(kind, changes)
	}
	return c.views[kind]
}

// Watched returns the watches that reads and writes have started, sorted.
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

// Watches reports whether a kind is watched.
func (c *Cache) Watches(kind schema.GroupKind) bool { return c.views[kind] != nil }

// Kinds returns the watched kinds, sorted.
func (c *Cache) Kinds() []schema.GroupKind {
	kinds := make([]schema.GroupKind, 0, len(c.views))
	for kind := range c.views {
		kinds = append(kinds, kind)
	}
	return sortKinds(kinds)
}

// Waiting returns the kinds with undelivered events, sorted.
func (c *Cache) Waiting() []schema.GroupKind {
	return slices.DeleteFunc(c.Kinds(), func(kind schema.GroupKind) bool { return c.Pending(kind) == 0 })
}

// Pending returns the number of undelivered events of a kind.
func (c *Cache) Pending(kind schema.GroupKind) int {
	v := c.views[kind]
	if v == nil || v.disconnected {
		return 0
	}
	return len(c.server.collection(kind).events) - v.next
}

// Deliver delivers the next events of a kind, in order, and returns the changes.
func (c *Cache) Deliver(kind schema.GroupKind, events int) []Change {
	var changes []Change
	for range min(events, c.Pending(kind)) {
		v := c.views[kind]
		event := c.server.collection(kind).events[v.next]
		v.next++
		if change, ok := v.apply(event); ok {
			changes = append(changes, change)
		}
	}
	return changes
}

// Upcoming returns the changes of a kind that have not been delivered.
func (c *Cache) Upcoming(kind schema.GroupKind) []Change {
	v := c.views[kind]
	if v == nil {
		return nil
	}
	var changes []Change
	for _, event := range c.server.collection(kind).events[v.next:] {
		change := Change{Kind: kind, Key: event.Key, Old: v.objects[event.Key], New: event.New}
		if event.Type == Deleted {
			change.Old, change.New = event.New, nil
		}
		changes = append(changes, change)
	}
	return changes
}

// apply applies an event to the view. Like an informer, it does not compare versions.
func (v *view) apply(event *Event) (Change, bool) {
	v.seen = max(v.seen, event.Revision)
	change := Change{Kind: event.Kind, Key: event.Key, Old: v.objects[event.Key]}
	if event.Type == Deleted {
		v.gone[event.New.UID()] = true
		if change.Old == nil {
			return change, false // an unknown object cannot be deleted
		}
		v.set(event.Key, nil)
		return change, true
	}
	change.New = event.New
	v.set(event.Key, event.New)
	return change, true
}

// Coalesce delivers the next events of a kind and returns, for each object, only its first and its last state, as a busy
// reconciler observes them.
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

// Rewind makes the last events of a kind pending again, as after a reconnection to a server that is behind. The content of the
// cache does not change until they are delivered. It returns the number of these events.
func (c *Cache) Rewind(kind schema.GroupKind, events int) int {
	v := c.views[kind]
	if v == nil {
		return 0
	}
	back := min(events, v.next)
	v.next -= back
	return back
}

// Relist replaces the view of a kind by a list that is outdated by some events, and may be older than the view. Deletions are
// observed as absence only.
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

// replace replaces the view by a list, and returns the differences.
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

// Disconnect stops the watch of a kind: no events are pending until it is resumed.
func (c *Cache) Disconnect(kind schema.GroupKind) {
	if v := c.views[kind]; v != nil {
		v.disconnected = true
	}
}

// Resume continues a disconnected watch. A Relist before it simulates a reconnection after which the events were no longer
// available.
func (c *Cache) Resume(kind schema.GroupKind) {
	if v := c.views[kind]; v != nil {
		v.disconnected = false
	}
}

// Objects returns the objects of a kind in the cache.
func (c *Cache) Objects(kind schema.GroupKind) []*Version {
	v := c.views[kind]
	if v == nil {
		return nil
	}
	var objects []*Version
	for _, key := range v.keys {
		if object := v.objects[key]; object != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

// Peek returns an object in the cache, or nil.
func (c *Cache) Peek(kind schema.GroupKind, key types.NamespacedName) *Version {
	if v := c.views[kind]; v != nil {
		return v.objects[key]
	}
	return nil
}

// IndexField implements client.FieldIndexer. The index is evaluated at each read, because there are few objects.
func (c *Cache) IndexField(_ context.Context, obj client.Object, field string, index client.IndexerFunc) error {
	gvk, k, err := (&serverClient{server: c.server}).kindOf(obj)
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

// indexed returns the versions for which an index has a value.
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
