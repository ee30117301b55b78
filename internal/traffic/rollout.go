package traffic

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// RolloutTarget is a Rollout whose traffic is routed, as one of its routers sees it.
type RolloutTarget struct {
	// Rollout as stored. Renderers never change it; its spec names the objects, and its status says which destinations
	// were added before.
	Rollout *argov1.Rollout
	// CanaryService and StableService are the names of the two Services; RolloutRouter.Target resolves them. Both are
	// empty where a router tells the revisions apart by labels.
	CanaryService, StableService string
	// CanaryHash and StableHash are the revisions that get the two shares, for routers that know pods by label. Empty:
	// there are no such pods. Who must move the traffic before the revisions applies the route with the former hashes
	// first.
	CanaryHash, StableHash string
	// Drained is true when the weight of the canary has been 0 for so long that no request is under way. What was made for
	// the time of a release only may go then.
	Drained bool
}

// Found is an object of a route as it exists, with the reference that led to it.
type Found struct {
	Ref Ref
	// Object is nil where there is none. It is never changed.
	Object *unstructured.Unstructured
}

// Objects are what exists of a route.
type Objects []Found

// RolloutRenderer turns a Route into what one router of a Rollout reads, most of which is the user's. It is pure: no
// client, no clock, and neither the target nor what exists is ever changed.
//
// It is level-triggered. The caller gives the whole route that shall hold, in every pass: weights, experiments, and the
// managed routes that are in force. A managed route that is not among them is taken away, and what holds already is not
// written again. Results are aligned with what exists; nil in a result means that the object shall not exist, and to
// leave an object alone, return it.
type RolloutRenderer interface {
	// Features are what the router can do for this target. What is not declared is refused with ErrUnsupported.
	Features(t RolloutTarget) Features
	// Refs are the objects, in the order in which they are written, as far as they can be named from those that were
	// found already: it is asked again until it names no more. A later answer begins with the earlier one. Those of the
	// user are Shared where the route is written into them; those that are made for the Rollout are Owned.
	Refs(t RolloutTarget, r release.Route, found Objects) []Ref
	// Render gives the objects that make the route so. Errors: ErrUnsupported, ErrInvalid, ErrForeign.
	Render(t RolloutTarget, r release.Route, existing Objects) ([]*unstructured.Unstructured, error)
	// Read says what weights the objects have: the canary's as it is written, and those of experiments. Where several
	// objects differ it is the highest of the canary. It names the managed routes that are in any of them.
	Read(t RolloutTarget, existing Objects) (Observed, error)
	// Validate finds what of the user's objects does not fit the spec. It is for a spec that is valid otherwise.
	Validate(t RolloutTarget, existing Objects) field.ErrorList
	// Restore takes back what a route leaves in the user's objects: managed routes, experiments, marks and revisions.
	// Weights stay unless nobody could read them any more, and what was made for the Rollout is not touched.
	// It is for a router that is taken out of the spec, with the spec as it was, and for a Rollout that is deleted.
	Restore(t RolloutTarget, existing Objects) []*unstructured.Unstructured
}

// Gather reads the objects of a route, and those to which they lead, with a function that reads what one reference names.
// With its error comes what was found before, and the reference that could not be read.
func Gather(rd RolloutRenderer, t RolloutTarget, r release.Route, look func(Ref) (Objects, error)) (Objects, error) {
	var out Objects
	for known := 0; ; {
		refs := rd.Refs(t, r, out)
		if len(refs) == known {
			return out, nil
		}
		for _, ref := range refs[known:] {
			more, err := look(ref)
			if err != nil {
				return append(out, Found{Ref: ref}), err
			}
			for _, one := range more { // a selector may find what has a name as well
				if !slices.ContainsFunc(out, one.same) {
					out = append(out, one)
				}
			}
		}
		known = len(refs)
	}
}

func (x Found) same(other Found) bool {
	return x.Ref.GVK == other.Ref.GVK && x.Ref.Namespace == other.Ref.Namespace && x.Ref.Name == other.Ref.Name
}

// Managed are the names of the routes that belong to the Rollout whatever they hold, the one that counts most first.
func (t RolloutTarget) Managed() []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	c := t.canary()
	if c.TrafficRouting != nil {
		for _, route := range c.TrafficRouting.ManagedRoutes {
			add(route.Name)
		}
	}
	for _, step := range c.Steps { // taken out of the list while they are in force
		if step.SetHeaderRoute != nil {
			add(step.SetHeaderRoute.Name)
		}
		if step.SetMirrorRoute != nil {
			add(step.SetMirrorRoute.Name)
		}
	}
	return names
}

// ManagedOrder compares two managed routes by what counts more.
func (t RolloutTarget) ManagedOrder(a, b string) int {
	names := t.Managed()
	return cmp.Compare(slices.Index(names, a), slices.Index(names, b))
}

// Routing is trafficRouting of the spec; empty where there is none.
func (t RolloutTarget) Routing() argov1.RolloutTrafficRouting {
	if routing := t.canary().TrafficRouting; routing != nil {
		return *routing
	}
	return argov1.RolloutTrafficRouting{}
}

// Added are the Services of experiments that the status says were told to the router last.
func (t RolloutTarget) Added() []string {
	if t.Rollout.Status.Canary.Weights == nil {
		return nil
	}
	var names []string
	for _, d := range t.Rollout.Status.Canary.Weights.Additional {
		names = append(names, d.ServiceName)
	}
	return names
}

func (t RolloutTarget) canary() argov1.CanaryStrategy {
	if c := t.Rollout.Spec.Strategy.Canary; c != nil {
		return *c
	}
	return argov1.CanaryStrategy{}
}

// OwnerReference is what an object that was made for the Rollout carries.
func (t RolloutTarget) OwnerReference() metav1.OwnerReference {
	return *metav1.NewControllerRef(t.Rollout, argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind))
}

// owner is who has objects made for a Rollout.
func (t RolloutTarget) owner() owner {
	return owner{
		Reference: t.OwnerReference(), Annotation: argov1.ManagedByAnnotation, Value: t.Rollout.Name,
		Name:  "Rollout " + t.Rollout.Name + "." + t.Rollout.Namespace,
		Where: "trafficRouting",
	}
}

// RoutingPath is where the spec names the routers, for errors of fields.
func RoutingPath() *field.Path {
	return field.NewPath("spec", "strategy", "canary", "trafficRouting")
}

// Get is the object of that kind, namespace and name; nil where it is absent or none of the objects.
func (o Objects) Get(kind, namespace, name string) *unstructured.Unstructured {
	for _, x := range o {
		if x.Ref.GVK.Kind == kind && x.Ref.Namespace == namespace && x.Ref.Name == name {
			return x.Object
		}
	}
	return nil
}

// AnyShared says whether there is an object at all in which the route is written.
func (o Objects) AnyShared() bool {
	return slices.ContainsFunc(o, func(x Found) bool { return x.Ref.Shared })
}

// Unchanged are the objects as results that leave all of them alone.
func (o Objects) Unchanged() []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(o))
	for i, x := range o {
		out[i] = x.Object
	}
	return out
}

// Edited is where a renderer begins with an object of the user: a copy of it. Absent it is refused with ErrInvalid.
func (x Found) Edited() (*unstructured.Unstructured, error) {
	if x.Object == nil {
		return nil, Refuse(ErrInvalid, "%s not found: create it, or correct its name in spec.strategy.canary.trafficRouting", x.Ref)
	}
	return x.Object.DeepCopy(), nil
}

// Made is where a renderer begins with an object that is made for the Rollout: a copy of it, or a new one with nothing
// but its name. It refuses an object of somebody else with ErrForeign.
func (x Found) Made(t RolloutTarget) (*unstructured.Unstructured, error) {
	if x.Object == nil {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetGroupVersionKind(x.Ref.GVK)
		obj.SetNamespace(x.Ref.Namespace)
		obj.SetName(x.Ref.Name)
		return obj, nil
	}
	if !t.owner().made(x.Object) {
		return nil, Refuse(ErrForeign, "%s was not made for %s: delete it, or give it another name", x.Ref, t.owner().Name)
	}
	return x.Object.DeepCopy(), nil
}

// IsMade says whether an object was made for the Rollout.
func (t RolloutTarget) IsMade(obj *unstructured.Unstructured) bool { return t.owner().made(obj) }

// MarkManaged notes on an object of the user that the Rollout writes it. It refuses one that another Rollout writes.
func (t RolloutTarget) MarkManaged(ref Ref, obj *unstructured.Unstructured) error {
	annotations := obj.GetAnnotations()
	if by := annotations[argov1.ManagedByAnnotation]; by != "" && by != t.Rollout.Name {
		return Refuse(ErrForeign, "%s is managed by Rollout %s: give each Rollout its own, or remove its annotation %s",
			ref, by, argov1.ManagedByAnnotation)
	}
	marks := map[string]string{argov1.ManagedByAnnotation: t.Rollout.Name}
	if record := t.record(); record != "" {
		marks[argov1.RoutedByAnnotation] = record
	} else {
		RemoveAnnotations(obj, argov1.RoutedByAnnotation)
	}
	obj.SetAnnotations(merged(obj.GetAnnotations(), marks))
	return nil
}

// UnmarkManaged takes the note back, where it is this Rollout's, and says whether it was.
func (t RolloutTarget) UnmarkManaged(obj *unstructured.Unstructured) bool {
	if obj.GetAnnotations()[argov1.ManagedByAnnotation] != t.Rollout.Name {
		return false
	}
	RemoveAnnotations(obj, argov1.ManagedByAnnotation, argov1.RoutedByAnnotation)
	return true
}

// RemoveAnnotations takes annotations away. Where none is left there is no field.
func RemoveAnnotations(obj *unstructured.Unstructured, keys ...string) {
	obj.SetAnnotations(without(obj.GetAnnotations(), keys))
}

// RemoveLabels takes labels away. Where none is left there is no field.
func RemoveLabels(obj *unstructured.Unstructured, keys ...string) {
	obj.SetLabels(without(obj.GetLabels(), keys))
}

func without(from map[string]string, keys []string) map[string]string {
	for _, key := range keys {
		delete(from, key)
	}
	if len(from) == 0 {
		return nil
	}
	return from
}
