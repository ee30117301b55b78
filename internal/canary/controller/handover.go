package controller

import (
	"context"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
)

// HandOver prepares an idle Canary for a deletion after which its target serves: the objects that clients use, and that would be
// deleted with the Canary, become the user's. Nothing is rerouted before the deletion. With clients that write nothing, in the
// Observer and its parts, it shows what would be written.
func (o *Observer) HandOver(ctx context.Context, object *flaggerv1.Canary, now time.Time) error {
	s, err := o.observe(ctx, object.DeepCopy(), now, canary.OtherController{})
	if err != nil {
		return err
	}
	if err := o.Workloads.ForCanary(s.object).HandOverServices(ctx, s.object); err != nil || s.renderer == nil {
		return err
	}
	return o.Applier.HandOver(ctx, s.renderer, s.target)
}
