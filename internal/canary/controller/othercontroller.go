package controller

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/watching"
)

var deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// actingController returns the Flagger that acts on Canaries of a namespace, if there is one.
func actingController(ctx context.Context, detector *watching.OtherController, namespace string, now time.Time) (canary.OtherController, error) {
	sign, err := detector.ActingSign(ctx, namespace, now)
	return canary.OtherController{Sign: sign.Text, Until: sign.Until}, err
}

// otherController returns the Flagger that acts on a release instead of Serin, and when this has to be checked again; zero: a watch
// notifies of every change. The administrator is notified when Serin starts to leave releases to it, and when Serin continues with
// them.
func (r *Reconciler) otherController(ctx context.Context, key types.NamespacedName, now time.Time) (other canary.OtherController, nextCheck time.Time, err error) {
	sign, err := r.OtherController.ActingSign(ctx, key.Namespace, now)
	if err != nil {
		return other, nextCheck, err
	}
	other = canary.OtherController{Sign: sign.Text, Until: sign.Until}
	message := ""
	if other.Acts() {
		r.newest.Forget(key) // Flagger writes newer versions
		message, nextCheck = other.Message(), watching.NextCheck(sign, key, now)
	}
	r.ceded.SetReason(ctx, key, message, r.showOtherController)
	return other, nextCheck, nil
}

// showOtherController reports in the health of the process to which other controller releases are left; empty: to none.
func (r *Reconciler) showOtherController(message string) {
	if r.Health != nil {
		r.Health("peer", message)
	}
}
