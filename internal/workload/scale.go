package workload

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// UpFromZero scales up a target without pods: to the number of pods of the primary, or, with an autoscaler, to its
// minimum. A target that has pods is unchanged.
func (d podScaling) UpFromZero(ctx context.Context, c *flaggerv1.Canary) error {
	target, primary, err := d.targetAndPrimary(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return newUnusableError(d.missingTargetProblem(c))
	}
	if d.templateKind.desiredReplicas(target) > 0 {
		return nil
	}
	replicas := int64(1)
	switch {
	case c.Spec.AutoscalerRef != nil:
		source, problem, err := d.sourceScaler(ctx, c)
		if err != nil {
			return err
		}
		if problem != "" {
			return newUnusableError(problem)
		}
		scaler, _ := scalerOf(c)
		replicas = intOrDefault(source.Object, 1, "spec", scaler.minField)
	case primary != nil:
		replicas = d.templateKind.desiredReplicas(primary)
	}
	return d.scaleTo(ctx, c, target, max(1, replicas))
}

// UpToPrimary scales the target up to at least the number of pods of the primary, before the target receives all traffic; not beyond
// the maximum of its autoscaler, which would remove the other pods at once.
func (d podScaling) UpToPrimary(ctx context.Context, c *flaggerv1.Canary) error {
	target, primary, err := d.targetAndPrimary(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return newUnusableError(d.missingTargetProblem(c))
	}
	if primary == nil {
		return d.UpFromZero(ctx, c)
	}
	replicas := max(1, d.templateKind.desiredReplicas(primary))
	if c.Spec.AutoscalerRef != nil {
		source, _, err := d.sourceScaler(ctx, c)
		switch {
		case errors.Is(err, ErrNotInstalled), err == nil && source == nil: // nothing limits the target
		case err != nil:
			return err
		default:
			if limit := scalerMaximum(c, source); limit > 0 {
				replicas = min(replicas, limit)
			}
		}
	}
	if d.templateKind.desiredReplicas(target) >= replicas {
		return nil
	}
	return d.scaleTo(ctx, c, target, replicas)
}

// PrimaryUpFromZero scales up a primary without pods to the number of pods of the target, whose traffic it is about to
// receive.
func (d podScaling) PrimaryUpFromZero(ctx context.Context, c *flaggerv1.Canary) error {
	target, primary, err := d.targetAndPrimary(ctx, c)
	if err != nil {
		return err
	}
	if primary == nil || d.templateKind.desiredReplicas(primary) > 0 {
		return nil
	}
	replicas := int64(1)
	if target != nil {
		replicas = max(1, d.templateKind.desiredReplicas(target))
	}
	return d.scaleTo(ctx, c, primary, replicas)
}

// DownToZero scales the target to zero. The caller must make sure that it has no traffic.
func (d podScaling) DownToZero(ctx context.Context, c *flaggerv1.Canary) error {
	target, _, err := d.targetAndPrimary(ctx, c)
	if err != nil {
		return err
	}
	if target == nil || d.templateKind.desiredReplicas(target) == 0 {
		return nil
	}
	return d.scaleTo(ctx, c, target, 0)
}

func (d podScaling) scaleTo(ctx context.Context, c *flaggerv1.Canary, obj *unstructured.Unstructured, replicas int64) error {
	err := d.updateObject(ctx, obj, d.templateKind.withReplicas(obj, replicas))
	switch {
	case err == nil:
		return nil
	case replicas == 0:
		return fmt.Errorf("scaling %s.%s to 0 failed: %w", obj.GetName(), c.Namespace, err)
	default:
		return fmt.Errorf("scaling up %s.%s to %d failed: %w", obj.GetName(), c.Namespace, replicas, err)
	}
}
