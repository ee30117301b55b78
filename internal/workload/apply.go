package workload

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/jsontree"
)

// read is an object from the cache; nil when there is none. It is the cache's own and must not be changed: nearly every
// look at it ends with nothing to write, and copies would be most of what a pass costs.
func (w *Workloads) read(ctx context.Context, c *flaggerv1.Canary, kind schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
	return get(ctx, w.Client, c, kind, name, client.UnsafeDisableDeepCopy)
}

func get(ctx context.Context, from client.Reader, c *flaggerv1.Canary, kind schema.GroupVersionKind, name string, options ...client.GetOption) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind}}
	err := from.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, obj, options...)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if meta.IsNoMatchError(err) {
		return nil, refuse(ErrNotInstalled, "%s %s.%s cannot be read, because this cluster does not know its kind: install the definition of %s",
			kind.Kind, name, c.Namespace, kind.GroupVersion())
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s.%s: %w", kind.Kind, name, c.Namespace, err)
	}
	return obj, nil
}

// unchanged is ErrChanged of a Canary that is another by now than what was decided on. Only before a primary serves for the
// first time may it follow its target, and a process that slept may know the target as it is and the Canary as it was.
func (w *Workloads) unchanged(ctx context.Context, c *flaggerv1.Canary) error {
	now := &flaggerv1.Canary{}
	err := w.Reader.Get(ctx, client.ObjectKeyFromObject(c), now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Canary %s.%s: %w", c.Name, c.Namespace, err)
	}
	if err != nil || now.ResourceVersion != c.ResourceVersion {
		return refuse(ErrChanged, "Canary %s.%s was changed or deleted just now", c.Name, c.Namespace)
	}
	return nil
}

// create makes an object. If one is there that the cache has not seen, the live one is given back, and the caller says
// whose it is.
func (w *Workloads) create(ctx context.Context, c *flaggerv1.Canary, wanted *unstructured.Unstructured) (found *unstructured.Unstructured, err error) {
	made := wanted.DeepCopy()
	err = w.Client.Create(ctx, made)
	if err == nil {
		return nil, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	live, readErr := get(ctx, w.Reader, c, wanted.GroupVersionKind(), wanted.GetName())
	if readErr != nil {
		return nil, readErr
	}
	if live == nil {
		return nil, err // deleted in between: the next pass makes it
	}
	return live, nil
}

// update writes the difference between an object as it was read and as it shall be, under the resourceVersion that was
// read. Without a difference nothing is written.
func (w *Workloads) update(ctx context.Context, existing, wanted client.Object) error {
	patch, err := patchOf(existing, wanted)
	if err != nil {
		return fmt.Errorf("compare %s.%s with what it shall be: %w", existing.GetName(), existing.GetNamespace(), err)
	}
	if patch == nil {
		return nil
	}
	written, ok := wanted.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %s.%s: %T is no object", existing.GetName(), existing.GetNamespace(), wanted)
	}
	var options []client.PatchOption
	if !cached(existing) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return w.Client.Patch(ctx, written, patch, options...)
}

// patchOf is the merge patch that makes wanted of existing, for that resourceVersion only; nil when there is none.
func patchOf(existing, wanted client.Object) (client.Patch, error) {
	from, err := treeOf(existing)
	if err != nil {
		return nil, err
	}
	to, err := treeOf(wanted)
	if err != nil {
		return nil, err
	}
	difference := jsontree.MergePatch(from, to)
	if len(difference) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(jsontree.Pinned(difference, existing.GetResourceVersion()))
	if err != nil {
		return nil, err
	}
	return client.RawPatch(types.MergePatchType, text), nil
}

// treeOf is an object as decoded JSON, not to be changed.
func treeOf(obj client.Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// remove deletes an object as it was read, and nothing that has its name since. Absence is success.
func (w *Workloads) remove(ctx context.Context, obj client.Object) error {
	options := []client.DeleteOption{client.Preconditions{UID: new(obj.GetUID()), ResourceVersion: new(obj.GetResourceVersion())}}
	if !cached(obj) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return client.IgnoreNotFound(w.Client.Delete(ctx, obj, options...))
}

// cached is false for objects that are written with their content, which no cache holds: a client that waits for its
// cache to see a write would start to watch all ConfigMaps and Secrets of the cluster.
func cached(obj client.Object) bool {
	_, unstructured := obj.(*unstructured.Unstructured)
	return unstructured
}
