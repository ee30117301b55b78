package controller

import (
	"context"
	"errors"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
)

// Rehearsal is what a pass over a Rollout would find, and do.
type Rehearsal struct {
	Snapshot rollout.Snapshot
	Decision rollout.Decision
	// Refused is what kept an effect from being made true, where a person has to act on it; nil: nothing.
	Refused error
}

// Snapshot is what is seen of a Rollout. The clients of the Observer decide what becomes of ReplicaSets that a look takes in
// or lets go: with one that writes nothing, nothing.
func (o *Observer) Snapshot(ctx context.Context, object *argov1.Rollout, now time.Time) (rollout.Snapshot, error) {
	s, err := New(Parts{Observer: *o}).observe(ctx, object, now)
	if err != nil {
		return rollout.Snapshot{}, err
	}
	return s.snapshot, nil
}

// Rehearse is one pass over a Rollout up to, and without, the write of its status. With clients that write nothing it shows
// what a pass would write.
func (o *Observer) Rehearse(ctx context.Context, object *argov1.Rollout, now time.Time) (Rehearsal, error) {
	r := New(Parts{Observer: *o})
	s, err := r.observe(ctx, object, now)
	if err != nil {
		return Rehearsal{}, err
	}
	out := Rehearsal{Snapshot: s.snapshot, Decision: rollout.Next(s.snapshot)}
	_, err = r.apply(ctx, s, out.Decision.Effects)
	var refused *refusedError
	switch {
	case errors.As(err, &refused), isSentence(err):
		out.Refused = err
	case err != nil:
		return Rehearsal{}, err
	}
	return out, nil
}
