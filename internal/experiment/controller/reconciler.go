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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/experiment"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Parts are what a reconciliation of an Experiment needs.
type Parts struct {
	// Client reads from caches and sees its own writes.
	Client client.Client
	Clock  clock.PassiveClock
	// Launcher makes the AnalysisRuns.
	Launcher *launch.Launcher
	// Recorder tells of Experiments, Rollouts of what their Experiments' analyses came to: it is the one of the controller of
	// Rollouts, which knows when they are gone.
	Recorder, Rollouts *telemetry.Recorder
	Metrics            *telemetry.Metrics
	// InstanceID of the controller: Experiments of others are not its own. Empty: those without any are.
	InstanceID string
}

// Reconciler reconciles Experiments.
type Reconciler struct {
	Parts
	frame *reconciler.Simple[*argov1.Experiment, argov1.ExperimentStatus]
	// watchServices brings Experiments back when their Services change, from the first that has any on: a cluster has many,
	// and few Experiments. nil: whoever runs passes does.
	watchServices func() error
}

// New returns a reconciler that remembers nothing yet.
func New(parts Parts) *Reconciler {
	r := &Reconciler{Parts: parts}
	r.frame = &reconciler.Simple[*argov1.Experiment, argov1.ExperimentStatus]{
		Frame: reconciler.Frame[*argov1.Experiment, argov1.ExperimentStatus]{
			Kind:   argov1.SchemeGroupVersion.WithKind(argov1.ExperimentKind),
			Client: parts.Client, Clock: parts.Clock, Metrics: parts.Metrics,
			New:             func() *argov1.Experiment { return &argov1.Experiment{} },
			Status:          func(object *argov1.Experiment) *argov1.ExperimentStatus { return &object.Status },
			ReconcileObject: r.reconcile,
		},
		Recorder: parts.Recorder,
	}
	r.frame.Serving(argov1.InstanceIDLabel, parts.InstanceID, experiment.FaultDecision, nil)
	return r
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.frame.Reconcile(ctx, req)
}

// reconcile observes one Experiment, decides, applies the effects, writes the status and reports.
func (r *Reconciler) reconcile(ctx context.Context, e *argov1.Experiment) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(e)
	seen, err := r.observe(ctx, e)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := r.frame.Decide(func() experiment.Decision { return experiment.Next(seen.snapshot) })
	// The status is written although an effect failed, so that deadlines run; it does not say that the effect succeeded.
	failed := r.apply(ctx, seen, &d)
	if err := r.frame.WriteStatus(ctx, e, d.Status); err != nil {
		return r.frame.RetryLater(ctx, key, errors.Join(err, failed))
	}
	r.reportToRollout(ctx, e, r.frame.Report(ctx, e, d.Events))
	if failed != nil {
		return r.frame.RetryLater(ctx, key, failed)
	}
	return reconcile.Result{RequeueAfter: reconciler.WakeIn(r.Clock.Now(), d.Wake)}, nil
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
	case experiment.ReplicaSetScaled:
		return nil, r.scale(ctx, s, effect.Template, effect.Replicas)
	case experiment.ScaleDownDeadlineSet:
		return nil, r.goesAt(ctx, s, effect.Template, effect.Deadline)
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

// brokenIf takes a refusal that only another template helps against into the status.
func brokenIf(status *argov1.ExperimentStatus, template, kind string, err error, now time.Time) ([]release.Event, error) {
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return nil, err
	}
	return experiment.RecordTemplateRejected(status, template, fmt.Sprintf("Failed to create %s for template '%s': %v", kind, template, err), now), nil
}

// reportToRollout reports the results of the analyses to the Rollout of which the Experiment is a step.
func (r *Reconciler) reportToRollout(ctx context.Context, e *argov1.Experiment, news []release.Event) {
	owner := metav1.GetControllerOf(e)
	if owner == nil || owner.Kind != argov1.RolloutKind {
		return
	}
	for _, event := range news {
		if strings.HasPrefix(event.Reason, argov1.AnalysisRunKind) {
			r.Rollouts.LateEvent(ctx, corev1.ObjectReference{
				APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: e.Namespace, Name: owner.Name, UID: owner.UID,
			}, event)
		}
	}
}

// Footprint is what this process remembers of Experiments.
func (r *Reconciler) Footprint() reconciler.Footprint { return r.frame.Footprint() }
