package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/toolkeys"
)

// scalerKind contains the differences between the kinds of autoscaler.
type scalerKind struct {
	kind schema.GroupVersionKind
	// plural is the name of the resource. readName and writeName are the kind in messages about reads and writes.
	plural, readName, writeName string
	// minField and maxField are the fields for minimum and maximum.
	minField, maxField string
	// copiesAnnotations is true if annotations are settings, which are copied to the primary's autoscaler with the labels.
	copiesAnnotations bool
}

var (
	horizontalPodAutoscaler = scalerKind{
		kind:   schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		plural: "horizontalpodautoscalers", readName: "HorizontalPodAutoscaler", writeName: "HorizontalPodAutoscaler v2",
		minField: "minReplicas", maxField: "maxReplicas",
	}
	scaledObject = scalerKind{
		kind:   schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"},
		plural: "scaledobjects", readName: "Keda ScaledObject", writeName: "Keda ScaledObject",
		minField: "minReplicaCount", maxField: "maxReplicaCount",
		copiesAnnotations: true,
	}
)

// scalerOf returns the kind of a Canary's autoscaler; false if there is none, or the kind is unknown.
func scalerOf(c *flaggerv1.Canary) (scalerKind, bool) {
	if c.Spec.AutoscalerRef == nil {
		return scalerKind{}, false
	}
	for _, known := range []scalerKind{horizontalPodAutoscaler, scaledObject} {
		if known.kind.Kind == c.Spec.AutoscalerRef.Kind {
			return known, true
		}
	}
	return scalerKind{}, false
}

// podScaling scales target and primary, and manages their autoscalers.
type podScaling struct{ targetPair }

// EnsureScaler creates the primary's autoscaler, a copy of the target's, if there is none; with update it updates an existing
// one. One that scales the primary of a former target is updated in any case. For a Canary without an autoscaler it does nothing.
func (d podScaling) EnsureScaler(ctx context.Context, c *flaggerv1.Canary, update bool) error {
	if c.Spec.AutoscalerRef == nil {
		return nil
	}
	source, problem, err := d.sourceScaler(ctx, c)
	if err != nil {
		return err
	}
	if problem != "" {
		return newUnusableError(problem)
	}
	scaler, _ := scalerOf(c)
	name := source.GetName() + primarySuffix
	existing, err := d.readCached(ctx, c, scaler.kind, name)
	if err != nil {
		return err
	}
	if existing == nil {
		existing, err = d.createObject(ctx, c, scaler.newPrimaryScaler(c, source))
		if err != nil {
			return fmt.Errorf("creating %s %s.%s failed: %w", scaler.writeName, name, c.Namespace, err)
		}
		if existing == nil {
			return nil
		}
	}
	if !controlledBy(existing, c) && !isOrphanedScaler(c, existing) {
		return newNotOwnedError(c, scaler.kind.Kind, existing)
	}
	wanted := existing.DeepCopy()
	wanted.SetOwnerReferences(withOwner(c, existing.GetOwnerReferences()))
	moved := setScaleTarget(wanted, primaryScaleTarget(c, source))
	if update || moved {
		wanted = scaler.withSourceSpec(c, wanted, source)
	}
	if err := d.updateObject(ctx, existing, wanted); err != nil {
		return fmt.Errorf("updating %s %s.%s failed: %w", scaler.writeName, name, c.Namespace, err)
	}
	return nil
}

// ScalesTarget reports whether the autoscaler in the spec of a Canary scales its target. One that does not exist scales nothing.
func (w *Workloads) ScalesTarget(ctx context.Context, c *flaggerv1.Canary) (bool, error) {
	if c.Spec.AutoscalerRef == nil {
		return false, nil
	}
	source, _, err := w.sourceScaler(ctx, c)
	if errors.Is(err, ErrNotInstalled) || err == nil && source == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	scaled, _, _ := unstructured.NestedStringMap(source.Object, "spec", "scaleTargetRef")
	return scaled["name"] == c.Spec.TargetRef.Name && cmp.Or(scaled["kind"], deploymentKind.Kind) == c.Spec.TargetRef.Kind, nil
}

// sourceScaler returns the autoscaler that the Canary refers to. It is read in the version that the cluster serves,
// whatever version the reference has. problem is a message for the user.
func (w *Workloads) sourceScaler(ctx context.Context, c *flaggerv1.Canary) (source *unstructured.Unstructured, problem string, err error) {
	ref := c.Spec.AutoscalerRef
	scaler, known := scalerOf(c)
	if !known {
		return nil, fmt.Sprintf("spec.autoscalerRef refers to %s %s.%s, but Serin copies only HorizontalPodAutoscalers and ScaledObjects: "+
			"refer to one of those, or remove spec.autoscalerRef", ref.Kind, ref.Name, c.Namespace), nil
	}
	source, err = w.readCached(ctx, c, scaler.kind, ref.Name)
	switch {
	case err != nil:
		return nil, "", err
	case source == nil:
		return nil, fmt.Sprintf("%s %s.%s get query error: %v", scaler.readName, ref.Name, c.Namespace,
			apierrors.NewNotFound(schema.GroupResource{Group: scaler.kind.Group, Resource: scaler.plural}, ref.Name)), nil
	default:
		return source, "", nil
	}
}

// observeScaler sets ScalerProblem, TargetLimit and KindNotInstalled of an observation.
func (d podScaling) observeScaler(ctx context.Context, c *flaggerv1.Canary, o *Observation) error {
	if c.Spec.AutoscalerRef == nil {
		return nil
	}
	source, problem, err := d.sourceScaler(ctx, c)
	if errors.Is(err, ErrNotInstalled) {
		o.ScalerProblem, o.KindNotInstalled = err.Error(), true
		return nil
	}
	o.ScalerProblem = problem
	if source != nil {
		o.TargetLimit = int32(scalerMaximum(c, source)) //nolint:gosec // a number of pods
	}
	return err
}

// scalerMaximum returns the maximum of the autoscaler of a Canary; 0: it has none.
func scalerMaximum(c *flaggerv1.Canary, source *unstructured.Unstructured) int64 {
	scaler, _ := scalerOf(c)
	return intOrDefault(source.Object, 0, "spec", scaler.maxField)
}

// newPrimaryScaler returns the primary's autoscaler to create.
func (of scalerKind) newPrimaryScaler(c *flaggerv1.Canary, source *unstructured.Unstructured) *unstructured.Unstructured {
	obj := newObject(of.kind, c.Namespace, source.GetName()+primarySuffix)
	obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
	obj.Object["spec"] = map[string]any{"scaleTargetRef": primaryScaleTarget(c, source)}
	return of.withSourceSpec(c, obj, source)
}

// primaryScaleTarget returns the scale target of the primary's autoscaler.
func primaryScaleTarget(c *flaggerv1.Canary, source *unstructured.Unstructured) map[string]any {
	target, _, _ := unstructured.NestedMap(source.Object, "spec", "scaleTargetRef")
	if target == nil {
		target = map[string]any{}
	}
	target["name"] = c.Spec.TargetRef.Name + primarySuffix
	return target
}

// setScaleTarget sets the scale target of an autoscaler that scales another workload, and reports whether it did.
func setScaleTarget(scaler *unstructured.Unstructured, target map[string]any) bool {
	current, _, _ := unstructured.NestedMap(scaler.Object, "spec", "scaleTargetRef")
	if current["name"] == target["name"] && current["kind"] == target["kind"] {
		return false
	}
	return unstructured.SetNestedMap(scaler.Object, target, "spec", "scaleTargetRef") == nil
}

// withSourceSpec returns the primary's autoscaler with the current spec of the source, except for the scale target and the
// bounds that the Canary sets. Later, only the fields written here are compared.
func (of scalerKind) withSourceSpec(c *flaggerv1.Canary, existing, source *unstructured.Unstructured) *unstructured.Unstructured {
	updated := existing.DeepCopy()
	updated.SetLabels(nilIfEmpty(copiedMetadata(existing.GetLabels(), source.GetLabels())))
	if of.copiesAnnotations {
		updated.SetAnnotations(nilIfEmpty(copiedMetadata(existing.GetAnnotations(), source.GetAnnotations())))
	}
	spec, _, _ := unstructured.NestedMap(source.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	delete(spec, "scaleTargetRef")
	if target, found, _ := unstructured.NestedFieldCopy(existing.Object, "spec", "scaleTargetRef"); found {
		spec["scaleTargetRef"] = target
	}
	updated.Object["spec"] = spec
	if of.kind == scaledObject.kind {
		renameTriggerQueries(c, spec)
		renameGeneratedAutoscaler(spec)
	}
	if bounds := c.Spec.AutoscalerRef.PrimaryScalerReplicas; bounds != nil {
		if bounds.MinReplicas != nil {
			spec[of.minField] = int64(*bounds.MinReplicas)
		}
		if bounds.MaxReplicas != nil {
			spec[of.maxField] = int64(*bounds.MaxReplicas)
		}
	}
	return updated
}

// copiedMetadata returns the labels or annotations of a copy: those of its source that do not describe the source itself, and
// those that the controller of the copy set.
func copiedMetadata(live, source map[string]string) map[string]string {
	kept := withoutKeys(live, func(key string) bool { return !strings.HasPrefix(key, kedaOwnPrefix) })
	maps.Copy(kept, withoutKeys(source, func(key string) bool {
		return toolkeys.IsToolKey(key) || strings.HasPrefix(key, kedaOwnPrefix) || strings.HasPrefix(key, kedaPausedPrefix)
	}))
	return kept
}

// isOrphanedScaler reports whether an autoscaler without a controller scales the primary: it remains from an earlier Canary.
func isOrphanedScaler(c *flaggerv1.Canary, scaler *unstructured.Unstructured) bool {
	name, _, _ := unstructured.NestedString(scaler.Object, "spec", "scaleTargetRef", "name")
	return metav1.GetControllerOf(scaler) == nil && name == c.Spec.TargetRef.Name+primarySuffix
}

// withOwner makes the Canary the controller of an object that has none.
func withOwner(c *flaggerv1.Canary, owners []metav1.OwnerReference) []metav1.OwnerReference {
	for _, owner := range owners {
		if owner.Controller != nil && *owner.Controller {
			return owners
		}
	}
	return append(owners, ownedBy(c))
}
