package workload

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/toolkeys"
)

// EnsureScaler makes the primary's autoscaler, a copy of the target's, when there is none; with update it brings an
// existing one up to date. Without a named autoscaler there is nothing to do.
func (d *Deployments) EnsureScaler(ctx context.Context, c *flaggerv1.Canary, update bool) error {
	if c.Spec.AutoscalerRef == nil {
		return nil
	}
	source, problem, err := d.sourceScaler(ctx, c)
	if err != nil {
		return err
	}
	if problem != "" {
		return unusable(problem)
	}
	name := source.GetName() + suffix
	existing, err := d.read(ctx, c, scalerKind, name)
	if err != nil {
		return err
	}
	if existing == nil {
		existing, err = d.create(ctx, c, newScaler(c, source))
		if err != nil {
			return fmt.Errorf("creating HorizontalPodAutoscaler v2 %s.%s failed: %w", name, c.Namespace, err)
		}
		if existing == nil {
			return nil
		}
	}
	if !controlledBy(existing, c) && !scalesOrphan(c, existing) {
		return foreign(c, "HorizontalPodAutoscaler", existing)
	}
	wanted := existing.DeepCopy()
	wanted.SetOwnerReferences(withOwner(c, existing.GetOwnerReferences()))
	if update {
		wanted = updatedScaler(c, wanted, source)
	}
	if err := d.update(ctx, existing, wanted); err != nil {
		return fmt.Errorf("updating HorizontalPodAutoscaler v2 %s.%s failed: %w", name, c.Namespace, err)
	}
	return nil
}

// PauseScaler does nothing: Kubernetes leaves a workload alone that has no replicas.
func (d *Deployments) PauseScaler(context.Context, *flaggerv1.Canary) error { return nil }

// ResumeScaler does nothing, as PauseScaler does.
func (d *Deployments) ResumeScaler(context.Context, *flaggerv1.Canary) error { return nil }

// sourceScaler is the autoscaler that the Canary names. It is read in the version that is served, whatever version the
// reference says. problem is for a person.
func (d *Deployments) sourceScaler(ctx context.Context, c *flaggerv1.Canary) (scaler *unstructured.Unstructured, problem string, err error) {
	ref := c.Spec.AutoscalerRef
	if ref.Kind != scalerKind.Kind {
		return nil, fmt.Sprintf("spec.autoscalerRef names %s %s.%s, and this version of Serin copies only HorizontalPodAutoscalers: "+
			"name one of those, or remove spec.autoscalerRef", ref.Kind, ref.Name, c.Namespace), nil
	}
	scaler, err = d.read(ctx, c, scalerKind, ref.Name)
	if err != nil {
		return nil, "", err
	}
	if scaler == nil {
		return nil, fmt.Sprintf("HorizontalPodAutoscaler %s.%s get query error: %v", ref.Name, c.Namespace,
			apierrors.NewNotFound(scalers, ref.Name)), nil
	}
	return scaler, "", nil
}

// scalerProblem says why the autoscaler cannot be used; empty when it can, or none is named.
func (d *Deployments) scalerProblem(ctx context.Context, c *flaggerv1.Canary) (string, error) {
	if c.Spec.AutoscalerRef == nil {
		return "", nil
	}
	_, problem, err := d.sourceScaler(ctx, c)
	return problem, err
}

// scaledFields of an autoscaler's spec are the same for the primary, but for the bounds that the Canary gives.
var scaledFields = []string{"minReplicas", "maxReplicas", "metrics", "behavior"}

// newScaler is the primary's autoscaler as it is made.
func newScaler(c *flaggerv1.Canary, source *unstructured.Unstructured) *unstructured.Unstructured {
	scaler := newObject(scalerKind, c.Namespace, source.GetName()+suffix)
	scaler.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})
	scaler.Object["spec"] = map[string]any{}
	scaler = updatedScaler(c, scaler, source)
	target, _, _ := unstructured.NestedMap(source.Object, "spec", "scaleTargetRef")
	if target == nil {
		target = map[string]any{}
	}
	target["name"] = c.Spec.TargetRef.Name + suffix
	scaler.Object["spec"].(map[string]any)["scaleTargetRef"] = target //nolint:forcetypeassert // made above
	return scaler
}

// updatedScaler is the primary's autoscaler with what the source says now. Only what is written is compared, later on.
func updatedScaler(c *flaggerv1.Canary, scaler, source *unstructured.Unstructured) *unstructured.Unstructured {
	updated := scaler.DeepCopy()
	updated.SetLabels(orNil(without(source.GetLabels(), toolkeys.Is)))
	spec, ok := updated.Object["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		updated.Object["spec"] = spec
	}
	for _, field := range scaledFields {
		delete(spec, field)
		if value, found, _ := unstructured.NestedFieldCopy(source.Object, "spec", field); found {
			spec[field] = value
		}
	}
	if bounds := c.Spec.AutoscalerRef.PrimaryScalerReplicas; bounds != nil {
		if bounds.MinReplicas != nil {
			spec["minReplicas"] = int64(*bounds.MinReplicas)
		}
		if bounds.MaxReplicas != nil {
			spec["maxReplicas"] = int64(*bounds.MaxReplicas)
		}
	}
	return updated
}

// scalesOrphan is true for an autoscaler that nothing controls and that scales our primary: one that an earlier Canary
// left behind when it was deleted without what it owned.
func scalesOrphan(c *flaggerv1.Canary, scaler *unstructured.Unstructured) bool {
	name, _, _ := unstructured.NestedString(scaler.Object, "spec", "scaleTargetRef", "name")
	return metav1.GetControllerOf(scaler) == nil && name == c.Spec.TargetRef.Name+suffix
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
