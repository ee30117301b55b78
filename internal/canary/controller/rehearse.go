package controller

import (
	"context"
	"errors"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/workload"
)

// Rehearse performs one reconciliation of a Canary without the write of its status. With clients that write nothing, in the
// Observer and its parts, it shows what a reconciliation would write. refused is the error that prevented an effect, if the
// user must fix it.
func (o *Observer) Rehearse(ctx context.Context, object *flaggerv1.Canary, now time.Time) (decision canary.Decision, refused, err error) {
	a := effectApplier{Observer: o}
	s, err := o.observe(ctx, object.DeepCopy(), now, canary.OtherController{})
	if err != nil {
		return canary.Decision{}, nil, err
	}
	decision = canary.Next(s.snapshot)
	for _, effect := range decision.Effects {
		err := a.applyEffect(ctx, s, effect, decision.Status)
		var partial *workload.PartialServiceError
		switch {
		case err == nil, errors.As(err, &partial):
		case reconciler.NeedsUser(err), reconciler.IsRejected(err):
			return decision, err, nil
		default:
			return decision, nil, err
		}
	}
	canary.FillStamps(&decision.Status, s.snapshot.Plan, decision.Stamp, now)
	return decision, nil, nil
}
