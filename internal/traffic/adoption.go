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
	// OriginalAnnotation stores, on an object that was not created for the release, its state before the first change.
	OriginalAnnotation = "serin.dev/original"
	// CanaryAnnotation names the Canary, as namespace/name, on objects that cannot have an owner reference to it.
	CanaryAnnotation = "serin.dev/canary"

	flaggerOriginal = "flagger.kubernetes.io/original-configuration"
	lastApplied     = "kubectl.kubernetes.io/last-applied-configuration"
	fluxReconcile   = "kustomize.toolkit.fluxcd.io/reconcile"
	fluxDrift       = "helm.toolkit.fluxcd.io/driftDetection"
	disabled        = "disabled"
)

// maxOriginal is the limit of OriginalAnnotation, in bytes: all annotations of an object together may have 256 KiB.
const maxOriginal = 64 << 10

// original is the value of OriginalAnnotation.
type original struct {
	Canary      string            `json:"canary"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        map[string]any    `json:"spec,omitempty"`
}

// Adopt returns a copy of an existing object to render the route of a Canary into, or a new object with nothing but its name.
// It refuses an object with another owner with ErrNotOwned. An object that the release adopts records its original state: its
// spec, or only these fields of it.
func (x Lookup) Adopt(t Target, specKeys ...string) (*unstructured.Unstructured, error) {
	if x.Object == nil {
		return x.Ref.newObject(), nil
	}
	obj := x.Object.DeepCopy()
	choose := "choose another name in spec.service.name"
	if x.Ref.Shared {
		choose = "choose another target"
	}
	annotation, named := otherCanary(t, x.Object)
	switch controller := otherController(t, x.Object); {
	case controller != "" && x.Ref.Shared:
		return nil, Refuse(ErrNotOwned, "%s is controlled by %s, which would undo every change: %s", x.Ref, controller, choose)
	case controller != "":
		return nil, Refuse(ErrNotOwned, "%s is controlled by %s: delete it, or %s", x.Ref, controller, choose)
	case annotation != "": // whose deletion does not delete the object
		return nil, Refuse(ErrNotOwned, "%s belongs to Canary %s, which its annotation %s names: %s, or, if that Canary no longer exists, replace its name in the annotation by %s",
			x.Ref, named, annotation, choose, t.canaryKey())
	case t.Owns(x.Object):
		return obj, nil
	case x.Ref.Derived && !isHandedOver(x.Object):
		return nil, Refuse(ErrNotOwned, "%s was not created for Canary %s.%s: delete it, or hand it over with the annotation %s: %s",
			x.Ref, t.Canary.Name, t.Namespace, CanaryAnnotation, t.canaryKey())
	default:
		return obj, recordOriginal(t, x.Ref, obj, specKeys)
	}
}

// hasOtherOwner reports whether an object belongs to another owner, so that this release must not change it.
func hasOtherOwner(t Target, obj *unstructured.Unstructured) bool {
	annotation, _ := otherCanary(t, obj)
	return annotation != "" || otherController(t, obj) != ""
}

// otherController names the controller in the owner references of an object; empty if there is none, or it is this release.
func otherController(t Target, obj *unstructured.Unstructured) string {
	owner := metav1.GetControllerOf(obj)
	switch {
	case owner == nil || owner.UID == t.Canary.UID:
		return ""
	case owner.Kind == flaggerv1.CanaryKind && owner.Name == t.Canary.Name:
		return fmt.Sprintf("an earlier %s %s", owner.Kind, owner.Name)
	default:
		return owner.Kind + " " + owner.Name
	}
}

// otherCanary returns another Canary that an annotation of an object without a controller names, and the annotation; empty if there
// is none.
func otherCanary(t Target, obj *unstructured.Unstructured) (annotation, key string) {
	if metav1.GetControllerOf(obj) != nil {
		return "", ""
	}
	if key := obj.GetAnnotations()[CanaryAnnotation]; key != "" && key != t.canaryKey() {
		return CanaryAnnotation, key
	}
	if before, err := originalOf(obj); err == nil && before.Canary != t.canaryKey() {
		return OriginalAnnotation, before.Canary
	}
	return "", ""
}

// recordOriginal writes OriginalAnnotation once. An object that Flagger had adopted has Flagger's state and not the user's,
// so it is not recorded: only what Flagger recorded itself is known.
func recordOriginal(t Target, ref Ref, obj *unstructured.Unstructured, specKeys []string) error {
	annotations := obj.GetAnnotations()
	if _, ok := annotations[OriginalAnnotation]; ok || adoptedByFlagger(annotations) {
		return nil
	}
	before := original{Canary: t.canaryKey(), Labels: obj.GetLabels(), Annotations: map[string]string{}}
	for key, value := range annotations {
		if key != lastApplied { // never changed by Serin, and as large as the object
			before.Annotations[key] = value
		}
	}
	before.Spec, _, _ = unstructured.NestedMap(obj.Object, "spec")
	if len(specKeys) > 0 {
		maps.DeleteFunc(before.Spec, func(key string, _ any) bool { return !slices.Contains(specKeys, key) })
	}
	text, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("record original of %s: %w", ref, err)
	}
	if len(text) > maxOriginal {
		if !t.Canary.Spec.RevertOnDeletion {
			return nil
		}
		return Refuse(ErrInvalid,
			"%s has %d bytes, too many to be recorded and restored: set spec.revertOnDeletion to false, or make it smaller than %d bytes",
			ref, len(text), maxOriginal)
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[OriginalAnnotation] = string(text)
	obj.SetAnnotations(annotations)
	return nil
}

func adoptedByFlagger(annotations map[string]string) bool {
	if _, ok := annotations[flaggerOriginal]; ok {
		return true
	}
	_, applied := annotations[lastApplied]
	return applied && annotations[fluxReconcile] == disabled && annotations[fluxDrift] == disabled
}

// CreatedByFlagger reports, for an object that cannot have an owner reference, whether Flagger created it and it has not been
// adopted since: it has Flagger's annotations, and none that indicates that a user applied it.
func CreatedByFlagger(obj *unstructured.Unstructured) bool {
	annotations := obj.GetAnnotations()
	for _, key := range []string{lastApplied, OriginalAnnotation, CanaryAnnotation} {
		if _, ok := annotations[key]; ok {
			return false
		}
	}
	return metav1.GetControllerOf(obj) == nil && annotations[fluxReconcile] == disabled && annotations[fluxDrift] == disabled
}

// MarkedAsOwned returns a copy of such an object with the annotation that marks it as created for this release.
func MarkedAsOwned(t Target, obj *unstructured.Unstructured) *unstructured.Unstructured {
	out := obj.DeepCopy()
	out.SetAnnotations(merged(out.GetAnnotations(), map[string]string{CanaryAnnotation: t.canaryKey()}))
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

// isHandedOver reports whether HandOver has made a derived object independent of its Canary: of these objects, only HandOver
// records an original state.
func isHandedOver(obj *unstructured.Unstructured) bool {
	_, err := originalOf(obj)
	return err == nil
}

// Original returns what Written.Original returns where the renderer writes these fields of the spec, and no annotation of its
// own.
func (x Lookup) Original(t Target, spec Fields) (*unstructured.Unstructured, error) {
	return Written{Spec: spec}.Original(t, x)
}

// Written names what a renderer writes into an object in addition to the metadata that SetApexMetadata writes.
type Written struct {
	Spec        Fields
	Annotations []string
	// NoApexMetadata is true if the renderer does not call SetApexMetadata.
	NoApexMetadata bool
}

// Original returns the object as it was before the release adopted it: what the renderer writes has its former value, and what
// other tools added remains. Nil means that the object must not exist. Errors: ErrNoOriginal.
func (w Written) Original(t Target, x Lookup) (*unstructured.Unstructured, error) {
	switch {
	case x.Object == nil:
		return nil, nil
	case metav1.GetControllerOf(x.Object) != nil || hasOtherOwner(t, x.Object):
		return x.Object.DeepCopy(), nil
	case t.Owns(x.Object):
		return nil, nil
	case x.Ref.Derived && !isHandedOver(x.Object):
		return x.Object.DeepCopy(), nil
	}
	obj := x.Object.DeepCopy()
	if before, err := originalOf(obj); err == nil {
		resetSpec(obj, before.Spec, w.Spec)
		labels, annotations := map[string]string{}, map[string]string{}
		if !w.NoApexMetadata {
			labels, annotations = apexMetadata(t)
		}
		for _, key := range append([]string{OriginalAnnotation}, w.Annotations...) {
			annotations[key] = ""
		}
		obj.SetLabels(resetMetadata(obj.GetLabels(), before.Labels, labels))
		obj.SetAnnotations(resetMetadata(obj.GetAnnotations(), before.Annotations, annotations))
		return obj, nil
	}
	spec, known := flaggerSpec(obj.GetAnnotations())
	if known {
		resetSpec(obj, spec, w.Spec)
		return obj, nil
	}
	if !w.NoApexMetadata && obj.GetAnnotations()[fluxReconcile] == disabled { // adopted, not only read
		return obj, Refuse(ErrNoOriginal, "%s has no record of its original state: it is unchanged, correct it by hand", x.Ref)
	}
	return obj, nil
}

// Originals returns the originals of all objects that the renderer of a Canary writes. written returns the fields that it
// writes into the object at an index.
func (o Objects) Originals(t Target, written func(i int) Written) ([]*unstructured.Unstructured, error) {
	out := o.Unchanged()
	var unknown error
	for i, x := range o {
		if !x.Ref.Owned && !x.Ref.Shared {
			continue
		}
		obj, err := written(i).Original(t, x)
		if err != nil {
			unknown = err
		}
		out[i] = obj
	}
	return out, unknown
}

// flaggerSpec returns the spec that Flagger would restore in an object that it took over: the one that kubectl applied, or else the
// one that Flagger recorded itself. An object without a mark of a takeover may differ from what kubectl applied, because something
// else changed it.
func flaggerSpec(annotations map[string]string) (map[string]any, bool) {
	if _, recorded := annotations[flaggerOriginal]; !recorded && annotations[fluxReconcile] != disabled {
		return nil, false
	}
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

// resetSpec sets the fields that the renderer writes to their former values. Fields that other tools added inside of them since
// then remain, except in objects that the former values do not have.
func resetSpec(obj *unstructured.Unstructured, before map[string]any, fields Fields) {
	spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	if before == nil { // the object had no spec
		before = map[string]any{}
	}
	WriteFields(spec, before, fields)
	obj.Object["spec"] = spec
}

// resetMetadata sets each of our keys to its former value, or removes it; other keys are unchanged. Empty becomes nil, which
// removes the field.
func resetMetadata(live, before, ours map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range live {
		if _, written := ours[key]; !written {
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

// SetApexMetadata sets on the object of a route what users of the apex expect: its labels and annotations, the selector label,
// and the annotations that prevent GitOps tools from reverting a release. Other keys are unchanged.
func SetApexMetadata(t Target, obj *unstructured.Unstructured) {
	labels, annotations := apexMetadata(t)
	if len(labels) > 0 {
		obj.SetLabels(merged(obj.GetLabels(), labels))
	}
	obj.SetAnnotations(merged(obj.GetAnnotations(), annotations))
}

// PreventDriftCorrection sets, on an object without the metadata of the apex, the annotations that prevent GitOps tools from
// reverting a release.
func PreventDriftCorrection(obj *unstructured.Unstructured) {
	obj.SetAnnotations(merged(obj.GetAnnotations(), driftAnnotations()))
}

func driftAnnotations() map[string]string {
	return map[string]string{fluxReconcile: disabled, fluxDrift: disabled}
}

// CopyMetadata copies labels and annotations of the user's object to a copy of it, except for the keys of tools. Annotations
// that the provider reads (readByProvider) are exactly those of the user's object; other annotations that other tools set on
// the copy remain.
func CopyMetadata(obj, user *unstructured.Unstructured, readByProvider func(annotation string) bool) {
	if labels := withoutTools(user.GetLabels()); len(labels) > 0 {
		obj.SetLabels(merged(obj.GetLabels(), labels))
	}
	annotations := obj.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return readByProvider(key) })
	if annotations = merged(annotations, withoutTools(user.GetAnnotations())); len(annotations) == 0 {
		annotations = nil
	}
	obj.SetAnnotations(annotations)
}

func withoutTools(keys map[string]string) map[string]string {
	out := maps.Clone(keys)
	maps.DeleteFunc(out, func(key, _ string) bool { return toolkeys.IsToolKey(key) })
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
	return labels, merged(annotations, driftAnnotations())
}
