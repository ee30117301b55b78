package workload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// UpFromZero gives the target pods if it has none: as many as the primary has, or, where an autoscaler is named, as few
// as that one allows. A target that has pods keeps them, however many.
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

// UpToPrimary gives the target at least as many pods as the primary has: before it takes all of the traffic back.
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

// PrimaryUpFromZero gives the primary pods if it has none: as many as the target has, from which it takes the traffic.
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

// DownToZero takes the target's pods away. Whether traffic has left them is the caller's to know.
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
