package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/release"
)

// Applier reads and writes the objects of all renderers. It writes only what differs.
//
// Every write names the resourceVersion, and a deletion also the UID, on which the decision was based. Conflicts and objects
// that exist already are returned as errors of the API machinery: the caller decides again, the write is never repeated.
type Applier struct {
	// Client reads from caches; it is called with unstructured objects only.
	Client client.Client
	// APIReader reads from the API server of Client; nil: objects that are in no cache are not read.
	APIReader client.Reader
	// Groups are the clients of API groups whose objects are in another cluster, by name.
	Groups map[string]client.Client
	// FieldOwner is the name under which the fields are written; empty leaves it to the client.
	FieldOwner string
	// NoOwnerReferences is for objects in another cluster than the release: garbage collection would delete them, because
	// their owner does not exist there. They have the annotation of the owner instead.
	NoOwnerReferences bool
}

// clientFor returns the client that reaches objects of an API group.
func (a *Applier) clientFor(group string) client.Client {
	if other := a.Groups[group]; other != nil {
		return other
	}
	return a.Client
}

// Versions are the versions in which the objects of a route were read; nil if they were not read.
type Versions map[objectKey]string

func (o Objects) versions() Versions {
	out := make(Versions, len(o))
	for _, x := range o {
		version := "" // absent
		if x.Object != nil {
			version = versionOf(x.Object)
		}
		out[x.Ref.key()] = version
	}
	return out
}

// All yields the kind, the key and the version of each object that existed: its UID and its resourceVersion, separated by a slash.
func (v Versions) All() iter.Seq2[ObjectID, string] {
	return func(yield func(ObjectID, string) bool) {
		for key, version := range v {
			if version != "" && !yield(ObjectID{key.gvk.GroupKind(), key.NamespacedName}, version) {
				return
			}
		}
	}
}

// ObjectID is an object of a kind, in any version of the API.
type ObjectID struct {
	Kind schema.GroupKind
	types.NamespacedName
}

// differ reports whether an object has another version now. Objects that only one of the two routes needs are not compared.
func (v Versions) differ(now Versions) bool {
	for key, version := range now {
		if before, known := v[key]; known && before != version {
			return true
		}
	}
	return false
}

// VerifyNewest returns ErrRouteChanged if one of the objects has another version in the API server than in the cache from which it was
// read. Objects in another cluster are not compared. They are read in a fixed order, so that a simulation run can be repeated. Errors:
// those of live.
func (a *Applier) VerifyNewest(ctx context.Context, apiReader client.Reader, read Versions) error {
	for _, key := range slices.SortedFunc(maps.Keys(read), objectKey.compare) {
		if a.Groups[key.gvk.Group] != nil {
			continue
		}
		stored := &metav1.PartialObjectMetadata{}
		stored.SetGroupVersionKind(key.gvk)
		now := "" // absent
		switch err := apiReader.Get(ctx, key.NamespacedName, stored); {
		case err == nil:
			now = versionOf(stored)
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return fmt.Errorf("read %s %s from the API server: %w", key.gvk.Kind, key.NamespacedName, err)
		}
		if now != read[key] {
			return fmt.Errorf("compare %s %s with the API server: %w", key.gvk.Kind, key.NamespacedName, ErrRouteChanged)
		}
	}
	return nil
}

func versionOf(object metav1.Object) string {
	return string(object.GetUID()) + "/" + object.GetResourceVersion()
}

// Outcome is the result of applying a route.
type Outcome struct {
	// Changed is true when something was written.
	Changed bool
	// Events for users; there may be some even if applying failed.
	Events []Event
}

// Observe returns the route that the objects describe, and the versions in which they were read. Errors: ErrNotInstalled, those of
// Client, and those of Renderer.Read, which are ErrUnreadable.
func (a *Applier) Observe(ctx context.Context, rd Renderer, t Target) (Observed, Versions, error) {
	existing, err := a.find(ctx, rd, t, release.Route{})
	if err != nil {
		return Observed{}, nil, err
	}
	observed, err := rd.Read(t, existing)
	if err != nil {
		return Observed{}, existing.versions(), &refusal{kind: errors.Join(ErrUnreadable, err), message: err.Error()}
	}
	return observed, existing.versions(), nil
}

// Refs are the objects of a route, whether they exist or not: those whose change concerns the release. With an error, they
// are those that were found before it. Errors: those of Client.
func (a *Applier) Refs(ctx context.Context, rd Renderer, t Target) ([]Ref, error) {
	existing, err := a.find(ctx, rd, t, release.Route{})
	refs := make([]Ref, len(existing))
	for i, x := range existing {
		refs[i] = x.Ref
	}
	return refs, err
}

// Validate returns the errors of a spec that depend on the user's objects. Errors: ErrNotInstalled, and those of Client.
func (a *Applier) Validate(ctx context.Context, rd Renderer, t Target) (field.ErrorList, error) {
	existing, err := a.find(ctx, rd, t, release.Route{})
	if err != nil {
		return nil, err
	}
	if validator, ok := rd.(Validator); ok {
		return validator.Validate(t, existing), nil
	}
	return nil, nil
}

// Apply applies the route. decided are the versions of the objects on which the decision was based: if one of them has been
// written since, for example by another process of Serin, nothing is written. Errors: ErrRouteChanged, those of Renderer.Render,
// ErrNotInstalled, and those of Client. There may be events with an error.
func (a *Applier) Apply(ctx context.Context, rd Renderer, t Target, r release.Route, decided Versions) (Outcome, error) {
	existing, err := a.find(ctx, rd, t, r)
	if err != nil {
		return Outcome{}, err
	}
	if decided.differ(existing.versions()) {
		return Outcome{}, fmt.Errorf("set the weights of %s: %w", t.owner().name, ErrRouteChanged)
	}
	return a.apply(ctx, rd, t, r, existing)
}

// ApplyExceptWeights applies the route except for weight and mirror, which remain as they are in the very objects that are
// written, under their versions: a caller with an outdated view never shifts traffic. r has the weight of a route that has
// to be created, or cannot be read. observed means that the caller saw its weights: if they can no longer be read, for example
// because the route was deleted, nothing is written, nor if the existing weight applies to other requests than that of r. Errors:
// ErrRouteChanged, and those of Apply.
func (a *Applier) ApplyExceptWeights(ctx context.Context, rd Renderer, t Target, r release.Route, observed bool) (Outcome, error) {
	existing, err := a.find(ctx, rd, t, r)
	if err != nil {
		return Outcome{}, err
	}
	switch live, err := rd.Read(t, existing); {
	case err == nil && live.Found && live.HasOtherMatches(len(r.Matches) > 0):
		return Outcome{}, fmt.Errorf("maintain the matches of %s: %w", t.owner().name, ErrRouteChanged)
	case err == nil && live.Found:
		r.Canary, r.Mirror.Enabled = live.Route.Canary, live.Route.Mirror.Enabled
	case observed:
		return Outcome{}, fmt.Errorf("maintain the route of %s: %w", t.owner().name, ErrRouteChanged)
	}
	if !r.Mirror.Enabled {
		r.Mirror.Percent = 0
	}
	return a.apply(ctx, rd, t, r, existing)
}

func (a *Applier) apply(ctx context.Context, rd Renderer, t Target, r release.Route, existing Objects) (Outcome, error) {
	recorder := &eventRecorder{route: r}
	desired, err := rd.Render(t, r, existing)
	if err != nil {
		recorder.recordMissing(existing)
		return Outcome{Events: recorder.events}, err
	}
	changed, err := a.write(ctx, t, existing, desired, recorder.recordWrite)
	return Outcome{Changed: changed, Events: recorder.events}, err
}

// Prepare creates the objects that a mesh must have before pods join it, and no others. Errors are those of Apply, for all
// objects of the route: an object that cannot be created later is reported before the pods are created.
func (a *Applier) Prepare(ctx context.Context, rd Renderer, t Target) (changed bool, err error) {
	existing, err := a.find(ctx, rd, t, release.Route{})
	if err != nil {
		return false, err
	}
	desired, err := rd.Render(t, release.Route{}, existing)
	if err != nil {
		return false, err
	}
	for i, x := range existing {
		if !x.Ref.SelectsPods {
			desired[i] = x.Object
		}
	}
	return a.write(ctx, t, existing, desired, nil)
}

// Restore restores the user's objects, with the exception of some. With ErrNoOriginal everything known was restored, and the user
// must repair the rest; repeating the call does not help. Objects that no longer exist are not an error, nor are kinds that are no
// longer installed.
func (a *Applier) Restore(ctx context.Context, rd Renderer, t Target, except ...Ref) error {
	existing, err := a.findWith(ctx, rd, t, release.Route{}, a.readInstalled)
	if err != nil {
		return err
	}
	desired, unknown := rd.Restore(t, existing)
	if unknown != nil && !errors.Is(unknown, ErrNoOriginal) {
		return unknown
	}
	// In reverse order of writing: the marks by which another process would continue come last.
	desired = slices.Clone(desired)
	slices.Reverse(existing)
	slices.Reverse(desired)
	for i, x := range existing {
		if slices.ContainsFunc(except, func(ref Ref) bool { return ref.key() == x.Ref.key() }) {
			desired[i] = x.Object
		}
	}
	if _, err := a.write(ctx, t, existing, desired, nil); err != nil {
		return err
	}
	return unknown
}

// Owned are the existing objects of the route that were created for the release.
func (a *Applier) Owned(ctx context.Context, rd Renderer, t Target) (Objects, error) {
	existing, err := a.find(ctx, rd, t, release.Route{})
	return slices.DeleteFunc(existing, func(x Lookup) bool { return !x.Ref.Owned || x.Object == nil || !t.Owns(x.Object) }), err
}

// Delete deletes objects that were created for the release.
func (a *Applier) Delete(ctx context.Context, t Target, owned Objects) error {
	_, err := a.write(ctx, t, owned, make([]*unstructured.Unstructured, len(owned)), nil)
	return err
}

// find reads the objects of a route. They belong to the cache and must not be modified; the contract test verifies that
// renderers do not.
func (a *Applier) find(ctx context.Context, rd Renderer, t Target, r release.Route) (Objects, error) {
	return a.findWith(ctx, rd, t, r, a.read)
}

func (a *Applier) findWith(ctx context.Context, rd Renderer, t Target, r release.Route, read func(context.Context, Ref) (Objects, error)) (Objects, error) {
	several := len(rd.Refs(t, r, nil)) > 1
	return FindObjects(rd, t, r, func(ref Ref) (Objects, error) {
		found, err := read(ctx, ref)
		if err != nil {
			return nil, t.explain(ref, several, err)
		}
		return found, nil
	})
}

// read returns what one reference names: an object that may be absent, or all objects that a selector finds.
func (a *Applier) read(ctx context.Context, ref Ref) (Objects, error) {
	c := a.clientFor(ref.GVK.Group)
	if ref.Selector == "" {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.GVK.GroupVersion().String(), "kind": ref.GVK.Kind}}
		err := c.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, obj, client.UnsafeDisableDeepCopy)
		switch {
		case apierrors.IsNotFound(err):
			return Objects{{Ref: ref}}, nil
		case err != nil:
			return nil, fmt.Errorf("get query error: %w", err)
		}
		return Objects{{Ref: ref, Object: obj}}, nil
	}
	selector, err := labels.Parse(ref.Selector)
	if err != nil {
		return nil, Refuse(ErrInvalid, "the selector of %s is %q: %v", ref.GVK.Kind, ref.Selector, err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(ref.GVK.GroupVersion().WithKind(ref.GVK.Kind + "List"))
	err = c.List(ctx, list, client.InNamespace(ref.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list error: %w", err)
	}
	var out Objects
	for i := range list.Items {
		one := ref
		one.Name = list.Items[i].GetName()
		out = append(out, Lookup{Ref: one, Object: &list.Items[i]})
	}
	return out, nil
}

// readInstalled is read, except that there are no objects of a kind that is not installed.
func (a *Applier) readInstalled(ctx context.Context, ref Ref) (Objects, error) {
	found, err := a.read(ctx, ref)
	switch {
	case !meta.IsNoMatchError(err):
		return found, err
	case ref.Selector != "":
		return nil, nil
	default:
		return Objects{{Ref: ref}}, nil
	}
}

// explain names the object of an error. If the route of a Canary has several objects, the text begins like Flagger's.
func (t Target) explain(ref Ref, several bool, err error) error {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused // complete as it is
	}
	if meta.IsNoMatchError(err) {
		return Refuse(ErrNotInstalled, "%s is not known to this cluster: install its definition (%s, %s), or choose another %s",
			ref.GVK.Kind, ref.GVK.Group, ref.GVK.Version, t.owner().field)
	}
	if several && t.Canary != nil {
		return fmt.Errorf("reconcile%s failed: %s %w", ref.GVK.Kind, ref, err)
	}
	return fmt.Errorf("%s %w", ref, err)
}

// The verbs of writes.
const (
	verbCreate = "create"
	verbUpdate = "update"
	verbDelete = "delete"
)

// write writes the desired objects in order, up to the first error. report, unless nil, is called for each write, with its
// error.
func (a *Applier) write(ctx context.Context, t Target, existing Objects, desired []*unstructured.Unstructured,
	report func(ref Ref, verb string, err error),
) (changed bool, err error) {
	for i, x := range existing {
		var wrote bool
		verb := verbUpdate
		switch {
		case x.Object == nil && desired[i] == nil:
			continue
		case desired[i] == nil:
			verb = verbDelete
			wrote, err = a.delete(ctx, t, x)
		case x.Object == nil:
			verb = verbCreate
			wrote, err = true, a.create(ctx, t, desired[i])
		default:
			wrote, err = a.patch(ctx, x.Object, desired[i])
		}
		if report != nil && (wrote || err != nil) {
			report(x.Ref, verb, err)
		}
		if err != nil {
			return changed, t.explain(x.Ref, len(existing) > 1, fmt.Errorf("%s error: %w", verb, err))
		}
		changed = changed || wrote
	}
	return changed, nil
}

func groupOf(obj *unstructured.Unstructured) string { return obj.GroupVersionKind().Group }

func (a *Applier) create(ctx context.Context, t Target, desired *unstructured.Unstructured) error {
	obj, owner := desired.DeepCopy(), t.owner()
	if a.NoOwnerReferences || obj.GetNamespace() == "" { // a namespaced owner cannot own a cluster-scoped object
		obj.SetAnnotations(merged(obj.GetAnnotations(), map[string]string{owner.annotation: owner.value}))
	} else {
		obj.SetOwnerReferences([]metav1.OwnerReference{owner.reference})
	}
	return a.clientFor(groupOf(obj)).Create(ctx, obj, a.createOptions()...)
}

func (a *Applier) patch(ctx context.Context, existing, desired *unstructured.Unstructured) (bool, error) {
	difference, err := difference(existing, desired)
	if err != nil || difference == nil {
		return false, err
	}
	obj := existing.DeepCopy() // receives the response; the cache's object must not
	return true, a.clientFor(groupOf(obj)).Patch(ctx, obj, client.RawPatch(types.MergePatchType, difference), a.patchOptions()...)
}

// difference is the merge patch from existing to desired, for that resourceVersion only; nil if they are equal.
func difference(existing, desired *unstructured.Unstructured) ([]byte, error) {
	patch := jsontree.MergePatch(existing.Object, desired.Object)
	if len(patch) == 0 {
		return nil, nil
	}
	return json.Marshal(jsontree.PinResourceVersion(patch, existing.GetResourceVersion()))
}

// delete deletes an object that was created for the release, and never any other, whatever a renderer returns.
func (a *Applier) delete(ctx context.Context, t Target, x Lookup) (bool, error) {
	if !x.Ref.Owned || !t.Owns(x.Object) {
		return false, Refuse(ErrNotOwned, "%s was not created for %s", x.Ref, t.owner().name)
	}
	if x.Object.GetDeletionTimestamp() != nil {
		return false, nil
	}
	uid, version := x.Object.GetUID(), x.Object.GetResourceVersion()
	err := a.clientFor(groupOf(x.Object)).Delete(ctx, x.Object.DeepCopy(), client.Preconditions{UID: &uid, ResourceVersion: &version})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (a *Applier) createOptions() []client.CreateOption {
	if a.FieldOwner == "" {
		return nil
	}
	return []client.CreateOption{client.FieldOwner(a.FieldOwner)}
}

func (a *Applier) patchOptions() []client.PatchOption {
	if a.FieldOwner == "" {
		return nil
	}
	return []client.PatchOption{client.FieldOwner(a.FieldOwner)}
}
