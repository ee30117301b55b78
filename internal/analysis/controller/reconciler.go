// Package controller is the reconciler of AnalysisRuns: it observes them, applies the effects, writes the status,
// reports events and sends queries.
//
// It must not decide anything about a run: an if on a phase belongs in the state machine. It must not wait for external
// services either; queries are sent by the query runner, and their answers requeue the run.
package controller

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Parts are the dependencies of the reconciler.
type Parts struct {
	// Client reads from caches and sees its own writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	Clock     clock.PassiveClock
	Queries   *queryrunner.Runner
	Recorder  *telemetry.Recorder
	Jobs      *measure.Jobs
	Metrics   *telemetry.Metrics
	// Notifications dispatches the notifications about AnalysisRuns; nil: there are none.
	Notifications *dispatch.Dispatcher
	// Shards are the shards that this process holds; nil: it reconciles all AnalysisRuns.
	Shards *sharding.Held
	// OtherController detects an Argo Rollouts that acts on the AnalysisRuns instead of Serin.
	OtherController reconciler.ActingSign
	// InstanceID of the controller: it ignores runs with another ID. Empty: it reconciles runs without an ID.
	InstanceID string
}

// Reconciler reconciles AnalysisRuns.
type Reconciler struct {
	Parts
	writePacer *writePacer
	frame      *reconciler.Simple[*argov1.AnalysisRun, argov1.AnalysisRunStatus]
}

// New returns a reconciler without any state.
func New(parts Parts) *Reconciler {
	r := &Reconciler{Parts: parts, writePacer: newWritePacer()}
	r.frame = &reconciler.Simple[*argov1.AnalysisRun, argov1.AnalysisRunStatus]{
		Frame: reconciler.Frame[*argov1.AnalysisRun, argov1.AnalysisRunStatus]{
			Kind:   argov1.SchemeGroupVersion.WithKind(argov1.AnalysisRunKind),
			Client: parts.Client, Clock: parts.Clock, Metrics: parts.Metrics,
			New:             func() *argov1.AnalysisRun { return &argov1.AnalysisRun{} },
			Status:          func(object *argov1.AnalysisRun) *argov1.AnalysisRunStatus { return &object.Status },
			ReconcileObject: r.reconcile,
			Shards:          parts.Shards,
			Newest:          readyourwrites.NewNewestVersions(argov1.AnalysisRunKind, parts.APIReader),
		},
		Recorder: parts.Recorder,
	}
	r.frame.ServeLabelled(argov1.InstanceIDLabel, parts.InstanceID, analysis.PanicDecision, func(key types.NamespacedName) {
		parts.Queries.Forget(key)
		r.writePacer.forget(key)
		if parts.Notifications != nil {
			parts.Notifications.Forget(argov1.AnalysisRunKind, key)
		}
	})
	return r
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.frame.Reconcile(ctx, req)
}

// reconcile observes one AnalysisRun, decides, applies the effects, writes the status, reports and sends queries.
func (r *Reconciler) reconcile(ctx context.Context, run *argov1.AnalysisRun) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(run)
	queryKey := queryrunner.Key{NamespacedName: key, UID: run.UID}
	if !run.Status.Phase.Completed() {
		wait, err := r.frame.Cede(ctx, r.OtherController, run.Namespace)
		if err != nil {
			return reconcile.Result{}, err
		}
		if wait > 0 { // otherwise each controller would count the measurements of both
			r.Queries.Forget(key)
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	s, err := r.observe(ctx, run, queryKey)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := r.frame.Decide(func() analysis.Decision { return analysis.Next(s) })
	if !d.Status.Phase.Completed() && !equality.Semantic.DeepEqual(run.Status, d.Status) {
		if wait := r.writePacer.delay(key, s.Now); wait > 0 { // the answers are retained for the next decision
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	err = r.carryOut(ctx, run, d)
	if reconciler.IsTooLarge(err) {
		d = analysis.OversizedDecision(s, d)
		err = r.carryOut(ctx, run, d)
	}
	if err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	r.notify(ctx, run, d.Status, r.frame.Report(ctx, run, d.Events))
	if d.Status.Phase.Completed() {
		r.Queries.Forget(key)
		r.writePacer.forget(key)
		r.frame.Newest.Forget(key)
	} else {
		if err := r.frame.VerifyBeforeQueries(ctx, run, d.Queries); err != nil {
			return r.frame.RetryLater(ctx, key, err)
		}
		if err := r.Queries.Submit(queryKey, d.Queries); err != nil {
			return reconcile.Result{}, err
		}
		r.Queries.SetAnswerLimit(queryKey, len(run.Spec.Metrics))
	}
	return reconcile.Result{RequeueAfter: reconciler.RequeueDelay(r.Clock.Now(), d.Wake)}, nil
}

// carryOut applies the effects of a decision, and writes its status.
func (r *Reconciler) carryOut(ctx context.Context, run *argov1.AnalysisRun, d analysis.Decision) error {
	if err := r.apply(ctx, run, d.Effects); err != nil {
		return err
	}
	return r.frame.WriteStatus(ctx, run, d.Status)
}

// notify sends the notifications about a run with its new status, if its annotations subscribe recipients.
func (r *Reconciler) notify(ctx context.Context, run *argov1.AnalysisRun, status argov1.AnalysisRunStatus, events []release.Event) {
	if r.Notifications == nil || !notification.IsSubscribed(run.Annotations) {
		return
	}
	current := *run
	current.Status = status
	r.Notifications.Notify(ctx, dispatch.About{Object: &current}, events)
}

// observe returns the snapshot of a run.
func (r *Reconciler) observe(ctx context.Context, run *argov1.AnalysisRun, key queryrunner.Key) (analysis.Snapshot, error) {
	s := analysis.Snapshot{
		Now: r.Clock.Now(), UID: run.UID, Spec: run.Spec, Status: run.Status,
		Answers: map[string]analysis.MeasurementResult{}, EndedMeasurements: map[string]bool{},
	}
	for id, answer := range r.Queries.Answers(key) {
		detail, ok := answer.Detail.(analysis.MeasurementResult)
		if !ok { // the query could not be sent
			detail = analysis.MeasurementResult{Phase: argov1.AnalysisPhaseError, Message: answer.Text}
		}
		detail.StartedAt, detail.FinishedAt = answer.Began, answer.Ended
		s.Answers[id] = detail
	}
	if run.Status.Phase.Completed() && analysis.UsesJobs(run.Spec) {
		var err error
		s.HasActiveJobs, err = r.Jobs.HasActiveJobs(ctx, run)
		return s, err
	}
	for _, result := range run.Status.MetricResults {
		if result.Phase.Completed() || len(result.Measurements) == 0 {
			continue
		}
		newest := result.Measurements[len(result.Measurements)-1]
		if measure.JobName(newest) == "" || newest.Phase.Completed() {
			continue
		}
		ended, err := r.Jobs.IsJobEnded(ctx, run, newest)
		if err != nil {
			return s, err
		}
		s.EndedMeasurements[result.Name] = ended
	}
	return s, nil
}

// apply applies the effects in order, up to the first that fails.
func (r *Reconciler) apply(ctx context.Context, run *argov1.AnalysisRun, effects []release.Effect) error {
	for _, effect := range effects {
		var err error
		switch e := effect.(type) {
		case analysis.RunDeleted:
			err = r.Client.Delete(ctx, run, client.Preconditions{UID: &run.UID, ResourceVersion: &run.ResourceVersion})
			err = client.IgnoreNotFound(err)
		case analysis.MeasurementJobsDeleted:
			err = r.Jobs.DeleteJobsOf(ctx, run, e.Measurements)
		case analysis.ActiveJobsDeleted:
			err = r.Jobs.DeleteActiveJobs(ctx, run)
		default:
			err = errors.New("unknown effect")
		}
		if err != nil {
			return fmt.Errorf("apply %s to AnalysisRun %s.%s: %w", effect, run.Name, run.Namespace, err)
		}
	}
	return nil
}

// runOf returns the run of a Job; false: the Job belongs to no run.
func runOf(job *batchv1.Job) (types.NamespacedName, bool) {
	name, namespace := job.Annotations[measure.RunNameAnnotation], job.Annotations[measure.RunNamespaceAnnotation]
	return types.NamespacedName{Namespace: namespace, Name: name}, name != "" && namespace != ""
}

// Footprint returns the size of the state that this process stores about AnalysisRuns.
func (r *Reconciler) Footprint() reconciler.Footprint {
	parts := r.frame.Footprint()
	parts["queries"], parts["pace"] = r.Queries.Keys(), r.writePacer.keys()
	if r.Notifications != nil {
		parts["notifications"] = r.Notifications.Keys(argov1.AnalysisRunKind)
	}
	return reconciler.FootprintOf(parts)
}
