package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/shell"
)

// Reconcile is one pass over one Canary. A panic in it is a fault of Serin, which must cost this release alone: it is
// logged, counted, told on the release, and the pass is tried again after a while.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("canary", key.Name+"."+key.Namespace))
	return r.guard.Run(ctx, r.Clock, key, r.faulted, r.pass)
}

// faulted tells of a pass that panicked, in the condition Blocked and in an event.
func (r *Reconciler) faulted(ctx context.Context, key types.NamespacedName, fault error) error {
	r.Metrics.Panicked(flaggerv1.CanaryKind)
	now := r.Clock.Now()
	object := &flaggerv1.Canary{}
	switch err := r.Client.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Canary %s: %w", key, err)
	}
	stored := decodeState(object)
	s := &seen{object: object, stored: stored, snapshot: canary.Snapshot{
		Now: now, UID: string(object.UID), Generation: object.Generation, Status: *object.Status.DeepCopy(),
		Plan: canary.Plan{Name: object.Name, Namespace: object.Namespace, Target: object.Spec.TargetRef.Name},
	}}
	decision := canary.Faulted(s.snapshot, shell.FaultSentence("release", fault))
	if _, err := r.writeStatus(ctx, key, s, &decision, r.memory.explain(key, decision, s.snapshot, now)); err != nil {
		return err
	}
	r.Reporter.Report(ctx, s.object, s.snapshot.Plan, s.snapshot.Status.Phase, decision)
	return nil
}
