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

// readCached returns an object from the cache; nil when there is none. The object is shared with the cache and must not be
// changed: most reads are not followed by a write, and copies would be most of the cost of a reconciliation.
func (w *Workloads) readCached(ctx context.Context, c *flaggerv1.Canary, kind schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
	return getOrNil(ctx, w.Client, c, kind, name, client.UnsafeDisableDeepCopy)
}

func getOrNil(ctx context.Context, from client.Reader, c *flaggerv1.Canary, kind schema.GroupVersionKind, name string, options ...client.GetOption) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind}}
	err := from.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, obj, options...)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if meta.IsNoMatchError(err) {
		return nil, newRefusedError(ErrNotInstalled, "%s %s.%s cannot be read, because this cluster does not know its kind: install the definition of %s",
			kind.Kind, name, c.Namespace, kind.GroupVersion())
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s.%s: %w", kind.Kind, name, c.Namespace, err)
	}
	return obj, nil
}

// verifyCanaryUnchanged returns ErrTargetChanged if the Canary has changed since the decision. It is needed where the primary
// follows its target, before it first serves: a process that was suspended may see the current target and an outdated Canary.
func (w *Workloads) verifyCanaryUnchanged(ctx context.Context, c *flaggerv1.Canary) error {
	now := &flaggerv1.Canary{}
	err := w.APIReader.Get(ctx, client.ObjectKeyFromObject(c), now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Canary %s.%s: %w", c.Name, c.Namespace, err)
	}
	if err != nil || now.ResourceVersion != c.ResourceVersion {
		return newRefusedError(ErrTargetChanged, "Canary %s.%s was changed or deleted just now", c.Name, c.Namespace)
	}
	return nil
}

// createObject creates an object. If it exists and the cache has not shown it yet, it returns the live object, and the caller
// checks the owner.
func (w *Workloads) createObject(ctx context.Context, c *flaggerv1.Canary, wanted *unstructured.Unstructured) (found *unstructured.Unstructured, err error) {
	err = w.Client.Create(ctx, wanted.DeepCopy())
	if err == nil {
		return nil, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	live, readErr := getOrNil(ctx, w.APIReader, c, wanted.GroupVersionKind(), wanted.GetName())
	if readErr != nil {
		return nil, readErr
	}
	if live == nil {
		return nil, err // deleted in the meantime: the next reconciliation creates it
	}
	return live, nil
}

// updateObject writes the difference between the existing and the desired object, under the resourceVersion that was read.
// Without a difference it writes nothing.
func (w *Workloads) updateObject(ctx context.Context, existing, wanted client.Object) error {
	patch, err := buildMergePatch(existing, wanted)
	if err != nil {
		return fmt.Errorf("compare %s.%s with its desired state: %w", existing.GetName(), existing.GetNamespace(), err)
	}
	if patch == nil {
		return nil
	}
	written, ok := wanted.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %s.%s: %T is no object", existing.GetName(), existing.GetNamespace(), wanted)
	}
	var options []client.PatchOption
	if !isCached(existing) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return w.Client.Patch(ctx, written, patch, options...)
}

// buildMergePatch returns the merge patch from existing to wanted, valid only for the resourceVersion of existing; nil if there is
// no difference.
func buildMergePatch(existing, wanted client.Object) (client.Patch, error) {
	from, err := decodedJSON(existing)
	if err != nil {
		return nil, err
	}
	to, err := decodedJSON(wanted)
	if err != nil {
		return nil, err
	}
	difference := jsontree.MergePatch(from, to)
	if len(difference) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(jsontree.PinResourceVersion(difference, existing.GetResourceVersion()))
	if err != nil {
		return nil, err
	}
	return client.RawPatch(types.MergePatchType, text), nil
}

// decodedJSON returns an object as decoded JSON, which must not be changed.
func decodedJSON(obj client.Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// deleteObject deletes the object that was read, but not a later one with the same name. It succeeds if the object does not
// exist.
func (w *Workloads) deleteObject(ctx context.Context, obj client.Object) error {
	options := []client.DeleteOption{client.Preconditions{UID: new(obj.GetUID()), ResourceVersion: new(obj.GetResourceVersion())}}
	if !isCached(obj) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return client.IgnoreNotFound(w.Client.Delete(ctx, obj, options...))
}

// isCached returns false for typed ConfigMaps and Secrets, which no cache contains: a client that waits for its cache to show the
// write would start a watch of all ConfigMaps and Secrets of the cluster.
func isCached(obj client.Object) bool {
	_, unstructured := obj.(*unstructured.Unstructured)
	return unstructured
}
