// Package controller is the reconciler of package experiment: it observes Experiments with their ReplicaSets, Services
// and AnalysisRuns, applies the effects, writes the status and reports events.
//
// It must not decide anything about an Experiment: an if on a phase belongs in the state machine.
package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/experiment"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Parts are the dependencies of the reconciler.
type Parts struct {
	// Client reads from caches and sees its own writes.
	Client client.Client
	Clock  clock.PassiveClock
	// Launcher creates the AnalysisRuns.
	Launcher *launch.Launcher
	// Recorder records the events of Experiments. Rollouts records the results of analyses on the Rollouts that own the
	// Experiments: it is the recorder of the controller of Rollouts, which knows when a Rollout is deleted.
	Recorder, Rollouts *telemetry.Recorder
	Metrics            *telemetry.Metrics
	// Notifications dispatches the notifications about Experiments; nil: there are none.
	Notifications *dispatch.Dispatcher
	// Shards are the shards that this process holds; nil: it reconciles all Experiments.
	Shards *sharding.Held
	// OtherController detects an Argo Rollouts that acts on the Experiments instead of Serin.
	OtherController reconciler.ActingSign
	// InstanceID of the controller: it ignores Experiments with another ID. Empty: it reconciles Experiments without an
	// ID.
	InstanceID string
}

// Reconciler reconciles Experiments.
type Reconciler struct {
	Parts
	frame *reconciler.Simple[*argov1.Experiment, argov1.ExperimentStatus]
	// watchServices starts the watch that requeues Experiments when their Services change. It is started when an
	// Experiment first needs a Service: a cluster has many Services and few Experiments. nil: the tests requeue
	// Experiments.
	watchServices func() error
}

// New returns a reconciler without any state.
func New(parts Parts) *Reconciler {
	r := &Reconciler{Parts: parts}
	r.frame = &reconciler.Simple[*argov1.Experiment, argov1.ExperimentStatus]{
		Frame: reconciler.Frame[*argov1.Experiment, argov1.ExperimentStatus]{
			Kind:   argov1.SchemeGroupVersion.WithKind(argov1.ExperimentKind),
			Client: parts.Client, Clock: parts.Clock, Metrics: parts.Metrics,
			New:             func() *argov1.Experiment { return &argov1.Experiment{} },
			Status:          func(object *argov1.Experiment) *argov1.ExperimentStatus { return &object.Status },
			ReconcileObject: r.reconcile,
			Shards:          parts.Shards,
		},
		Recorder: parts.Recorder,
	}
	r.frame.ServeLabelled(argov1.InstanceIDLabel, parts.InstanceID, experiment.PanicDecision, func(key types.NamespacedName) {
		if parts.Notifications != nil {
			parts.Notifications.Forget(argov1.ExperimentKind, key)
		}
	})
	return r
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.frame.Reconcile(ctx, req)
}

// reconcile observes one Experiment, decides, applies the effects, writes the status and reports.
func (r *Reconciler) reconcile(ctx context.Context, e *argov1.Experiment) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(e)
	if !e.Status.Phase.Completed() {
		if wait, err := r.frame.Cede(ctx, r.OtherController, e.Namespace); wait > 0 || err != nil {
			return reconcile.Result{RequeueAfter: wait}, err
		}
	}
	observed, err := r.observe(ctx, e)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := r.frame.Decide(func() experiment.Decision { return experiment.Next(observed.snapshot) })
	// The status is written even if an effect failed, so that deadlines apply; it does not state that the effect
	// succeeded.
	applyErr := r.applyEffects(ctx, observed, &d)
	if err := r.frame.WriteStatus(ctx, e, d.Status); err != nil {
		return r.frame.RetryLater(ctx, key, errors.Join(err, applyErr))
	}
	reported := r.frame.Report(ctx, e, d.Events)
	r.notify(ctx, e, d.Status, reported)
	r.reportToRollout(ctx, e, reported)
	if applyErr != nil {
		return r.frame.RetryLater(ctx, key, applyErr)
	}
	return reconcile.Result{RequeueAfter: reconciler.RequeueDelay(r.Clock.Now(), d.Wake)}, nil
}

// notify sends the notifications about an Experiment with its new status, if its annotations subscribe recipients.
func (r *Reconciler) notify(ctx context.Context, e *argov1.Experiment, status argov1.ExperimentStatus, events []release.Event) {
	if r.Notifications == nil || !notification.IsSubscribed(e.Annotations) {
		return
	}
	current := *e
	current.Status = status
	r.Notifications.Notify(ctx, dispatch.About{Object: &current}, events)
}

// applyEffects applies the effects in order, up to the first that fails. A failure that a retry cannot resolve is recorded in
// the decision instead.
func (r *Reconciler) applyEffects(ctx context.Context, s *observation, d *experiment.Decision) error {
	for _, effect := range d.Effects {
		events, err := r.applyEffect(ctx, s, effect, &d.Status)
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

func (r *Reconciler) applyEffect(ctx context.Context, s *observation, effect release.Effect, status *argov1.ExperimentStatus) ([]release.Event, error) {
	switch effect := effect.(type) {
	case experiment.ReplicaSetExists:
		err := r.createReplicaSet(ctx, s, effect.Template)
		return recordIfRejected(status, effect.Template, "ReplicaSet", err, s.snapshot.Now)
	case experiment.ServiceExists:
		err := r.createService(ctx, s, effect.Template, effect.Name)
		return recordIfRejected(status, effect.Template, "Service", err, s.snapshot.Now)
	case experiment.ReplicaSetScaled:
		return r.scaleReplicaSet(ctx, s, effect.Template, effect.Replicas)
	case experiment.ScaleDownDeadlineSet:
		return nil, r.setScaleDownDeadline(ctx, s, effect.Template, effect.Deadline)
	case experiment.ServiceDeleted:
		return nil, r.deleteService(ctx, s, effect.Name)
	case experiment.AnalysisRunStarted:
		return r.startRun(ctx, s, effect, status)
	case experiment.AnalysisRunTerminated:
		return nil, r.terminateRun(ctx, s, effect.Name)
	default:
		return nil, errors.New("unknown effect")
	}
}

// recordIfRejected records a rejection in the status if only a change of the template can help.
func recordIfRejected(status *argov1.ExperimentStatus, template, kind string, err error, now time.Time) ([]release.Event, error) {
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return nil, err
	}
	return experiment.RecordTemplateRejected(status, template, fmt.Sprintf("Failed to create %s for template '%s': %v", kind, template, err), now), nil
}

// reportToRollout reports the results of the analyses to the Rollout of which the Experiment is a step.
func (r *Reconciler) reportToRollout(ctx context.Context, e *argov1.Experiment, events []release.Event) {
	owner := metav1.GetControllerOf(e)
	if owner == nil || owner.Kind != argov1.RolloutKind {
		return
	}
	for _, event := range events {
		if strings.HasPrefix(event.Reason, argov1.AnalysisRunKind) {
			r.Rollouts.LateEvent(ctx, corev1.ObjectReference{
				APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: e.Namespace, Name: owner.Name, UID: owner.UID,
			}, event)
		}
	}
}

// Footprint returns the size of the state that this process stores about Experiments.
func (r *Reconciler) Footprint() reconciler.Footprint {
	parts := r.frame.Footprint()
	if r.Notifications != nil {
		parts["notifications"] = r.Notifications.Keys(argov1.ExperimentKind)
	}
	return reconciler.FootprintOf(parts)
}
