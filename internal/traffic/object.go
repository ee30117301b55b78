package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/toolkeys"
)

// Annotations that this package writes or reads.
const (
	// OriginalAnnotation has, on an object that was not made for the release, what it was before the first change.
	OriginalAnnotation = "serin.dev/original"
	// CanaryAnnotation names the Canary, as namespace/name, on objects that cannot have an owner reference to it.
	CanaryAnnotation = "serin.dev/canary"

	flaggerOriginal = "flagger.kubernetes.io/original-configuration"
	lastApplied     = "kubectl.kubernetes.io/last-applied-configuration"
	fluxReconcile   = "kustomize.toolkit.fluxcd.io/reconcile"
	fluxDrift       = "helm.toolkit.fluxcd.io/driftDetection"
	disabled        = "disabled"
)

// maxOriginal bounds OriginalAnnotation, in bytes: all annotations of an object together may have 256 KiB.
const maxOriginal = 64 << 10

// original is what OriginalAnnotation says.
type original struct {
	Canary      string            `json:"canary"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        map[string]any    `json:"spec,omitempty"`
}

// Desired is where a renderer begins: a copy of the existing object, or a new one with nothing but its name. It refuses
// an object of somebody else with ErrForeign, and notes on one that the release takes over how it was before: its spec,
// or only these fields of it.
func Desired(t Target, ref Ref, existing *unstructured.Unstructured, specKeys ...string) (*unstructured.Unstructured, error) {
	if existing == nil {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetGroupVersionKind(ref.GVK)
		obj.SetNamespace(ref.Namespace)
		obj.SetName(ref.Name)
		return obj, nil
	}
	obj := existing.DeepCopy()
	switch holder := holderOf(t, existing); {
	case holder != "" && ref.Shared:
		return nil, Refuse(ErrForeign, "%s is controlled by %s, which would undo every change: choose another target", ref, holder)
	case holder != "":
		return nil, Refuse(ErrForeign, "%s is controlled by %s: delete it, or choose another name in spec.service.name", ref, holder)
	case made(t, existing):
		return obj, nil
	case ref.Derived:
		return nil, Refuse(ErrForeign, "%s was not made for Canary %s.%s: delete it, or hand it over with the annotation %s: %s",
			ref, t.Canary.Name, t.Namespace, CanaryAnnotation, t.key())
	default:
		return obj, keepOriginal(t, ref, obj, specKeys)
	}
}

// made says whether the object was made for this release.
func made(t Target, obj *unstructured.Unstructured) bool { return t.owner().made(obj) }

// owner is who has objects made for a Canary.
func (t Target) owner() owner {
	return owner{
		Reference: metav1.OwnerReference{
			APIVersion:         flaggerv1.SchemeGroupVersion.String(),
			Kind:               flaggerv1.CanaryKind,
			Name:               t.Canary.Name,
			UID:                t.Canary.UID,
			Controller:         new(true),
			BlockOwnerDeletion: new(true),
		},
		Annotation: CanaryAnnotation, Value: t.key(), Name: "Canary " + t.key(), Where: "spec.provider",
	}
}

// holderOf names who controls the object, empty when nobody but this release may.
func holderOf(t Target, obj *unstructured.Unstructured) string {
	if owner := metav1.GetControllerOf(obj); owner != nil {
		switch {
		case owner.UID == t.Canary.UID:
			return ""
		case owner.Kind == flaggerv1.CanaryKind && owner.Name == t.Canary.Name:
			return fmt.Sprintf("an earlier %s %s", owner.Kind, owner.Name)
		default:
			return owner.Kind + " " + owner.Name
		}
	}
	if key := obj.GetAnnotations()[CanaryAnnotation]; key != "" && key != t.key() {
		return flaggerv1.CanaryKind + " " + key
	}
	if before, err := originalOf(obj); err == nil && before.Canary != t.key() {
		return flaggerv1.CanaryKind + " " + before.Canary
	}
	return ""
}

func (t Target) key() string { return t.Namespace + "/" + t.Canary.Name }

// keepOriginal writes OriginalAnnotation once. What Flagger had taken over is Flagger's state and not the user's, so it
// is not kept: there, what Flagger left is all that is known.
func keepOriginal(t Target, ref Ref, obj *unstructured.Unstructured, specKeys []string) error {
	annotations := obj.GetAnnotations()
	if _, ok := annotations[OriginalAnnotation]; ok || leftByFlagger(annotations) {
		return nil
	}
	before := original{Canary: t.key(), Labels: obj.GetLabels(), Annotations: map[string]string{}}
	for key, value := range annotations {
		if key != lastApplied { // never touched, and as large as the object
			before.Annotations[key] = value
		}
	}
	before.Spec, _, _ = unstructured.NestedMap(obj.Object, "spec")
	if len(specKeys) > 0 {
		maps.DeleteFunc(before.Spec, func(key string, _ any) bool { return !slices.Contains(specKeys, key) })
	}
	text, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("note original of %s: %w", ref, err)
	}
	if len(text) > maxOriginal {
		if !t.Canary.Spec.RevertOnDeletion {
			return nil
		}
		return Refuse(ErrInvalid,
			"%s has %d bytes, too many to be noted on it and given back: set spec.revertOnDeletion to false, or make it smaller than %d bytes",
			ref, len(text), maxOriginal)
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[OriginalAnnotation] = string(text)
	obj.SetAnnotations(annotations)
	return nil
}

func leftByFlagger(annotations map[string]string) bool {
	if _, ok := annotations[flaggerOriginal]; ok {
		return true
	}
	_, applied := annotations[lastApplied]
	return applied && annotations[fluxReconcile] == disabled && annotations[fluxDrift] == disabled
}

// MadeByFlagger says of an object that cannot have an owner reference whether Flagger made it and nobody has taken it
// over since: it has Flagger's annotations, and nothing that tells of a user who applied it.
func MadeByFlagger(obj *unstructured.Unstructured) bool {
	annotations := obj.GetAnnotations()
	for _, key := range []string{lastApplied, OriginalAnnotation, CanaryAnnotation} {
		if _, ok := annotations[key]; ok {
			return false
		}
	}
	return metav1.GetControllerOf(obj) == nil && annotations[fluxReconcile] == disabled && annotations[fluxDrift] == disabled
}

// Claimed is a copy of such an object that says that it was made for this release.
func Claimed(t Target, obj *unstructured.Unstructured) *unstructured.Unstructured {
	out := obj.DeepCopy()
	out.SetAnnotations(merged(out.GetAnnotations(), map[string]string{CanaryAnnotation: t.key()}))
	return out
}

var errNone = errors.New("none")

func originalOf(obj *unstructured.Unstructured) (original, error) {
	text, ok := obj.GetAnnotations()[OriginalAnnotation]
	if !ok {
		return original{}, errNone
	}
	var before original
	if err := utiljson.Unmarshal([]byte(text), &before); err != nil {
		return original{}, err
	}
	return before, nil
}

// GivenBack is what Ours.GivenBack gives where the renderer writes these fields of the spec, and no annotation of its own.
func GivenBack(t Target, ref Ref, existing *unstructured.Unstructured, specKeys ...string) (*unstructured.Unstructured, error) {
	return Ours{Spec: specKeys}.GivenBack(t, ref, existing)
}

// Ours names what a renderer writes into an object besides the metadata that SetApexMetadata writes.
type Ours struct {
	Spec, Annotations []string
	// Bare is true where the renderer does not call SetApexMetadata.
	Bare bool
}

// GivenBack is the object as it was before the release took it over, as far as that is known: what is ours in it, and
// the metadata that SetApexMetadata writes. Everything else stays as it is.
//
// An object that was made for the release is left to garbage collection, or, where it has no owner reference, shall not
// exist (nil). With ErrNoOriginal the object is unchanged.
func (o Ours) GivenBack(t Target, ref Ref, existing *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	switch {
	case existing == nil:
		return nil, nil
	case metav1.GetControllerOf(existing) != nil || holderOf(t, existing) != "":
		return existing.DeepCopy(), nil
	case made(t, existing):
		return nil, nil
	case ref.Derived:
		return existing.DeepCopy(), nil
	}
	obj := existing.DeepCopy()
	if before, err := originalOf(obj); err == nil {
		resetSpec(obj, before.Spec, o.Spec)
		labels, annotations := map[string]string{}, map[string]string{}
		if !o.Bare {
			labels, annotations = apexMetadata(t)
		}
		for _, key := range append([]string{OriginalAnnotation}, o.Annotations...) {
			annotations[key] = ""
		}
		obj.SetLabels(reset(obj.GetLabels(), before.Labels, labels))
		obj.SetAnnotations(reset(obj.GetAnnotations(), before.Annotations, annotations))
		return obj, nil
	}
	spec, known := flaggerSpec(obj.GetAnnotations())
	if known {
		resetSpec(obj, spec, o.Spec)
		return obj, nil
	}
	if !o.Bare && obj.GetAnnotations()[fluxReconcile] == disabled { // taken over, not only looked at
		return obj, Refuse(ErrNoOriginal, "%s does not say how it was before: it stays as it is, correct it by hand", ref)
	}
	return obj, nil
}

// flaggerSpec is what Flagger would restore: what kubectl applied, else what Flagger noted itself.
func flaggerSpec(annotations map[string]string) (map[string]any, bool) {
	var applied struct {
		Spec map[string]any `json:"spec"`
	}
	if text, ok := annotations[lastApplied]; ok {
		if err := utiljson.Unmarshal([]byte(text), &applied); err == nil && applied.Spec != nil {
			return applied.Spec, true
		}
	}
	var spec map[string]any
	if text, ok := annotations[flaggerOriginal]; ok {
		if err := utiljson.Unmarshal([]byte(text), &spec); err == nil && spec != nil {
			return spec, true
		}
	}
	return nil, false
}

func resetSpec(obj *unstructured.Unstructured, before map[string]any, keys []string) {
	spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	Own(spec, before, keys...)
	obj.Object["spec"] = spec
}

// reset gives each key of ours its former value, or takes it away; the others stay. Empty becomes nil, which removes
// the field.
func reset(live, before, ours map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range live {
		if _, mine := ours[key]; !mine {
			out[key] = value
		}
	}
	for key := range ours {
		if value, had := before[key]; had {
			out[key] = value
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// SetApexMetadata puts on the object of a route what its users find there: labels and annotations of the apex, the
// selector label, and the annotations that keep GitOps tools from putting back what a release changes. Keys of others
// stay.
func SetApexMetadata(t Target, obj *unstructured.Unstructured) {
	labels, annotations := apexMetadata(t)
	if len(labels) > 0 {
		obj.SetLabels(merged(obj.GetLabels(), labels))
	}
	obj.SetAnnotations(merged(obj.GetAnnotations(), annotations))
}

// SetGuards puts on an object that has no metadata of the apex the annotations that keep GitOps tools from putting back
// what a release changes.
func SetGuards(obj *unstructured.Unstructured) {
	obj.SetAnnotations(merged(obj.GetAnnotations(), guards()))
}

func guards() map[string]string {
	return map[string]string{fluxReconcile: disabled, fluxDrift: disabled}
}

// CopyMetadata carries labels and annotations of the user's object over to a copy of it, but for the keys of tools.
// Annotations that are told to the provider (those for which told is true) are then those of the user's and no others;
// of the rest, what others put on the copy stays.
func CopyMetadata(obj, user *unstructured.Unstructured, told func(annotation string) bool) {
	if labels := withoutTools(user.GetLabels()); len(labels) > 0 {
		obj.SetLabels(merged(obj.GetLabels(), labels))
	}
	annotations := obj.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return told(key) })
	if annotations = merged(annotations, withoutTools(user.GetAnnotations())); len(annotations) == 0 {
		annotations = nil
	}
	obj.SetAnnotations(annotations)
}

func withoutTools(keys map[string]string) map[string]string {
	out := maps.Clone(keys)
	maps.DeleteFunc(out, func(key, _ string) bool { return toolkeys.Is(key) })
	return out
}

func apexMetadata(t Target) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	if apex := t.Canary.Spec.Service.Apex; apex != nil {
		labels = merged(labels, apex.Labels)
		annotations = merged(annotations, apex.Annotations)
		if t.SelectorLabel != "" {
			labels[t.SelectorLabel] = t.Apex
		}
	}
	return labels, merged(annotations, guards())
}

func merged(into, from map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	return into
}

// Own sets the keys in obj to what want has, and removes those that want does not have. Other keys stay.
func Own(obj, want map[string]any, keys ...string) {
	for _, key := range keys {
		if value, ok := want[key]; ok {
			obj[key] = value
		} else {
			delete(obj, key)
		}
	}
}

// Maps are the elements of a list that are objects; a list that is absent or something else has none.
func Maps(list any) []map[string]any {
	items, _ := list.([]any)
	out := make([]map[string]any, 0, len(items))
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// List is the value of a list of objects.
func List(items []map[string]any) []any {
	out := make([]any, len(items))
	for i, item := range items {
		out[i] = item
	}
	return out
}

// Number is a number of an object, whichever way it was decoded. An absent one is 0, as in protocol buffers.
func Number(v any) (float64, error) {
	switch n := v.(type) {
	case nil:
		return 0, nil
	case int64:
		return float64(n), nil
	case float64:
		return n, nil
	default:
		return 0, fmt.Errorf("%v is no number", v)
	}
}

// Value is v as the generic values that unstructured objects are made of, by the names of its JSON.
func Value(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", v, err)
	}
	var out any
	if err := utiljson.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("convert %T: %w", v, err)
	}
	return out, nil
}

// Spec is the spec of an object, made where it is missing. It is not a copy.
func Spec(obj *unstructured.Unstructured) map[string]any {
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		obj.Object["spec"] = spec
	}
	return spec
}
