package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/watching"
)

// otherController returns the sign of an Argo Rollouts that acts on a release instead of Serin. The administrator is notified
// when Serin begins to leave releases to Argo Rollouts, and when Serin continues with them.
func (r *Reconciler) otherController(ctx context.Context, key types.NamespacedName, now time.Time) (othercontroller.Sign, error) {
	sign, err := r.OtherController.ActingSign(ctx, key.Namespace, now)
	if err != nil {
		return sign, err
	}
	message := ""
	if sign.Text != "" {
		message = rollout.OtherControllerGate(sign.Text, sign.Until).Message
	}
	r.ceded.SetReason(ctx, key, message, r.showOtherController)
	return sign, nil
}

// showOtherController reports in the health of the process to which other controller releases are left; empty: to none.
func (r *Reconciler) showOtherController(message string) {
	if r.Health != nil {
		r.Health("peer of Rollouts", message)
	}
}

// cedeTo ends a reconciliation because another controller acts on the Rollout. Serin still rolls its own release back, for
// example at a deadline.
func (r *Reconciler) cedeTo(other othercontroller.Sign, s *observation, d rollout.Decision) reconcile.Result {
	releases.RecordOutcome(r.Queue, s.object, s.object, false)
	r.reporter.showCeded(s.object, rollout.OtherControllerGate(other.Text, other.Until), s.snapshot.Now)
	wake := watching.NextCheck(other, s.key(), s.snapshot.Now)
	if d.Wake.After(s.snapshot.Now) {
		wake = reconciler.Earliest(wake, d.Wake)
	}
	return reconcile.Result{RequeueAfter: reconciler.RequeueDelay(s.snapshot.Now, wake)}
}
