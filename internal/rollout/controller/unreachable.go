package controller

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
)

// unreachableRetry is the interval between attempts to read a route in a cluster that does not respond.
const unreachableRetry = 10 * time.Second

// reportUnreachable ends the reconciliation of a Rollout whose route is in a cluster that does not respond. Nothing can be
// decided; the gates in the status contain the reason.
func (r *Reconciler) reportUnreachable(ctx context.Context, object *argov1.Rollout, began time.Time, cause error) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(object)
	r.Metrics.CountReconcileFailure(argov1.RolloutKind, key)
	s := &observation{object: object, spec: object.Spec, snapshot: rollout.Snapshot{Now: began, Status: object.Status}}
	if err := r.observeFormerRouters(s, nil); err != nil { // the status records them
		return r.frame.RetryLater(ctx, key, err)
	}
	decision := rollout.UnreachableClusterDecision(s.snapshot, nil, reconciler.Message(cause))
	explanation := r.memory.explain(s, decision)
	if _, err := r.status.write(ctx, s, decision, explanation, explanation.Due); err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	r.reporter.recordNew(ctx, s, decision.Events)
	return reconcile.Result{RequeueAfter: reconciler.RequeueDelay(began, reconciler.Earliest(explanation.At, began.Add(unreachableRetry)))}, nil
}
