package store

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Options are the options of a server.
type Options struct {
	// Definitions of custom kinds; nil: none.
	Definitions *Definitions
	// Scheme contains the types that clients use.
	Scheme *runtime.Scheme
	// Now is the time of the server.
	Now func() time.Time
	// OnWrite is called with every change, before its writer receives the response; nil: it is not called.
	OnWrite func(*Event)
	// Hook is called before and after every call; nil: no call fails.
	Hook Hook
}

// Server contains the current state. It must not be used concurrently.
type Server struct {
	options Options
	kinds   map[schema.GroupKind]*kind
	objects map[schema.GroupKind]*collection
	mapper  *meta.DefaultRESTMapper

	revision    uint64
	objectCount uint64 // objects, for UIDs
	lowUID      bool   // the next object gets a lower UID than others
	nameCount   uint64 // names
	events      []*Event
	requests    map[Request]int
}

// collection contains all objects of a kind, and their history.
type collection struct {
	objects map[types.NamespacedName]*Version
	keys    []types.NamespacedName // sorted
	events  []*Event
}

// EventType is the type of a change.
type EventType string

// The types of events.
const (
	Added    EventType = "added"
	Modified EventType = "modified"
	Deleted  EventType = "deleted"
)

// Event is one change of one object.
type Event struct {
	Type EventType
	Kind schema.GroupKind
	Key  types.NamespacedName
	// Old is nil for a created object. New is, for a deleted object, its last state with the revision of the deletion.
	Old, New *Version
	Revision uint64
	// Actor made the write, with a Verb and to a Subresource; empty: the object.
	Actor, Verb, Subresource string
	Basis                    Basis
	At                       time.Time
}

// Basis is the state on which a writer based its decision, as named in the request. Empty fields were not named.
type Basis struct {
	ResourceVersion, UID string
}

// Request is the key by which requests are counted.
type Request struct {
	Actor, Verb string
	Kind        schema.GroupKind
	Subresource string
	Cached      bool
}

// New returns an empty server. It fails if a definition does not compile.
func New(options Options) (*Server, error) {
	s := &Server{
		options: options, kinds: map[schema.GroupKind]*kind{}, objects: map[schema.GroupKind]*collection{}, requests: map[Request]int{},
	}
	for _, k := range builtins() {
		s.kinds[k.GroupKind] = k
	}
	if options.Definitions != nil {
		for _, definition := range options.Definitions.kinds {
			k, err := definition.kind()
			if err != nil {
				return nil, err
			}
			s.kinds[k.GroupKind] = k
		}
	}
	s.remap()
	return s, nil
}

// Uninstall removes a kind with all its objects, as if its definition were deleted.
func (s *Server) Uninstall(kind schema.GroupKind) {
	for _, v := range s.All(kind) {
		s.commit(writer{actor: "apiserver", verb: Delete}, v.kind, v.key, withField(v.content, "", nil), v, Deleted)
	}
	delete(s.kinds, kind)
	s.remap()
}

// Install adds a kind again.
func (s *Server) Install(kind schema.GroupKind) error {
	definition, found := s.options.Definitions.kinds[kind]
	if !found {
		return fmt.Errorf("%s has no definition here", kind)
	}
	k, err := definition.kind()
	if err != nil {
		return err
	}
	s.kinds[kind] = k
	s.remap()
	return nil
}

func (s *Server) remap() {
	s.mapper = meta.NewDefaultRESTMapper(nil)
	for _, k := range s.kinds {
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		for _, version := range k.versions {
			s.mapper.AddSpecific(k.WithVersion(version), k.resource().WithVersion(version), k.resource().WithVersion(version), scope)
		}
	}
}

// kind returns a kind that is served in a version.
func (s *Server) kind(gvk schema.GroupVersionKind) (*kind, error) {
	k, found := s.kinds[gvk.GroupKind()]
	if !found || !k.serves(gvk.Version) {
		return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	return k, nil
}

func (s *Server) collection(kind schema.GroupKind) *collection {
	c := s.objects[kind]
	if c == nil {
		c = &collection{objects: map[types.NamespacedName]*Version{}}
		s.objects[kind] = c
	}
	return c
}

// SetHook replaces the hook.
func (s *Server) SetHook(hook Hook) { s.options.Hook = hook }

// Revision returns the revision of the last change.
func (s *Server) Revision() uint64 { return s.revision }

// Events returns all changes, the oldest first.
func (s *Server) Events() []*Event { return s.events }

// Requests returns the number of all calls so far, including failed ones. The map must not be modified.
func (s *Server) Requests() map[Request]int { return s.requests }

// Peek returns the current object, or nil. It is for observers of a simulation, and is not counted as a request.
func (s *Server) Peek(kind schema.GroupKind, key types.NamespacedName) *Version {
	if c := s.objects[kind]; c != nil {
		return c.objects[key]
	}
	return nil
}

// All returns all objects of a kind, sorted by namespace and name. It is not counted as a request.
func (s *Server) All(kind schema.GroupKind) []*Version {
	c := s.objects[kind]
	if c == nil {
		return nil
	}
	out := make([]*Version, 0, len(c.keys))
	for _, key := range c.keys {
		out = append(out, c.objects[key])
	}
	return out
}

// Kinds returns the kinds that have or had objects, sorted.
func (s *Server) Kinds() []schema.GroupKind {
	kinds := make([]schema.GroupKind, 0, len(s.objects))
	for kind := range s.objects {
		kinds = append(kinds, kind)
	}
	return sortKinds(kinds)
}

func sortKinds(kinds []schema.GroupKind) []schema.GroupKind {
	slices.SortFunc(kinds, func(a, b schema.GroupKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	return kinds
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// set stores an object, or removes it.
func (c *collection) set(key types.NamespacedName, v *Version) {
	at, found := slices.BinarySearchFunc(c.keys, key, compareKeys)
	switch {
	case v == nil && found:
		c.keys = slices.Delete(c.keys, at, at+1)
		delete(c.objects, key)
		return
	case v == nil:
		return
	case !found:
		c.keys = slices.Insert(c.keys, at, key)
	}
	c.objects[key] = v
}

// writer is the actor of a write, and how it writes.
type writer struct {
	actor, verb, subresource string
	basis                    Basis
	dry                      bool
}

// commit stores a content as the newest version of its object. The server owns the content afterwards.
func (s *Server) commit(w writer, k *kind, key types.NamespacedName, content map[string]any, old *Version, what EventType) *Version {
	revision := s.revision + 1
	content["metadata"] = withField(object(content, "metadata"), "resourceVersion", revisionText(revision))
	v := &Version{kind: k, key: key, content: content, revision: revision, before: old}
	if w.dry {
		return v
	}
	s.revision = revision
	c := s.collection(k.GroupKind)
	if what == Deleted {
		c.set(key, nil)
	} else {
		c.set(key, v)
	}
	event := &Event{
		Type: what, Kind: k.GroupKind, Key: key, Old: old, New: v, Revision: revision,
		Actor: w.actor, Verb: w.verb, Subresource: w.subresource, Basis: w.basis, At: s.options.Now(),
	}
	c.events = append(c.events, event)
	s.events = append(s.events, event)
	if s.options.OnWrite != nil {
		s.options.OnWrite(event)
	}
	return v
}

func (s *Server) count(c Call) {
	s.requests[Request{Actor: c.Actor, Verb: c.Verb, Kind: c.Kind, Subresource: c.Subresource, Cached: c.Cached}]++
}

func (s *Server) uid() string {
	s.objectCount++
	variant := "8000"
	if s.lowUID {
		s.lowUID, variant = false, "0000"
	}
	return fmt.Sprintf("00000000-0000-4000-%s-%012x", variant, s.objectCount)
}

// LowerNextUID makes the UID of the next object lower than those of the objects that exist. Those of a real API server are random.
func (s *Server) LowerNextUID() { s.lowUID = true }

// address returns a cluster IP, and nodePort a port, for a Service. They are derived from its name, so that the same Services
// receive the same values regardless of the number and the order of attempts to create them.
func (s *Server) address(key string) string {
	used := s.allocated(func(spec map[string]any) []any { return []any{spec["clusterIP"]} })
	for n := hash(key); ; n++ {
		if address := fmt.Sprintf("10.96.%d.%d", n/254%256, n%254+1); !used[address] {
			return address
		}
	}
}

func (s *Server) nodePort(key string, taken []any) int64 {
	used := s.allocated(func(spec map[string]any) []any {
		var ports []any
		for _, port := range items(spec, "ports") {
			ports = append(ports, port["nodePort"])
		}
		return ports
	})
	for n := hash(key); ; n++ {
		if port := int64(30000 + n%2768); !used[port] && !slices.Contains(taken, any(port)) {
			return port
		}
	}
}

// allocated returns the values that Services have.
func (s *Server) allocated(of func(spec map[string]any) []any) map[any]bool {
	used := map[any]bool{}
	for _, v := range s.All(schema.GroupKind{Kind: "Service"}) {
		for _, value := range of(object(v.content, "spec")) {
			used[value] = true
		}
	}
	return used
}

func hash(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum32()
}

func revisionText(revision uint64) string { return strconv.FormatUint(revision, 10) }
