package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/release"
)

// Applier does the reading and writing for all renderers: what differs, and nothing else.
//
// Every write names the resourceVersion (a deletion the UID as well) that it was decided on. Conflicts and objects that
// exist already come back as errors of the API machinery, to be decided on anew and never sent again.
type Applier struct {
	// Client reads from caches; it is asked for unstructured objects only.
	Client client.Client
	// Groups are the clients of API groups whose objects are in another cluster, by name.
	Groups map[string]client.Client
	// FieldOwner is the name under which the fields are written; empty leaves it to the client.
	FieldOwner string
	// NoOwnerReferences is for route objects that live in another cluster than the Canary: an owner that cannot be
	// found there would have them collected. They carry CanaryAnnotation instead.
	NoOwnerReferences bool
}

// of is the client that reaches objects of an API group.
func (a *Applier) of(group string) client.Client {
	if elsewhere := a.Groups[group]; elsewhere != nil {
		return elsewhere
	}
	return a.Client
}

// Versions are those in which the objects of a route were read; nil: nobody looked.
type Versions []string

func versionsOf(existing []*unstructured.Unstructured) Versions {
	out := make(Versions, len(existing))
	for i, obj := range existing {
		if obj != nil {
			out[i] = string(obj.GetUID()) + "/" + obj.GetResourceVersion()
		}
	}
	return out
}

// Observe reads what the objects of the route say, and in which versions. Errors: ErrNotInstalled, and those of Client and
// Renderer.Read.
func (a *Applier) Observe(ctx context.Context, rd Renderer, t Target) (Observed, Versions, error) {
	existing, err := a.read(ctx, t.owner(), rd.Refs(t))
	if err != nil {
		return Observed{}, nil, err
	}
	observed, err := rd.Read(t, existing)
	return observed, versionsOf(existing), err
}

// Apply makes the route so, and says whether anything had to be written. decided are the versions in which the route was
// when that was decided: where somebody has written it since, another process of ours perhaps, nothing is written on top of
// that. Errors: ErrChanged, those of Renderer.Render, ErrNotInstalled, and those of Client.
func (a *Applier) Apply(ctx context.Context, rd Renderer, t Target, r release.Route, decided Versions) (changed bool, err error) {
	refs := rd.Refs(t)
	existing, err := a.read(ctx, t.owner(), refs)
	if err != nil {
		return false, err
	}
	if decided != nil && !slices.Equal(decided, versionsOf(existing)) {
		return false, fmt.Errorf("set the weights of %s: %w", t.key(), ErrChanged)
	}
	desired, err := rd.Render(t, r, existing)
	if err != nil {
		return false, err
	}
	return a.write(ctx, t.owner(), refs, existing, desired, nil)
}

// Keep makes the route right in everything but what it carries now: weight and mirror are those of the very objects that
// are written, under their versions, so that a caller whose view is old never moves traffic. r says what a route carries
// that has to be made, or cannot be read. Errors are those of Apply.
func (a *Applier) Keep(ctx context.Context, rd Renderer, t Target, r release.Route) (changed bool, err error) {
	refs := rd.Refs(t)
	existing, err := a.read(ctx, t.owner(), refs)
	if err != nil {
		return false, err
	}
	if live, err := rd.Read(t, existing); err == nil && live.Found {
		r.Canary, r.Mirror.On = live.Route.Canary, live.Route.Mirror.On
	}
	if !r.Mirror.On {
		r.Mirror.Percent = 0
	}
	desired, err := rd.Render(t, r, existing)
	if err != nil {
		return false, err
	}
	return a.write(ctx, t.owner(), refs, existing, desired, nil)
}

// Prepare makes what a mesh must have before it lets pods join, and nothing else. Errors are those of Apply, for all
// objects of the route: what could not be made later is said before the pods are made.
func (a *Applier) Prepare(ctx context.Context, rd Renderer, t Target) (changed bool, err error) {
	refs := rd.Refs(t)
	existing, err := a.read(ctx, t.owner(), refs)
	if err != nil {
		return false, err
	}
	desired, err := rd.Render(t, release.Route{}, existing)
	if err != nil {
		return false, err
	}
	for i, ref := range refs {
		if !ref.Joins {
			desired[i] = existing[i]
		}
	}
	return a.write(ctx, t.owner(), refs, existing, desired, nil)
}

// Restore gives adopted objects back as they were. With ErrNoOriginal all that is known was restored, and the rest
// needs a person; nothing is gained by asking again. Objects that are gone are no error.
func (a *Applier) Restore(ctx context.Context, rd Renderer, t Target) error {
	refs := rd.Refs(t)
	existing, err := a.read(ctx, t.owner(), refs)
	if err != nil {
		return err
	}
	desired, unknown := rd.Restore(t, existing)
	if unknown != nil && !errors.Is(unknown, ErrNoOriginal) {
		return unknown
	}
	if _, err := a.write(ctx, t.owner(), refs, existing, desired, nil); err != nil {
		return err
	}
	return unknown
}

// read gives the cache's own objects, which must not be changed. Renderers never change what exists; the contract test
// holds them to it.
func (a *Applier) read(ctx context.Context, by owner, refs []Ref) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(refs))
	for i, ref := range refs {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.GVK.GroupVersion().String(), "kind": ref.GVK.Kind}}
		err := a.of(ref.GVK.Group).Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, obj, client.UnsafeDisableDeepCopy)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, by.failed(refs, ref, "get query", err)
		default:
			out[i] = obj
		}
	}
	return out, nil
}

// The words for what is written.
const (
	verbCreate = "create"
	verbUpdate = "update"
	verbDelete = "delete"
)

// write makes the objects as they are desired, in order, up to the first that fails. told, unless nil, hears of each
// write, with its error.
func (a *Applier) write(ctx context.Context, by owner, refs []Ref, existing, desired []*unstructured.Unstructured,
	told func(ref Ref, verb string, err error),
) (changed bool, err error) {
	for i, ref := range refs {
		var wrote bool
		verb := verbUpdate
		switch {
		case existing[i] == nil && desired[i] == nil:
			continue
		case desired[i] == nil:
			verb = verbDelete
			wrote, err = a.delete(ctx, by, ref, existing[i])
		case existing[i] == nil:
			verb = verbCreate
			wrote, err = true, a.create(ctx, by, desired[i])
		default:
			wrote, err = a.patch(ctx, existing[i], desired[i])
		}
		if told != nil && (wrote || err != nil) {
			told(ref, verb, err)
		}
		if err != nil {
			return changed, by.failed(refs, ref, verb, err)
		}
		changed = changed || wrote
	}
	return changed, nil
}

func groupOf(obj *unstructured.Unstructured) string { return obj.GroupVersionKind().Group }

func (a *Applier) create(ctx context.Context, by owner, desired *unstructured.Unstructured) error {
	obj := desired.DeepCopy()
	if a.NoOwnerReferences || obj.GetNamespace() == "" { // a namespaced owner cannot own what has no namespace
		obj.SetAnnotations(merged(obj.GetAnnotations(), map[string]string{by.Annotation: by.Value}))
	} else {
		obj.SetOwnerReferences([]metav1.OwnerReference{by.Reference})
	}
	return a.of(groupOf(obj)).Create(ctx, obj, a.createOptions()...)
}

func (a *Applier) patch(ctx context.Context, existing, desired *unstructured.Unstructured) (bool, error) {
	difference, err := difference(existing, desired)
	if err != nil || difference == nil {
		return false, err
	}
	obj := existing.DeepCopy() // takes the answer; what the cache gave is not ours
	return true, a.of(groupOf(obj)).Patch(ctx, obj, client.RawPatch(types.MergePatchType, difference), a.patchOptions()...)
}

// difference is the merge patch that makes desired of existing, for that resourceVersion only; nil when there is none.
func difference(existing, desired *unstructured.Unstructured) ([]byte, error) {
	patch := jsontree.MergePatch(existing.Object, desired.Object)
	if len(patch) == 0 {
		return nil, nil
	}
	return json.Marshal(jsontree.Pinned(patch, existing.GetResourceVersion()))
}

// delete removes what was made for the release, and never anything else, whatever a renderer wants.
func (a *Applier) delete(ctx context.Context, by owner, ref Ref, existing *unstructured.Unstructured) (bool, error) {
	if !ref.Owned || !by.made(existing) {
		return false, Refuse(ErrForeign, "%s was not made for %s", ref, by.Name)
	}
	if existing.GetDeletionTimestamp() != nil {
		return false, nil
	}
	uid, version := existing.GetUID(), existing.GetResourceVersion()
	err := a.of(groupOf(existing)).Delete(ctx, existing.DeepCopy(), client.Preconditions{UID: &uid, ResourceVersion: &version})
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
