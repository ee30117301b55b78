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

// writeChanges writes the difference between two versions of an object, with the resourceVersion of the first as precondition. It
// reports whether there was any; after then contains the response.
func writeChanges(ctx context.Context, c client.Client, before, after client.Object, options ...client.PatchOption) (bool, error) {
	if reconciler.SemanticEqual(before, after) {
		return false, nil // the usual case; a comparison is cheaper than a conversion
	}
	old, err := toJSONTree(before)
	if err != nil {
		return false, err
	}
	desired, err := toJSONTree(after)
	if err != nil {
		return false, err
	}
	difference := jsontree.MergePatch(old, desired)
	if len(difference) == 0 {
		return false, nil
	}
	patch, err := json.Marshal(jsontree.PinResourceVersion(difference, before.GetResourceVersion()))
	if err != nil {
		return false, fmt.Errorf("encode a patch of %s: %w", before.GetName(), err)
	}
	if err := c.Patch(ctx, after, client.RawPatch(types.MergePatchType, patch), options...); err != nil {
		return false, fmt.Errorf("patch %T %s.%s: %w", before, before.GetName(), before.GetNamespace(), err)
	}
	return true, nil
}

// toJSONTree converts an object to decoded JSON. An unstructured object is not copied.
func toJSONTree(object client.Object) (map[string]any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("decode %T %s: %w", object, object.GetName(), err)
	}
	return tree, nil
}

// deleteObserved deletes an object if it is still the one that was observed, in the observed version.
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
