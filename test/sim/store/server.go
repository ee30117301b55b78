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

// Options of a server.
type Options struct {
	// Definitions of custom kinds; nil: none.
	Definitions *Definitions
	// Scheme has the types that clients ask for.
	Scheme *runtime.Scheme
	// Now is the time of the server.
	Now func() time.Time
	// OnWrite is called with every change, before its writer gets the response; nil: nothing is called.
	OnWrite func(*Event)
	// Hook is asked around every call; nil: nothing fails.
	Hook Hook
}

// Server is what is true. It is for one goroutine at a time.
type Server struct {
	options Options
	kinds   map[schema.GroupKind]*kind
	objects map[schema.GroupKind]*collection
	mapper  *meta.DefaultRESTMapper

	revision  uint64
	made      uint64 // objects, for UIDs
	generated uint64 // names
	events    []*Event
	requests  map[Request]int
}

// collection is all objects of a kind, and what happened to them.
type collection struct {
	objects map[types.NamespacedName]*Version
	keys    []types.NamespacedName // sorted
	events  []*Event
}

// EventType says what became of an object.
type EventType string

// Types of events.
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
	// Old is nil for what was added. New is, for what was deleted, the object as it was last, under the revision of its
	// deletion.
	Old, New *Version
	Revision uint64
	// Actor wrote it, with a Verb and on a Subresource; empty: the object.
	Actor, Verb, Subresource string
	Basis                    Basis
	At                       time.Time
}

// Basis is what a writer named as the state on which it decided. Empty fields were not named.
type Basis struct {
	ResourceVersion, UID string
}

// Request is what requests are counted by.
type Request struct {
	Actor, Verb string
	Kind        schema.GroupKind
	Subresource string
	Cached      bool
}

// New makes an empty server. It fails where a definition does not compile.
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

// Uninstall makes a kind unknown, as if its definition were deleted, with all objects.
func (s *Server) Uninstall(kind schema.GroupKind) {
	for _, v := range s.All(kind) {
		s.commit(writer{actor: "apiserver", verb: Delete}, v.kind, v.key, withField(v.content, "", nil), v, Deleted)
	}
	delete(s.kinds, kind)
	s.remap()
}

// Install makes a kind known again.
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

// kind finds a kind that is served in a version.
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

// SetHook changes who is asked around calls.
func (s *Server) SetHook(hook Hook) { s.options.Hook = hook }

// Revision of the last change.
func (s *Server) Revision() uint64 { return s.revision }

// Events are all changes, the oldest first.
func (s *Server) Events() []*Event { return s.events }

// Requests are the counts of all calls so far, failed ones included. They must not be changed.
func (s *Server) Requests() map[Request]int { return s.requests }

// Peek is an object as it is, nil when there is none. It is for those who watch over a simulation: it is no request.
func (s *Server) Peek(kind schema.GroupKind, key types.NamespacedName) *Version {
	if c := s.objects[kind]; c != nil {
		return c.objects[key]
	}
	return nil
}

// All objects of a kind, sorted by namespace and name. It is no request.
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

// Kinds that have or had objects, sorted.
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

// set puts an object in its place, or takes it away.
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

// writer is who writes, and how.
type writer struct {
	actor, verb, subresource string
	basis                    Basis
	dry                      bool
}

// commit makes a content the newest version of its object. The content becomes the server's.
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
	s.made++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", s.made)
}

// address is a cluster IP, and nodePort a port, for a Service. They follow from its name, so that the same Services end up
// with the same, however often and in whatever order someone tried to make them.
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

// allocated are the values that Services have.
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
	_, _ = h.Write([]byte(text)) // a hash takes everything
	return h.Sum32()
}

func revisionText(revision uint64) string { return strconv.FormatUint(revision, 10) }
