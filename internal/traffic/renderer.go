package traffic

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/serin-dev/serin/internal/release"
)

// Renderer converts a Route into the objects of one provider, and back. It is pure: it uses no client and no clock, and
// modifies neither the target nor existing objects.
//
// It is level-triggered: the caller gives the whole desired route each time, including the managed routes that are in
// force, and a result equal to the existing object is not written. Results are aligned with the existing objects. A result
// is complete: the existing object with the renderer's fields set, all other fields unchanged. Nil means that the object
// must not exist; to leave an object alone, the renderer returns it.
type Renderer interface {
	// Features are what the provider can do for this target. What is not declared is refused with ErrUnsupported.
	Features(t Target) Features
	// Refs are the objects of a route, in the order in which they are written, as far as they can be named from those that
	// were found already: it is called again until it names no more. A later answer begins with the earlier one.
	Refs(t Target, r release.Route, existing Objects) []Ref
	// Render returns the desired objects. Errors: ErrUnsupported, ErrInvalid, ErrNotOwned.
	Render(t Target, r release.Route, existing Objects) ([]*unstructured.Unstructured, error)
	// Read returns the route that the objects describe. Where several objects have different weights, it is the highest one
	// of the canary. An error is a route that cannot be understood.
	Read(t Target, existing Objects) (Observed, error)
	// Restore returns the user's objects as they were before the first change, with the fields that other tools added since, or,
	// where weights must remain, without what Serin added. Objects that were created for the release are unchanged, unless nothing else would delete them. With
	// ErrNoOriginal, the result contains what could be restored.
	Restore(t Target, existing Objects) ([]*unstructured.Unstructured, error)
}

// Validator is a Renderer that writes into objects of the user, and can find errors in them in advance.
type Validator interface {
	Validate(t Target, existing Objects) field.ErrorList
}

// ConfigValidator is a Renderer with a configuration that the API server does not validate: that of a built-in plugin.
type ConfigValidator interface {
	// ValidateConfig returns the error in the configuration. Errors: ErrInvalid.
	ValidateConfig(t Target) error
}

// Ref names one object that a renderer writes or reads.
type Ref struct {
	GVK schema.GroupVersionKind
	// Namespace is empty for kinds that have none.
	Namespace, Name string
	// Owned objects are created for the release. Other objects are the user's: they are never created and never deleted.
	Owned bool
	// Shared is true for an object of the user that the route is written into. Objects that are neither Owned nor Shared are
	// only read.
	Shared bool
	// Derived is true where the name is composed of other names, so that no user chose it for the route: an existing object
	// of that name that was not created for the release is never adopted.
	Derived bool
	// SelectsPods is true for an object from which a mesh learns about pods. It must exist before the pods do, and has no
	// weights.
	SelectsPods bool
	// Selector finds objects by their labels, where no name is given.
	Selector string
	// Events are the reasons of events about the object. Those of a Canary come from its state machine.
	Events EventReasons
}

// String names the object for messages: HTTPRoute cart.web.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.GVK.Kind + " " + r.Name
	}
	return r.GVK.Kind + " " + r.Name + "." + r.Namespace
}

// objectKey identifies an object of a route.
type objectKey struct {
	gvk schema.GroupVersionKind
	types.NamespacedName
}

func (k objectKey) compare(other objectKey) int {
	return cmp.Or(cmp.Compare(k.gvk.String(), other.gvk.String()), cmp.Compare(k.String(), other.String()))
}

func (r Ref) key() objectKey {
	return objectKey{r.GVK, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}}
}

// Lookup is a reference and the object that it led to, as it exists.
type Lookup struct {
	Ref Ref
	// Object is nil where there is none. It is never modified.
	Object *unstructured.Unstructured
}

// Objects are the objects of a route. Where no reference has a selector or names the same object as an earlier one, they
// are aligned with the references.
type Objects []Lookup

// FindObjects reads the objects of a route, and those to which they lead, with a function that reads what one reference
// names. With its error it returns what was found before, and the reference that could not be read. Errors: ErrCrossNamespace.
func FindObjects(rd Renderer, t Target, r release.Route, read func(Ref) (Objects, error)) (Objects, error) {
	var out Objects
	for known := 0; ; {
		refs := rd.Refs(t, r, out)
		if len(refs) == known {
			return out, nil
		}
		for _, ref := range refs[known:] {
			if err := t.checkNamespace(ref); err != nil {
				return out, err
			}
			more, err := read(ref)
			if err != nil {
				return append(out, Lookup{Ref: ref}), err
			}
			for _, x := range more { // a selector may find an object that is also named
				if !slices.ContainsFunc(out, func(known Lookup) bool { return known.Ref.key() == x.Ref.key() }) {
					out = append(out, x)
				}
			}
		}
		known = len(refs)
	}
}

// Get returns the object of that kind, namespace and name; nil where it is absent or none of the objects.
func (o Objects) Get(kind, namespace, name string) *unstructured.Unstructured {
	for _, x := range o {
		if x.Ref.GVK.Kind == kind && x.Ref.Namespace == namespace && x.Ref.Name == name {
			return x.Object
		}
	}
	return nil
}

// AnyShared reports whether there is an object that the route is written into.
func (o Objects) AnyShared() bool {
	return slices.ContainsFunc(o, func(x Lookup) bool { return x.Ref.Shared })
}

// Unchanged are the objects as results that leave all of them alone.
func (o Objects) Unchanged() []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(o))
	for i, x := range o {
		out[i] = x.Object
	}
	return out
}

// newObject is an object with nothing but its name.
func (r Ref) newObject() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(r.GVK)
	obj.SetNamespace(r.Namespace)
	obj.SetName(r.Name)
	return obj
}

// EditShared returns a copy of an object of the user, to write the route into. It refuses an absent one with ErrInvalid.
func (x Lookup) EditShared() (*unstructured.Unstructured, error) {
	if x.Object == nil {
		return nil, Refuse(ErrInvalid, "%s not found: create it, or correct its name in spec.strategy.canary.trafficRouting", x.Ref)
	}
	return x.Object.DeepCopy(), nil
}

// EditOwned returns a copy of an object that was created for the release, or a new one. It refuses an object with another
// owner with ErrNotOwned.
func (x Lookup) EditOwned(t Target) (*unstructured.Unstructured, error) {
	switch {
	case x.Object == nil:
		return x.Ref.newObject(), nil
	case !t.Owns(x.Object):
		return nil, Refuse(ErrNotOwned, "%s was not created for %s: delete it, or give it another name", x.Ref, t.owner().name)
	default:
		return x.Object.DeepCopy(), nil
	}
}
