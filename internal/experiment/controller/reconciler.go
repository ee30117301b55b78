// Package controller is the shell of package experiment: it observes Experiments with their ReplicaSets, Services and
// AnalysisRuns, makes what was decided, writes the status and tells people.
//
// It must not decide anything about an Experiment: an if on a phase belongs into the machine.
package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/experiment"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/shell"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Parts are what a pass over an Experiment needs.
type Parts struct {
	// Client reads from caches and sees its own writes.
	Client client.Client
	Clock  clock.PassiveClock
	// Launcher makes the AnalysisRuns.
	Launcher *launch.Launcher
	// Recorder tells of Experiments, Rollouts of what their Experiments' analyses came to.
	Recorder, Rollouts *telemetry.Recorder
	Metrics            *telemetry.Metrics
	// InstanceID of the controller: Experiments of others are not its own. Empty: those without any are.
	InstanceID string
}

// Reconciler is one pass over one Experiment. Between passes it remembers nothing but what people were told.
type Reconciler struct {
	Parts

	guard    shell.Guard
	standing telemetry.Standing
}

// Reconcile is one pass. A panic in it is a fault of Serin, which must cost this Experiment alone, and which its owner
// reads.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("experiment", key.Name+"."+key.Namespace))
	began := r.Clock.Now()
	result, err := r.guard.Run(ctx, r.Clock, key, r.faulted, r.pass)
	r.Metrics.Reconciled(argov1.ExperimentKind, key, r.Clock.Since(began))
	if err != nil {
		r.Metrics.ReconcileFailed(argov1.ExperimentKind, key)
	}
	return result, err
}

// faulted tells of a pass that panicked, in the message of the status and in an event.
func (r *Reconciler) faulted(ctx context.Context, key types.NamespacedName, fault error) error {
	r.Metrics.Panicked(argov1.ExperimentKind)
	r.Metrics.ReconcileFailed(argov1.ExperimentKind, key)
	e := &argov1.Experiment{}
	if err := r.Client.Get(ctx, key, e); err != nil || !r.serves(e) {
		return client.IgnoreNotFound(err)
	}
	d := experiment.Faulted(e.Status, shell.FaultSentence(argov1.ExperimentKind, fault))
	if err := r.writeStatus(ctx, e, d.Status); err != nil {
		return err
	}
	r.report(ctx, e, d.Events)
	return nil
}

// serves is true of an Experiment that stays, and that no other controller serves.
func (r *Reconciler) serves(e *argov1.Experiment) bool {
	return e.DeletionTimestamp == nil && e.Labels[argov1.InstanceIDLabel] == r.InstanceID
}

// pass observes, decides, applies, writes, tells.
func (r *Reconciler) pass(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	e := &argov1.Experiment{}
	switch err := r.Client.Get(ctx, key, e); {
	case apierrors.IsNotFound(err):
		r.Recorder.Forget(key)
		r.standing.Forget(key)
		r.Metrics.ForgetReconciled(argov1.ExperimentKind, key)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get Experiment %s: %w", key, err)
	case !r.serves(e):
		return reconcile.Result{}, nil
	}
	seen, err := r.observe(ctx, e)
	if err != nil {
		return reconcile.Result{}, err
	}
	deciding := r.Clock.Now()
	d := experiment.Next(seen.snapshot)
	r.Metrics.Decided(argov1.ExperimentKind, r.Clock.Since(deciding))
	// What an effect could not do the status does not say it did: it is written all the same, so that deadlines run.
	failed := r.apply(ctx, seen, &d)
	if err := r.writeStatus(ctx, e, d.Status); err != nil {
		return later(ctx, errors.Join(err, failed))
	}
	r.report(ctx, e, d.Events)
	if failed != nil {
		return later(ctx, failed)
	}
	return reconcile.Result{RequeueAfter: shell.WakeIn(r.Clock.Now(), d.Wake)}, nil
}

// apply makes the effects true, in order, up to the first that fails. What can never succeed as it is becomes a part of
// the decision instead.
func (r *Reconciler) apply(ctx context.Context, s *seen, d *experiment.Decision) error {
	for _, effect := range d.Effects {
		events, err := r.one(ctx, s, effect, &d.Status)
		d.Events = append(d.Events, events...)
		if err != nil {
			return fmt.Errorf("apply %s to Experiment %s.%s: %w", effect, s.object.Name, s.object.Namespace, err)
		}
		if len(events) > 0 {
			d.Wake = s.snapshot.Now
		}
	}
	return nil
}

func (r *Reconciler) one(ctx context.Context, s *seen, effect release.Effect, status *argov1.ExperimentStatus) ([]release.Event, error) {
	switch effect := effect.(type) {
	case experiment.ReplicaSetExists:
		err := r.createReplicaSet(ctx, s, effect.Template)
		return brokenIf(status, effect.Template, "ReplicaSet", err, s.snapshot.Now)
	case experiment.ServiceExists:
		err := r.createService(ctx, s, effect.Template, effect.Name)
		return brokenIf(status, effect.Template, "Service", err, s.snapshot.Now)
	case experiment.Scaled:
		return nil, r.scale(ctx, s, effect.Template, effect.Replicas)
	case experiment.GoesAt:
		return nil, r.goesAt(ctx, s, effect.Template, effect.At)
	case experiment.ServiceGone:
		return nil, r.deleteService(ctx, s, effect.Name)
	case experiment.RunStarted:
		return r.startRun(ctx, s, effect, status)
	case experiment.RunTerminated:
		return nil, r.terminateRun(ctx, s, effect.Name)
	default:
		return nil, errors.New("it is unknown")
	}
}

// brokenIf takes a refusal that only another template helps against into the status.
func brokenIf(status *argov1.ExperimentStatus, template, kind string, err error, now time.Time) ([]release.Event, error) {
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return nil, err
	}
	return experiment.Broken(status, template, fmt.Sprintf("Failed to create %s for template '%s': %v", kind, template, err), now), nil
}

// writeStatus persists the decision, if it says anything new. The API has no subresource for it: the patch goes to the
// object, names the version that the decision was made on, and holds the difference only.
func (r *Reconciler) writeStatus(ctx context.Context, e *argov1.Experiment, status argov1.ExperimentStatus) error {
	if equality.Semantic.DeepEqual(e.Status, status) {
		return nil
	}
	patch, err := shell.StatusPatch(e.ResourceVersion, &e.Status, &status)
	if err != nil {
		return fmt.Errorf("compare the status of Experiment %s.%s with what it was: %w", e.Name, e.Namespace, err)
	}
	stored := &argov1.Experiment{} // takes the answer
	stored.Namespace, stored.Name = e.Namespace, e.Name
	if err := r.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the status of Experiment %s.%s: %w", e.Name, e.Namespace, err)
	}
	e.ResourceVersion = stored.ResourceVersion
	return nil
}

// report tells what happened, and the Rollout that the Experiment is a step of what its analyses came to.
func (r *Reconciler) report(ctx context.Context, e *argov1.Experiment, events []release.Event) {
	owner := metav1.GetControllerOf(e)
	for _, event := range r.standing.News(client.ObjectKeyFromObject(e), events) {
		r.Recorder.Event(ctx, corev1.ObjectReference{
			APIVersion: argov1.SchemeGroupVersion.String(), Kind: argov1.ExperimentKind,
			Namespace: e.Namespace, Name: e.Name, UID: e.UID, ResourceVersion: e.ResourceVersion,
		}, event)
		if owner != nil && owner.Kind == argov1.RolloutKind && strings.HasPrefix(event.Reason, argov1.AnalysisRunKind) {
			r.Rollouts.Event(ctx, corev1.ObjectReference{
				APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: e.Namespace, Name: owner.Name, UID: owner.UID,
			}, event)
		}
	}
}

// race is the pause after somebody else was faster; mostly their event brings the Experiment back before.
const race = time.Second

// later tells errors that go away by themselves, at once, from those that need patience.
func later(ctx context.Context, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).V(1).Info("Looked again", "why", err.Error())
		return reconcile.Result{RequeueAfter: race}, nil
	}
	return reconcile.Result{}, err
}
