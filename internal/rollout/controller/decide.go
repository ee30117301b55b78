package controller

import (
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
)

// failed is the decision about the failure of an effect, where that is a part of what is known of the release; otherwise, it is
// the failure itself.
func (r *Reconciler) failed(s *seen, evaluated release.Gates, cause error) (rollout.Decision, error) {
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

// leaveTo ends a reconciliation because another controller acts on the Rollout. Serin still rolls its own release back, for
// example at a deadline.
func (r *Reconciler) leaveTo(other othercontroller.Sign, s *seen, d rollout.Decision) reconcile.Result {
	releases.Settle(r.Line, s.object, s.object, false)
	wake := other.Until
	if d.Wake.After(s.snapshot.Now) {
		wake = reconciler.Earliest(wake, d.Wake)
	}
	return reconcile.Result{RequeueAfter: reconciler.WakeIn(s.snapshot.Now, wake)}
}
