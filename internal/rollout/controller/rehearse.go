package controller

import (
	"context"
	"errors"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
)

// Rehearsal contains the snapshot and the decision of a reconciliation without its writes.
type Rehearsal struct {
	Snapshot rollout.Snapshot
	Decision rollout.Decision
	// Refused is the error that prevented an effect, if the user must fix it; nil: none.
	Refused error
}

// Snapshot returns the observed state of a Rollout. Observation adopts and releases ReplicaSets: with a client that writes
// nothing, they are unchanged.
func (o *Observer) Snapshot(ctx context.Context, object *argov1.Rollout, now time.Time) (rollout.Snapshot, error) {
	s, err := New(Parts{Observer: *o}).observe(ctx, object, now)
	if err != nil {
		return rollout.Snapshot{}, err
	}
	return s.snapshot, nil
}

// Rehearse performs one reconciliation of a Rollout without the write of its status. With clients that write nothing, it shows
// what a reconciliation would write.
func (o *Observer) Rehearse(ctx context.Context, object *argov1.Rollout, now time.Time) (Rehearsal, error) {
	r := New(Parts{Observer: *o})
	s, err := r.observe(ctx, object, now)
	if err != nil {
		return Rehearsal{}, err
	}
	out := Rehearsal{Snapshot: s.snapshot, Decision: rollout.Next(s.snapshot)}
	_, err = r.applier.applyEffects(ctx, s, out.Decision.Effects)
	var refused *rejectedReplicaSetError
	switch {
	case errors.As(err, &refused), reconciler.NeedsUser(err), reconciler.IsRejected(err):
		out.Refused = err
	case err != nil:
		return Rehearsal{}, err
	}
	return out, nil
}
