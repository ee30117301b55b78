package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/shell"
)

// Reconcile is one pass over one Rollout. A panic in it is a fault of Serin, which must cost this release alone: it is
// logged and counted, and the pass is tried again after a while.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("rollout", key.Name+"."+key.Namespace))
	began := r.Clock.Now()
	result, err := shell.Guarded(ctx, func() { r.Metrics.Panicked(argov1.RolloutKind) }, func() (reconcile.Result, error) { return r.pass(ctx, key) })
	r.Metrics.RolloutPassed(key.Namespace, key.Name, r.Clock.Since(began))
	return result, err
}
