// Package controller is the reconciler of Rollouts. A reconciliation has five stages, which reconcile in reconciler.go calls:
//
//   - observe (observe*.go, validate*.go): Observer reads the cluster, claims ReplicaSets (claim.go), and returns a snapshot.
//   - decide (decide.go): package rollout, the state machine, returns a decision for the snapshot.
//   - apply (apply*.go): applier applies the effects of the decision, in order.
//   - write (write.go): statusWriter writes the status, if it changes.
//   - report (report.go): reporter records events, sends notifications and sets metrics.
//
// memory.go contains the state that a process keeps between reconciliations, and watch.go the watches that requeue a Rollout. A
// new effect needs a case in apply.go, and a new part of the snapshot a method of Observer that observe calls.
//
// It must not decide anything about a release: an if on a phase belongs in the state machine. It must not wait for any
// service but the API server.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// Parts are what a reconciliation of a Rollout needs.
type Parts struct {
	Observer
	Clock         clock.PassiveClock
	Recorder      *telemetry.Recorder
	OngoingEvents *telemetry.OngoingEvents
	Metrics       *telemetry.Metrics
	// Shards are the shards that this process holds; nil: it reconciles all Rollouts.
	Shards *sharding.Held
	// Notifications dispatches notifications; nil: there are none.
	Notifications *dispatch.Dispatcher
	// Watch starts watches of these kinds, so that changes of their objects requeue the releases. Add sets it; a caller without a
	// manager must provide it.
	Watch func(kinds []schema.GroupVersionKind) error
	// Health reports a message about the health of a part to the administrator; an empty message clears it. nil: no report.
	Health func(part, message string)
}

// Reconciler reconciles Rollouts.
type Reconciler struct {
	Parts

	frame      *reconciler.Frame[*argov1.Rollout, argov1.RolloutStatus]
	dependents *watching.Dependents
	observed   watching.Observed
	ceded      watching.CededReleases
	memory     *memory
	newest     newestVersions
	applier    *applier
	status     statusWriter
	reporter   reporter
	restorer   *restorer
}

// New returns a reconciler without memory of earlier reconciliations.
func New(parts Parts) *Reconciler {
	r := &Reconciler{
		Parts: parts, dependents: watching.NewDependents(), memory: newMemory(),
	}
	r.Observer.memory = r.memory
	r.newest = newNewestVersions(parts.APIReader, parts.Applier, r.memory)
	r.reporter = newReporter(parts, r.memory)
	r.applier = newApplier(parts, r.memory, r.newest.rollouts)
	r.restorer = &restorer{
		Observer: &r.Observer, managedObjects: managedObjects{parts.Client}, Clock: parts.Clock, reporter: r.reporter,
		forget: r.forget, otherController: r.otherController,
	}
	r.frame = &reconciler.Frame[*argov1.Rollout, argov1.RolloutStatus]{
		Kind:   argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind),
		Client: parts.Client, Clock: parts.Clock, Metrics: parts.Metrics,
		New: releases.New, Subresource: true,
		Serves:          func(object *argov1.Rollout) bool { return object.DeletionTimestamp == nil }, // its deletion has an event of its own
		ReconcileObject: r.reconcile,
		ReportPanic:     r.reportPanic,
		OnNotFound:      r.restorer.reconcileGone,
		Shards:          parts.Shards,
		Forget: func(key types.NamespacedName) { // the process that holds the shard restores the objects of a deleted Rollout
			r.memory.forgetDeleted(key)
			r.forget(key)
		},
		RetryAt: r.memory.RetryAt,
		Newest:  r.newest.rollouts,
	}
	r.status = statusWriter{r.frame, r.memory, r.newest.rollouts, r.reporter}
	return r
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.memory.recordReconciliation()
	return r.frame.Reconcile(ctx, req)
}

// reconcile observes one Rollout, decides, applies the effects, writes the status and reports.
func (r *Reconciler) reconcile(ctx context.Context, object *argov1.Rollout) (reconcile.Result, error) {
	key, began := client.ObjectKeyFromObject(object), r.Clock.Now()
	if err := r.restorer.restoreDeleted(ctx, key, object.UID); err != nil { // an earlier Rollout of the same name
		return reconcile.Result{}, err
	}
	r.Metrics.StartRollout(key.Namespace, key.Name)
	other, err := r.otherController(ctx, key, began)
	if err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	if other.Text != "" {
		gate := rollout.OtherControllerGate(other.Text, other.Until)
		r.reporter.record(ctx, object, r.OngoingEvents.NewEvents(key, gate.Events)...)
		if !rollout.IsOwnRelease(object.Status) {
			r.reporter.showCeded(object, gate, began)
			return reconcile.Result{RequeueAfter: reconciler.RequeueDelay(began, watching.NextCheck(other, key, began))}, nil
		}
	}
	r.reporter.recordFirstReconciliation(ctx, object)
	s, err := r.observeAndWatch(readyourwrites.WithWriteCheck(ctx, r.newest.requireNewest(object)), object, began)
	switch {
	case errors.Is(err, traffic.ErrUnreachable):
		return r.reportUnreachable(ctx, object, began, err)
	case err != nil:
		return r.frame.RetryLater(ctx, key, err)
	}
	ctx = readyourwrites.WithWriteCheck(ctx, r.newest.requireAll(s, object))
	decision := r.decide(s)
	if other.Text != "" && !rollout.RollsBack(s.snapshot, decision) {
		return r.cedeTo(other, s, decision), nil
	}
	decision, failed, err := r.applyDecision(ctx, s, decision)
	if err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	explanation := r.memory.explain(s, decision)
	written, err := r.status.write(ctx, s, decision, explanation, s.routersRestored || explanation.Due)
	if err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	releases.RecordOutcome(r.Queue, object, s.object, rollout.WaitsForQueueSlot(decision))
	r.memory.Do(key, func(e *rolloutMemory) { e.routedStatuses, e.routedKnown = s.routedStatuses(), true })
	r.memory.ResetBackoff(key, reconciler.LostRace)
	r.reporter.report(ctx, s, decision)
	if err := r.submitPluginCalls(ctx, s, decision); err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	r.memory.ScheduleWake(key, decision.Wake)
	if s.changed && !written {
		s.retryAt = reconciler.Earliest(s.retryAt, s.snapshot.Now.Add(unobservedChangeRetry))
	}
	return r.frame.Requeue(s.snapshot.Now, decision.Wake, explanation.At, s.retryAt, written), failed
}

// unobservedChangeRetry is the time after which a change without a write of the status is examined again. Usually, a watch event about
// the change requeues the Rollout at once; a watch that reconnects delivers none about an object that was created and deleted
// meanwhile.
const unobservedChangeRetry = 30 * time.Second

// observeAndWatch observes a Rollout, and watches its dependencies, so that their changes requeue it.
func (r *Reconciler) observeAndWatch(ctx context.Context, object *argov1.Rollout, now time.Time) (*observation, error) {
	s, err := r.observe(ctx, object, now)
	// A change before the registration of a dependency requeued nothing, and may have come after the observation.
	for err == nil && r.dependents.Set(s.key(), s.dependencies) {
		s, err = r.observe(ctx, object, now)
	}
	if err != nil {
		return nil, err
	}
	r.observed.Record(s.key(), s.observedVersions())
	if err := r.Watch(s.watchedKinds); err != nil {
		return nil, fmt.Errorf("watch the dependencies of Rollout %s: %w", s.key(), err)
	}
	if by, due := r.memory.Lateness(s.key(), now); due {
		r.Metrics.RecordLateness(argov1.RolloutKind, by)
	}
	return s, nil
}

// applyDecision applies the effects of a decision, and returns the decision that follows: about a failure that is part of the
// state of the release, or about the changes of the status that need no further effect. failed is retried with backoff after
// the status is written; err ends the reconciliation.
func (r *Reconciler) applyDecision(ctx context.Context, s *observation, d rollout.Decision) (decision rollout.Decision, failed, err error) {
	events, failed := r.applier.applyEffects(ctx, s, d.Effects)
	s.snapshot.Now = release.LaterOf(s.snapshot.Now, r.Clock.Now()) // a pause begins when its weight is set
	r.reporter.recordFor(ctx, r.reporter.subjectOf(s), events...)
	if failed == nil {
		decision = rollout.MergeStatusChanges(s.snapshot, d)
	} else if decision, err = r.decideOnFailure(s, d.Gates, failed); err != nil {
		return decision, nil, err
	}
	rejected := reconciler.NeedsUser(failed) || reconciler.IsRejected(failed)
	switch {
	case errors.Is(failed, traffic.ErrUnreachable):
		failed, s.retryAt = nil, reconciler.Earliest(s.retryAt, s.snapshot.Now.Add(unreachableRetry)) // no watch notifies when it answers
	case rejected, errors.Is(failed, errNameTaken): // the next reconciliation takes another name
		failed = nil
	}
	s.retryAt = reconciler.Earliest(s.retryAt, r.memory.Retry(s.key(), reconciler.Refused, rejected, s.snapshot.Now), r.memory.Retry(s.key(), reconciler.NotInstalled, s.needsRetry, s.snapshot.Now))
	return decision, failed, nil
}

// reportPanic reports a panic, in the gates of the status and in an event.
func (r *Reconciler) reportPanic(ctx context.Context, object *argov1.Rollout, fault error) error {
	s := &observation{object: object, spec: object.Spec, snapshot: rollout.Snapshot{Now: r.Clock.Now(), Status: *object.Status.DeepCopy()}}
	if err := r.observeFormerRouters(s, nil); err != nil { // the status records them
		return err
	}
	decision := rollout.PanicDecision(s.snapshot, reconciler.PanicMessage(argov1.RolloutKind, fault))
	explanation := r.memory.explain(s, decision)
	if _, err := r.status.write(ctx, s, decision, explanation, explanation.IsPending()); err != nil {
		return err
	}
	r.reporter.recordNew(ctx, s, decision.Events)
	return nil
}

// forget drops the state of a Rollout that no longer exists, or that another controller reconciles.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.ceded.Forget(key, r.showOtherController)
	r.Queue.Forget(argov1.RolloutKind, key)
	if r.Queries != nil {
		r.Queries.Forget(key)
	}
	if r.StepPlugins != nil {
		r.StepPlugins.Calls.Forget(key)
	}
	if r.RouterPlugins != nil {
		r.RouterPlugins.Calls.Forget(key)
	}
	r.memory.Forget(key)
	r.newest.forget(key)
	r.dependents.Forget(key)
	r.observed.Forget(key)
	r.reporter.forget(key)
}

// Footprint returns the keys of all state that this process keeps about Rollouts.
func (r *Reconciler) Footprint() reconciler.Footprint {
	parts := reconciler.Footprint{
		"panicked": r.frame.Panicked(), "acquisitions": r.frame.AcquisitionKeys(), "dependents": r.dependents.Keys(), "observed": r.observed.Keys(), "ceded": r.ceded.Keys(), "memory": r.memory.keys(), "newest": r.newest.rollouts.Keys(), "queue": r.Queue.Keys(argov1.RolloutKind),
		"newest-workloads": r.newest.workloads.Keys(), "recorder": r.Recorder.Keys(), "ongoing-events": r.OngoingEvents.Keys(),
	}
	if r.Queries != nil {
		parts["queries"] = r.Queries.Keys()
	}
	if r.StepPlugins != nil {
		parts["step-plugins"] = r.StepPlugins.Calls.Keys()
	}
	if r.RouterPlugins != nil {
		parts["router-plugins"] = r.RouterPlugins.Calls.Keys()
	}
	if r.Notifications != nil {
		parts["notifications"] = r.Notifications.Keys(argov1.RolloutKind)
	}
	return reconciler.FootprintOf(parts)
}
