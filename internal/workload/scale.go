package workload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// UpFromZero scales up a target without pods: to the number of pods of the primary, or, with an autoscaler, to its
// minimum. A target that has pods is unchanged.
func (d templated) UpFromZero(ctx context.Context, c *flaggerv1.Canary) error {
	target, primary, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return unusable(d.missing(c))
	}
	if d.form.asked(target) > 0 {
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
			return unusable(problem)
		}
		of, _ := scalerOf(c)
		replicas = integer(source.Object, 1, "spec", of.least)
	case primary != nil:
		replicas = d.form.asked(primary)
	}
	return d.scale(ctx, c, target, max(1, replicas))
}

// UpToPrimary scales the target up to at least the number of pods of the primary, before it receives all of the
// traffic.
func (d templated) UpToPrimary(ctx context.Context, c *flaggerv1.Canary) error {
	target, primary, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return unusable(d.missing(c))
	}
	if primary == nil {
		return d.UpFromZero(ctx, c)
	}
	replicas := max(1, d.form.asked(primary))
	if d.form.asked(target) >= replicas {
		return nil
	}
	return d.scale(ctx, c, target, replicas)
}

// PrimaryUpFromZero scales up a primary without pods to the number of pods of the target, whose traffic it is about to
// receive.
func (d templated) PrimaryUpFromZero(ctx context.Context, c *flaggerv1.Canary) error {
	target, primary, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if primary == nil || d.form.asked(primary) > 0 {
		return nil
	}
	replicas := int64(1)
	if target != nil {
		replicas = max(1, d.form.asked(target))
	}
	return d.scale(ctx, c, primary, replicas)
}

// DownToZero scales the target to zero. The caller must make sure that it has no traffic.
func (d templated) DownToZero(ctx context.Context, c *flaggerv1.Canary) error {
	target, _, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if target == nil || d.form.asked(target) == 0 {
		return nil
	}
	return d.scale(ctx, c, target, 0)
}

func (d templated) scale(ctx context.Context, c *flaggerv1.Canary, obj *unstructured.Unstructured, replicas int64) error {
	err := d.update(ctx, obj, d.form.scaled(obj, replicas))
	switch {
	case err == nil:
		return nil
	case replicas == 0:
		return fmt.Errorf("scaling %s.%s to 0 failed: %w", obj.GetName(), c.Namespace, err)
	default:
		return fmt.Errorf("scaling up %s.%s to %d failed: %w", obj.GetName(), c.Namespace, replicas, err)
	}
}
