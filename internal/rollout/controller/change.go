package controller

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/reconciler"
)

// writeChanges writes the difference between two forms of an object under the version of the first, and is true when there was
// any. The answer is in after.
func writeChanges(ctx context.Context, c client.Client, before, after client.Object, options ...client.PatchOption) (bool, error) {
	if reconciler.Same(before, after) {
		return false, nil // as mostly; to compare is cheaper than to decode
	}
	old, err := plain(before)
	if err != nil {
		return false, err
	}
	wanted, err := plain(after)
	if err != nil {
		return false, err
	}
	difference := jsontree.MergePatch(old, wanted)
	if len(difference) == 0 {
		return false, nil
	}
	patch, err := json.Marshal(jsontree.PinResourceVersion(difference, before.GetResourceVersion()))
	if err != nil {
		return false, fmt.Errorf("write a patch of %s: %w", before.GetName(), err)
	}
	if err := c.Patch(ctx, after, client.RawPatch(types.MergePatchType, patch), options...); err != nil {
		return false, fmt.Errorf("change %T %s.%s: %w", before, before.GetName(), before.GetNamespace(), err)
	}
	return true, nil
}

// plain is an object as decoded JSON.
func plain(object client.Object) (map[string]any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("decode %T %s: %w", object, object.GetName(), err)
	}
	return tree, nil
}

// deleteObserved deletes the very object that was seen, in the version that it was seen in.
func deleteObserved(ctx context.Context, c client.Client, object client.Object) (bool, error) {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := c.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy("Background"))
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("delete %T %s.%s: %w", object, object.GetName(), object.GetNamespace(), err)
	default:
		return true, nil
	}
}
