package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

// ServiceSplitter is a Renderer whose objects only divide the requests to the apex Service. Without them, the Service receives the
// requests itself, so they are deleted with their Canary.
type ServiceSplitter interface {
	SplitsService()
}

// ApexRenderer is a Renderer whose objects of one side have no counterpart for the apex Service, and therefore remain after their
// Canary with this Service as their destination.
type ApexRenderer interface {
	// RenderApex returns the objects of an idle Canary's route with all requests routed to the apex Service; nil for those that are
	// deleted with the Canary. Destinations of the primary without requests are removed from them.
	RenderApex(t Target, existing Objects) ([]*unstructured.Unstructured, error)
}

// HandOver returns the objects of an idle Canary's route such that those that would be deleted with the Canary remain, and Restore
// makes them route all requests to the apex Service. It removes the owner reference and records this route as the original state.
// The current routing is unchanged. Objects of one side, such as a copy of the user's Ingress, remain owned. ErrUnsupported: the
// provider has no route without the two sides. Other errors are those of Renderer.Render.
func HandOver(rd Renderer, t Target, existing Objects) ([]*unstructured.Unstructured, error) {
	out := existing.Unchanged()
	if _, ok := rd.(ServiceSplitter); ok || !slices.ContainsFunc(existing, func(x Lookup) bool { return needsHandOver(t, x) }) {
		return out, nil
	}
	if apex, ok := rd.(ApexRenderer); ok {
		return handOverApex(apex, t, existing)
	}
	after := t
	after.StableService = t.Apex
	after.Canary = t.Canary.DeepCopy()
	after.Canary.Spec.Analysis, after.Canary.Spec.CanaryAnalysis = nil, nil
	desired, err := rd.Render(after, release.Route{}, existing)
	if err != nil {
		return nil, err
	}
	for i, x := range existing {
		if !needsHandOver(t, x) || x.Ref.Derived || x.Ref.Name == t.StableService || x.Ref.Name == t.CanaryService || desired[i] == nil {
			continue
		}
		spec, _ := withoutSide(desired[i].Object["spec"], t.CanaryService).(map[string]any)
		if mentions(spec, t.StableService) || mentions(spec, t.CanaryService) {
			return nil, Refuse(ErrUnsupported, "%s routes to objects that are deleted with Canary %s.%s: replace it with a route of your own to Service %s",
				x.Ref, t.Canary.Name, t.Namespace, t.Apex)
		}
		if out[i], err = handedOver(t, x, spec); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// handOverApex hands over the objects that an ApexRenderer returns.
func handOverApex(rd ApexRenderer, t Target, existing Objects) ([]*unstructured.Unstructured, error) {
	out := existing.Unchanged()
	desired, err := rd.RenderApex(t, existing)
	if err != nil {
		return nil, err
	}
	for i, x := range existing {
		if !needsHandOver(t, x) || desired[i] == nil {
			continue
		}
		spec, _ := withoutSide(desired[i].Object["spec"], t.StableService).(map[string]any)
		if out[i], err = handedOver(t, x, spec); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// needsHandOver reports whether Restore would not restore an object: it is owned and deleted with the Canary, or its original state
// is unknown, for example because a Canary was deleted without its dependents.
func needsHandOver(t Target, x Lookup) bool {
	if x.Object == nil || !x.Ref.Owned || x.Ref.Namespace == "" {
		return false
	}
	annotations := x.Object.GetAnnotations()
	_, isRecorded := annotations[OriginalAnnotation]
	_, isKnown := flaggerSpec(annotations)
	return t.Owns(x.Object) || !isRecorded && !isKnown && annotations[fluxReconcile] == disabled && !hasOtherOwner(t, x.Object)
}

// handedOver returns an owned object as one of the user that was adopted, with the given spec as its original.
func handedOver(t Target, x Lookup, spec map[string]any) (*unstructured.Unstructured, error) {
	obj := x.Object.DeepCopy()
	obj.SetOwnerReferences(withoutOwner(obj.GetOwnerReferences(), t.Canary.UID))
	ours := driftAnnotations()
	ours[CanaryAnnotation], ours[lastApplied] = "", "" // as in recordOriginal
	annotations := resetMetadata(obj.GetAnnotations(), nil, ours)
	RemoveAnnotations(obj, CanaryAnnotation)
	text, err := json.Marshal(original{Canary: t.canaryKey(), Labels: obj.GetLabels(), Annotations: annotations, Spec: spec})
	if err != nil {
		return nil, fmt.Errorf("record original of %s: %w", x.Ref, err)
	}
	if len(text) > maxOriginal {
		return nil, Refuse(ErrInvalid, "%s has %d bytes, too many to be recorded and restored: make it smaller than %d bytes", x.Ref, len(text), maxOriginal)
	}
	obj.SetAnnotations(merged(obj.GetAnnotations(), map[string]string{OriginalAnnotation: string(text)}))
	return obj, nil
}

// withoutOwner returns owner references without those to one owner; nil: there are no others.
func withoutOwner(owners []metav1.OwnerReference, uid types.UID) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, owner := range owners {
		if owner.UID != uid {
			out = append(out, owner)
		}
	}
	return out
}

// withoutSide returns a JSON value without the entries of lists that send no requests to a Service.
func withoutSide(value any, service string) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, item := range value {
			out[key] = withoutSide(item, service)
		}
		return out
	case []any:
		out := make([]any, 0, len(value))
		for _, item := range value {
			entry, _ := item.(map[string]any)
			weight, err := Number(entry["weight"])
			if entry["weight"] != nil && err == nil && weight == 0 && mentions(entry, service) {
				continue
			}
			out = append(out, withoutSide(item, service))
		}
		return out
	default:
		return value
	}
}

// mentions reports whether a text in a JSON value contains a name.
func mentions(value any, name string) bool {
	switch value := value.(type) {
	case string:
		return strings.Contains(value, name)
	case map[string]any:
		for _, item := range value {
			if mentions(item, name) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, func(item any) bool { return mentions(item, name) })
	}
	return false
}

// HandOver writes the objects that the function HandOver returns. Without a difference it writes nothing. Errors: those of HandOver
// and of Client.
func (a *Applier) HandOver(ctx context.Context, rd Renderer, t Target) error {
	existing, err := a.find(ctx, rd, t, release.Route{})
	if err != nil {
		return err
	}
	desired, err := HandOver(rd, t, existing)
	if err != nil {
		return err
	}
	_, err = a.write(ctx, t, existing, desired, nil)
	return err
}
