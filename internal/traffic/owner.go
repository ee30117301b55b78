package traffic

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// owner is who has objects made for it: a Canary or a Rollout.
type owner struct {
	// Reference is what its objects carry; where they cannot, they have the value under the annotation.
	Reference         metav1.OwnerReference
	Annotation, Value string
	// Name is what texts for people call it, and Where the field of its spec that chooses among kinds of objects.
	Name, Where string
}

// made says whether the object was made for the owner.
func (o owner) made(obj *unstructured.Unstructured) bool {
	if controller := metav1.GetControllerOf(obj); controller != nil {
		return controller.UID == o.Reference.UID
	}
	return obj.GetAnnotations()[o.Annotation] == o.Value
}

// failed says what went wrong in the words that users of Flagger search for. Where a route has several objects, the
// text begins with the one that was worked on.
func (o owner) failed(refs []Ref, ref Ref, verb string, err error) error {
	if _, sentence := errors.AsType[*refusal](err); sentence {
		return err
	}
	if meta.IsNoMatchError(err) {
		return Refuse(ErrNotInstalled, "%s is not known to this cluster: install its definition (%s, %s), or choose another %s",
			ref.GVK.Kind, ref.GVK.Group, ref.GVK.Version, o.Where)
	}
	if len(refs) > 1 {
		return fmt.Errorf("reconcile%s failed: %s %s error: %w", ref.GVK.Kind, ref, verb, err)
	}
	return fmt.Errorf("%s %s error: %w", ref, verb, err)
}
