// Package controller is the shell of package analysis: it observes AnalysisRuns, writes what was measured, tells people,
// and hands out questions.
//
// It must not decide anything about a run: an if on a phase belongs into the machine. It must not wait for the outside
// either; questions leave through the prober and their answers bring the run back.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/internal/prober"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/shell"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Parts are what a pass over an AnalysisRun needs.
type Parts struct {
	// Client reads from caches and sees its own writes.
	Client   client.Client
	Clock    clock.PassiveClock
	Prober   *prober.Prober
	Recorder *telemetry.Recorder
	Jobs     *measure.Jobs
	Metrics  *telemetry.Metrics
	// InstanceID of the controller: runs of others are not its own. Empty: those without any are.
	InstanceID string
}

// Reconciler is one pass over one AnalysisRun. Between passes it remembers nothing but what people were told.
type Reconciler struct {
	Parts

	guard    shell.Guard
	standing telemetry.Standing
}

// Reconcile is one pass. A panic in it is a fault of Serin, which must cost this run alone, and which its owner reads.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("analysisRun", key.Name+"."+key.Namespace))
	began := r.Clock.Now()
	result, err := r.guard.Run(ctx, r.Clock, key, r.faulted, r.pass)
	r.Metrics.Reconciled(argov1.AnalysisRunKind, key, r.Clock.Since(began))
	if err != nil {
		r.Metrics.ReconcileFailed(argov1.AnalysisRunKind, key)
	}
	return result, err
}

// faulted tells of a pass that panicked, in the message of the status and in an event.
func (r *Reconciler) faulted(ctx context.Context, key types.NamespacedName, fault error) error {
	r.Metrics.Panicked(argov1.AnalysisRunKind)
	r.Metrics.ReconcileFailed(argov1.AnalysisRunKind, key)
	run := &argov1.AnalysisRun{}
	if err := r.Client.Get(ctx, key, run); err != nil || !r.serves(run) {
		return client.IgnoreNotFound(err)
	}
	d := analysis.Faulted(run.Status, shell.FaultSentence(argov1.AnalysisRunKind, fault))
	if err := r.writeStatus(ctx, run, d.Status); err != nil {
		return err
	}
	r.report(ctx, run, d.Events)
	return nil
}

// serves is true of a run that stays, and that no other controller serves.
func (r *Reconciler) serves(run *argov1.AnalysisRun) bool {
	return run.DeletionTimestamp == nil && run.Labels[argov1.InstanceIDLabel] == r.InstanceID
}

// pass observes, decides, applies, writes, tells, asks.
func (r *Reconciler) pass(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	run := &argov1.AnalysisRun{}
	switch err := r.Client.Get(ctx, key, run); {
	case apierrors.IsNotFound(err):
		r.forget(key)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get AnalysisRun %s: %w", key, err)
	case !r.serves(run):
		r.Prober.Forget(key)
		return reconcile.Result{}, nil
	}
	asking := prober.Key{NamespacedName: key, UID: run.UID}
	s, err := r.observe(ctx, run, asking)
	if err != nil {
		return reconcile.Result{}, err
	}
	deciding := r.Clock.Now()
	d := analysis.Next(s)
	r.Metrics.Decided(argov1.AnalysisRunKind, r.Clock.Since(deciding))
	if err := r.apply(ctx, run, d.Effects); err != nil {
		return later(ctx, err)
	}
	if err := r.writeStatus(ctx, run, d.Status); err != nil {
		return later(ctx, err)
	}
	r.report(ctx, run, d.Events)
	if d.Status.Phase.Completed() {
		r.Prober.Forget(key)
	} else {
		r.Prober.Ask(asking, d.Probes)
	}
	return reconcile.Result{RequeueAfter: shell.WakeIn(r.Clock.Now(), d.Wake)}, nil
}

// observe is all that is known about a run.
func (r *Reconciler) observe(ctx context.Context, run *argov1.AnalysisRun, key prober.Key) (analysis.Snapshot, error) {
	s := analysis.Snapshot{
		Now: r.Clock.Now(), UID: run.UID, Spec: run.Spec, Status: run.Status,
		Answers: map[string]analysis.Answer{}, Settled: map[string]bool{},
	}
	for id, answer := range r.Prober.Answers(key) {
		detail, ok := answer.Detail.(analysis.Answer)
		if !ok { // it could not even be asked
			detail = analysis.Answer{Judged: argov1.AnalysisPhaseError, Message: answer.Text}
		}
		detail.Began, detail.Ended = answer.Began, answer.Ended
		s.Answers[id] = detail
	}
	for _, result := range run.Status.MetricResults {
		if result.Phase.Completed() || len(result.Measurements) == 0 {
			continue
		}
		newest := result.Measurements[len(result.Measurements)-1]
		if measure.JobOf(newest) == "" || newest.Phase.Completed() {
			continue
		}
		over, err := r.Jobs.Over(ctx, run, newest)
		if err != nil {
			return s, err
		}
		s.Settled[result.Name] = over
	}
	return s, nil
}

// apply makes the effects true, in order, up to the first that fails.
func (r *Reconciler) apply(ctx context.Context, run *argov1.AnalysisRun, effects []release.Effect) error {
	for _, effect := range effects {
		var err error
		switch e := effect.(type) {
		case analysis.RunDeleted:
			err = r.Client.Delete(ctx, run, client.Preconditions{UID: &run.UID, ResourceVersion: &run.ResourceVersion})
			err = client.IgnoreNotFound(err)
		case analysis.Forgotten:
			err = r.Jobs.Forget(ctx, run, e.Measurements)
		case analysis.Swept:
			err = r.Jobs.Sweep(ctx, run)
		default:
			err = errors.New("it is unknown")
		}
		if err != nil {
			return fmt.Errorf("apply %s to AnalysisRun %s.%s: %w", effect, run.Name, run.Namespace, err)
		}
	}
	return nil
}

// writeStatus persists the decision, if it says anything new. The API has no subresource for it: the patch goes to the
// object, names the version that the decision was made on, and holds the difference only.
func (r *Reconciler) writeStatus(ctx context.Context, run *argov1.AnalysisRun, status argov1.AnalysisRunStatus) error {
	if equality.Semantic.DeepEqual(run.Status, status) {
		return nil
	}
	patch, err := shell.StatusPatch(run.ResourceVersion, &run.Status, &status)
	if err != nil {
		return fmt.Errorf("compare the status of AnalysisRun %s.%s with what it was: %w", run.Name, run.Namespace, err)
	}
	stored := &argov1.AnalysisRun{} // takes the answer
	stored.Namespace, stored.Name = run.Namespace, run.Name
	if err := r.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the status of AnalysisRun %s.%s: %w", run.Name, run.Namespace, err)
	}
	run.ResourceVersion = stored.ResourceVersion
	return nil
}

// report tells what happened.
func (r *Reconciler) report(ctx context.Context, run *argov1.AnalysisRun, events []release.Event) {
	for _, event := range r.standing.News(client.ObjectKeyFromObject(run), events) {
		r.Recorder.Event(ctx, reference(run), event)
	}
}

// race is the pause after somebody else was faster; mostly their event brings the run back before.
const race = time.Second

// later tells errors that go away by themselves, at once, from those that need patience.
func later(ctx context.Context, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		log.FromContext(ctx).V(1).Info("Looked again", "why", err.Error())
		return reconcile.Result{RequeueAfter: race}, nil
	}
	return reconcile.Result{}, err
}

func reference(run *argov1.AnalysisRun) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: argov1.SchemeGroupVersion.String(), Kind: argov1.AnalysisRunKind,
		Namespace: run.Namespace, Name: run.Name, UID: run.UID, ResourceVersion: run.ResourceVersion,
	}
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.Prober.Forget(key)
	r.Recorder.Forget(key)
	r.standing.Forget(key)
	r.Metrics.ForgetReconciled(argov1.AnalysisRunKind, key)
}

// runOf is the run of a Job.
func runOf(job *batchv1.Job) (types.NamespacedName, bool) {
	name, namespace := job.Annotations[measure.RunNameAnnotation], job.Annotations[measure.RunNamespaceAnnotation]
	return types.NamespacedName{Namespace: namespace, Name: name}, name != "" && namespace != ""
}
