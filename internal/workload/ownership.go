package workload

import (
	"context"
	"errors"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// Ownership describes which of the objects that Serin generates or takes over for a target belong to a Canary.
type Ownership struct {
	// Primary is true if the primary belongs to it, Services if at least one of the Services does.
	Primary, Services bool
}

// readOwnership reads from the cache which objects belong to a Canary, whose primary is the given object.
func (w *Workloads) readOwnership(ctx context.Context, c *flaggerv1.Canary, primary Object) (Ownership, error) {
	var owned Ownership
	apex := c.Spec.ApexName()
	for _, object := range []Object{primary, {serviceKind, apex}, {serviceKind, apex + primarySuffix}, {serviceKind, apex + "-canary"}} {
		existing, err := w.readCached(ctx, c, object.Kind, object.Name)
		switch {
		case errors.Is(err, ErrNotInstalled):
		case err != nil:
			return Ownership{}, err
		case existing == nil || !belongsTo(existing, c):
		case object == primary:
			owned.Primary = true
		default:
			owned.Services = true
		}
	}
	return owned, nil
}

// Ownership implements Workload.
func (d templateWorkload) Ownership(ctx context.Context, c *flaggerv1.Canary) (Ownership, error) {
	return d.readOwnership(ctx, c, Object{d.kind(), c.Spec.TargetRef.Name + primarySuffix})
}

// Ownership implements Workload.
func (k serviceWorkload) Ownership(ctx context.Context, c *flaggerv1.Canary) (Ownership, error) {
	return k.readOwnership(ctx, c, Object{serviceKind, c.Spec.ApexName() + primarySuffix})
}

// Ownership implements Workload. The primary is not an object; the router records its Canary on the Service of Knative.
func (k knativeWorkload) Ownership(ctx context.Context, c *flaggerv1.Canary) (Ownership, error) {
	return k.readOwnership(ctx, c, Object{knativeServiceKind, c.Spec.TargetRef.Name})
}
