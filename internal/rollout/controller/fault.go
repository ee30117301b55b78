package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/shell"
)

// Reconcile is one pass over one Rollout. A panic in it is a fault of Serin, which must cost this release alone: it is
// logged, counted, told on the release, and the pass is tried again after a while.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("rollout", key.Name+"."+key.Namespace))
	began := r.Clock.Now()
	result, err := r.guard.Run(ctx, r.Clock, key, r.faulted, r.pass)
	r.Metrics.RolloutPassed(key.Namespace, key.Name, r.Clock.Since(began))
	return result, err
}

// faulted tells of a pass that panicked, in the gates of the status and in an event.
func (r *Reconciler) faulted(ctx context.Context, key types.NamespacedName, fault error) error {
	r.Metrics.Panicked(argov1.RolloutKind)
	r.Metrics.RolloutFailed(key.Namespace, key.Name)
	object := &argov1.Rollout{}
	if err := r.Client.Get(ctx, key, object); err != nil || object.DeletionTimestamp != nil {
		return client.IgnoreNotFound(err)
	}
	s := &seen{object: object, spec: object.Spec, snapshot: rollout.Snapshot{Now: r.Clock.Now(), Status: *object.Status.DeepCopy()}}
	if err := r.lookForFormer(s, nil); err != nil { // the status remembers them
		return err
	}
	decision := rollout.Faulted(s.snapshot, shell.FaultSentence(argov1.RolloutKind, fault))
	explanation := r.memory.explain(s, decision)
	if _, err := r.writeStatus(ctx, s, &decision, explanation, explanation.Unsaid()); err != nil {
		return err
	}
	r.tellAbout(ctx, r.about(s), r.Standing.News(key, decision.Events)...)
	return nil
}
