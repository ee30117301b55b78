package controller

import (
	"errors"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
)

// decide asks the state machine for the decision about an observed Rollout.
func (r *Reconciler) decide(s *observation) rollout.Decision {
	return r.frame.Decide(func() rollout.Decision { return rollout.Next(s.snapshot) })
}

// decideOnFailure returns the decision about an effect that failed, if the failure is part of the state of the release.
// Otherwise, it returns the failure.
func (r *Reconciler) decideOnFailure(s *observation, evaluated release.Gates, cause error) (rollout.Decision, error) {
	if rejected, ok := errors.AsType[*rejectedReplicaSetError](cause); ok {
		return rollout.RejectedReplicaSetDecision(s.snapshot, rejected.name, rejected.cause.Error()), nil
	}
	switch {
	case errors.Is(cause, errNameTaken):
		return rollout.NameConflictDecision(s.snapshot), nil
	case errors.Is(cause, traffic.ErrUnreachable):
		r.Metrics.CountReconcileFailure(argov1.RolloutKind, s.key())
		return rollout.UnreachableClusterDecision(s.snapshot, evaluated, reconciler.Message(cause)), nil
	case reconciler.NeedsUser(cause), reconciler.IsRejected(cause):
		r.Metrics.CountReconcileFailure(argov1.RolloutKind, s.key())
		return rollout.RejectedEffectDecision(s.snapshot, evaluated, reconciler.Message(cause)), nil
	default:
		return rollout.Decision{}, cause
	}
}
