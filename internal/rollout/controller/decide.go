package controller

import (
	"errors"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
)

// decide is the decision about a Rollout as it was observed.
func (r *Reconciler) decide(s *seen) rollout.Decision {
	return r.frame.Decide(func() rollout.Decision { return rollout.Next(s.snapshot) })
}

// decideOnFailure is the decision about the failure of an effect, where that is a part of what is known of the release; otherwise, it is
// the failure itself.
func (r *Reconciler) decideOnFailure(s *seen, evaluated release.Gates, cause error) (rollout.Decision, error) {
	if refusal, ok := errors.AsType[*refusedError](cause); ok {
		return rollout.RejectedReplicaSetDecision(s.snapshot, refusal.name, refusal.cause.Error()), nil
	}
	switch {
	case errors.Is(cause, errTaken):
		return rollout.NameConflictDecision(s.snapshot), nil
	case errors.Is(cause, traffic.ErrUnreachable):
		r.Metrics.CountReconcileFailure(argov1.RolloutKind, s.key())
		return rollout.UnreachableClusterDecision(s.snapshot, evaluated, reconciler.Message(cause)), nil
	case reconciler.NeedsUser(cause), reconciler.Rejected(cause):
		r.Metrics.CountReconcileFailure(argov1.RolloutKind, s.key())
		return rollout.RejectedEffectDecision(s.snapshot, evaluated, reconciler.Message(cause)), nil
	default:
		return rollout.Decision{}, cause
	}
}
