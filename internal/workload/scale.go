package workload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// UpFromZero gives the target pods if it has none: as many as the primary has, or, where an autoscaler is named, as few
// as that one allows. A target that has pods keeps them, however many.
func (d *Deployments) UpFromZero(ctx context.Context, c *flaggerv1.Canary) error {
	target, primary, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return unusable(missing(c))
	}
	if integer(target.Object, 1, "spec", "replicas") > 0 {
		return nil
	}
	replicas := int64(1)
	switch {
	case c.Spec.AutoscalerRef != nil:
		scaler, problem, err := d.sourceScaler(ctx, c)
		if err != nil {
			return err
		}
		if problem != "" {
			return unusable(problem)
		}
		replicas = integer(scaler.Object, 1, "spec", "minReplicas")
	case primary != nil:
		replicas = integer(primary.Object, 1, "spec", "replicas")
	}
	return d.scale(ctx, c, target, max(1, replicas))
}

// UpToPrimary gives the target at least as many pods as the primary has: before it takes all of the traffic back.
func (d *Deployments) UpToPrimary(ctx context.Context, c *flaggerv1.Canary) error {
	target, primary, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if target == nil {
		return unusable(missing(c))
	}
	if primary == nil {
		return d.UpFromZero(ctx, c)
	}
	replicas := max(1, integer(primary.Object, 1, "spec", "replicas"))
	if integer(target.Object, 1, "spec", "replicas") >= replicas {
		return nil
	}
	return d.scale(ctx, c, target, replicas)
}

// PrimaryUpFromZero gives the primary pods if it has none: as many as the target has, from which it takes the traffic.
func (d *Deployments) PrimaryUpFromZero(ctx context.Context, c *flaggerv1.Canary) error {
	target, primary, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if primary == nil || integer(primary.Object, 1, "spec", "replicas") > 0 {
		return nil
	}
	replicas := int64(1)
	if target != nil {
		replicas = max(1, integer(target.Object, 1, "spec", "replicas"))
	}
	return d.scale(ctx, c, primary, replicas)
}

// DownToZero takes the target's pods away. Whether traffic has left them is the caller's to know.
func (d *Deployments) DownToZero(ctx context.Context, c *flaggerv1.Canary) error {
	target, _, err := d.both(ctx, c)
	if err != nil {
		return err
	}
	if target == nil || integer(target.Object, 1, "spec", "replicas") == 0 {
		return nil
	}
	return d.scale(ctx, c, target, 0)
}

func (d *Deployments) scale(ctx context.Context, c *flaggerv1.Canary, deployment *unstructured.Unstructured, replicas int64) error {
	scaled, spec := edited(deployment)
	spec["replicas"] = replicas
	err := d.update(ctx, deployment, scaled)
	switch {
	case err == nil:
		return nil
	case replicas == 0:
		return fmt.Errorf("scaling %s.%s to 0 failed: %w", deployment.GetName(), c.Namespace, err)
	default:
		return fmt.Errorf("scaling up %s.%s to %d failed: %w", deployment.GetName(), c.Namespace, replicas, err)
	}
}
