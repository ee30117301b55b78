// Package controller is the reconciler of Canaries: it observes, applies the decisions of package canary, writes the status,
// reports and sends queries.
//
// It must not decide anything about a release: an if on a phase belongs in the state machine. Neither must it wait for external
// services: the query runner sends the queries, and an answer requeues the release.
package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/watching"
)

// podListDelay is how long a workload may be unready before its pods are listed to find what prevents them from running; with a
// short progress deadline, half of that.
const podListDelay = 10 * time.Second

// Parts are what a reconciliation of a Canary needs.
type Parts struct {
	Observer
	// APIReader reads from the API server.
	APIReader client.Reader
	Clock     clock.PassiveClock
	Queries   *queryrunner.Runner
	Reporter  *Reporter
	Metrics   *telemetry.Metrics
	// Shards are the shards that this process holds; nil: it reconciles all Canaries.
	Shards *sharding.Held
	// Watch starts watches of these kinds of workloads and routes, so that changes of their objects requeue the releases. Add sets
	// it; a caller without a manager must provide it.
	Watch func(workloads, routes []schema.GroupVersionKind) error
	// Health reports a message about the health of a part to the administrator; an empty message clears it. nil: no report.
	Health func(part, message string)
}

// Reconciler reconciles Canaries.
type Reconciler struct {
	Parts

	frame        *reconciler.Frame[*flaggerv1.Canary, flaggerv1.CanaryStatus]
	dependents   *watching.Dependents
	observed     watching.Observed
	ceded        watching.CededReleases
	memory       *memory
	statusWriter statusWriter
	newest       *readyourwrites.NewestVersions
}

// New returns a reconciler without memory of earlier reconciliations.
func New(parts Parts) *Reconciler {
	r := &Reconciler{
		Parts: parts, dependents: watching.NewDependents(), memory: newMemory(),
		newest: readyourwrites.NewNewestVersions(flaggerv1.CanaryKind, parts.APIReader),
	}
	r.frame = &reconciler.Frame[*flaggerv1.Canary, flaggerv1.CanaryStatus]{
		Kind:   flaggerv1.SchemeGroupVersion.WithKind(flaggerv1.CanaryKind),
		Client: parts.Client, Clock: parts.Clock, Metrics: parts.Metrics,
		New: releases.New, Subresource: true,
		Serves:          func(*flaggerv1.Canary) bool { return true },
		ReconcileObject: r.reconcile,
		ReportPanic:     r.reportPanic,
		OnNotFound: func(_ context.Context, key types.NamespacedName) (reconcile.Result, error) {
			r.forget(key)
			return reconcile.Result{}, nil
		},
		Shards:  parts.Shards,
		Forget:  r.forget,
		Newest:  r.newest,
		RetryAt: r.memory.RetryAt,
	}
	return r
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.frame.Reconcile(ctx, req)
}

// reconcile observes one Canary, decides, applies the effects, writes the status, reports and sends queries.
func (r *Reconciler) reconcile(ctx context.Context, object *flaggerv1.Canary) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(object)
	s, err := r.observeWithMemory(ctx, object)
	if err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	ctx = readyourwrites.WithWriteCheck(ctx, r.requireNewest(object))
	decision := r.frame.Decide(func() canary.Decision { return canary.Next(s.snapshot) })
	decision, rejected, err := r.effectApplier().applyDecision(ctx, s, decision)
	if err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	canary.FillStamps(&decision.Status, s.snapshot.Plan, decision.Stamp, r.Clock.Now())
	explanation := r.memory.explain(key, decision, s.snapshot, r.Clock.Now())
	written, err := r.writeStatus(ctx, s, decision, explanation)
	if err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	r.memory.ResetBackoff(key, reconciler.LostRace)
	releases.RecordOutcome(r.Queue, object, s.object, canary.WaitsForQueueSlot(decision))
	r.Reporter.Report(ctx, s.object, s.snapshot.Plan, s.snapshot.Status.Phase, decision)
	r.updateMetrics(s, decision)
	r.countEnding(s.snapshot.Plan, decision, s.snapshot.Now)
	if err := r.frame.VerifyBeforeQueries(ctx, s.object, decision.Queries); err != nil {
		return r.frame.RetryLater(ctx, key, err)
	}
	if err := r.Queries.Submit(s.queryKey(), decision.Queries); err != nil {
		return reconcile.Result{}, err
	}
	r.Queries.SetAnswerLimit(s.queryKey(), maxQueries(object))

	r.memory.ScheduleWake(key, decision.Wake)
	retry := reconciler.Earliest(s.podsDue, s.otherControllerDue, r.memory.Retry(key, reconciler.Refused, rejected, s.snapshot.Now), r.memory.Retry(key, reconciler.NotInstalled, s.needsRetry, s.snapshot.Now))
	explainAt := explanation.At
	if s.snapshot.OtherController.Acts() {
		explainAt = time.Time{} // the status belongs to Flagger
	}
	return r.frame.Requeue(s.snapshot.Now, decision.Wake, explainAt, retry, written), nil
}

// observeWithMemory observes a Canary, and adds what this process remembers of it and the answers that it received.
func (r *Reconciler) observeWithMemory(ctx context.Context, object *flaggerv1.Canary) (*observation, error) {
	key, now, stored := client.ObjectKeyFromObject(object), r.Clock.Now(), decodeState(object)
	other, nextCheck, err := r.otherController(ctx, key, now)
	if err != nil {
		return nil, err
	}
	if !other.Acts() || canary.IsOwnRelease(object.Status) {
		if err := r.checkNewest(ctx, object, canary.IsActivePhase(object.Status.Phase)); err != nil {
			return nil, err
		}
	}
	r.dependents.Add(key, r.initialDependencies(object))
	s, err := r.observe(ctx, object, now, other)
	// A change before the registration of a dependency requeued nothing, and may have come after the observation.
	for err == nil && r.dependents.Set(key, s.dependencies) {
		s, err = r.observe(ctx, object, now, other)
	}
	if err != nil {
		return nil, err
	}
	r.observed.Record(key, s.observedVersions())
	s.stored, s.otherControllerDue = stored, nextCheck
	if err := r.Watch(s.workloads, s.routes); err != nil {
		return nil, fmt.Errorf("watch the dependencies of Canary %s: %w", key, err)
	}
	s.snapshot.Answers = r.Queries.Answers(s.queryKey())
	if !other.Acts() {
		r.memory.trackReadiness(key, &s.snapshot.Workload, r.Clock.Now()) // progress that was read after now does not count from now
	}
	if err := r.findPodProblems(ctx, key, s); err != nil {
		return nil, err
	}
	r.describeUnreported(ctx, key, s)
	if by, due := r.memory.Lateness(key, now); due {
		r.Metrics.RecordLateness(flaggerv1.CanaryKind, by)
	}
	return s, nil
}

// reportPanic reports a panic, in the condition Blocked and in an event.
func (r *Reconciler) reportPanic(ctx context.Context, object *flaggerv1.Canary, fault error) error {
	key, now := client.ObjectKeyFromObject(object), r.Clock.Now()
	stored := decodeState(object)
	s := &observation{object: object, stored: stored, snapshot: canary.Snapshot{
		Now: now, UID: string(object.UID), Generation: object.Generation, Status: *object.Status.DeepCopy(),
		Plan: canary.Plan{Name: object.Name, Namespace: object.Namespace, Target: object.Spec.TargetRef.Name},
	}}
	decision := canary.PanicDecision(s.snapshot, reconciler.PanicMessage("release", fault))
	if _, err := r.writeStatus(ctx, s, decision, r.memory.explain(key, decision, s.snapshot, now)); err != nil {
		return err
	}
	r.Reporter.Report(ctx, s.object, s.snapshot.Plan, s.snapshot.Status.Phase, decision)
	return nil
}

// writeStatus stores the decision if the status changes, or if a wait has to be explained. It reports whether that created a new
// version, whose event requeues the release.
func (r *Reconciler) writeStatus(ctx context.Context, s *observation, d canary.Decision, explanation reconciler.Explanation) (written bool, err error) {
	if s.snapshot.OtherController.Acts() || !explanation.Due && sameStatus(d.Status, s.snapshot.Status) {
		return false, nil
	}
	status := d.Status.DeepCopy()
	if status.Serin == nil {
		status.Serin = &flaggerv1.SerinStatus{}
	}
	status.Serin.Gates = gatesOf(explanation)
	key := client.ObjectKeyFromObject(s.object)
	before := *s.object
	before.Status = s.stored
	stored, err := r.statusWriter.write(ctx, r.Client, &before, status)
	if err != nil {
		if !apierrors.IsTooManyRequests(err) && !reconciler.IsRejected(err) {
			r.newest.Forget(key) // after a conflict, the observed version is known to be outdated
		}
		return false, fmt.Errorf("write the status of Canary %s: %w", key, err)
	}
	written = stored.ResourceVersion != s.object.ResourceVersion
	s.stored = decodeState(stored)
	s.object = stored
	r.newest.RecordVersion(key, stored)
	return written, nil
}

// updateMetrics updates the metrics of the release.
func (r *Reconciler) updateMetrics(s *observation, d canary.Decision) {
	plan := s.snapshot.Plan
	series := telemetry.Canary{
		Namespace: plan.Namespace, Name: plan.Name, Target: plan.Target,
		Phase: string(d.Status.Phase), Strategy: string(plan.Strategy),
	}
	weight := -1
	for _, effect := range d.Effects {
		if route, ok := effect.(canary.TrafficWeight); ok {
			weight = route.Canary
		}
	}
	switch {
	case weight >= 0:
	case plan.HasRouter && s.snapshot.Route.Found && s.snapshot.Route.Problem == "":
		weight = s.snapshot.Route.Canary
	case !plan.HasRouter && d.Status.Iterations > 0:
		weight = release.Total
	case !plan.HasRouter:
		weight = 0
	}
	if weight >= 0 {
		series.Weights = &telemetry.Weights{Primary: release.Total - weight, Canary: weight}
	}
	key := types.NamespacedName{Namespace: plan.Namespace, Name: plan.Name}
	r.Metrics.SetWaitingGate(flaggerv1.CanaryKind, plan.Namespace, plan.Name, r.memory.WaitingGate(key, d.Gates))
	if s.snapshot.TargetConflict != "" {
		r.Metrics.HideCanary(plan.Namespace, plan.Name) // the series have the name of the target, and another release reports them
		return
	}
	r.Metrics.SetCanary(series)
}

// countEnding counts the end of a release, once its status is written. began is the start of the reconciliation.
func (r *Reconciler) countEnding(plan canary.Plan, d canary.Decision, began time.Time) {
	switch d.Ending {
	case release.EndingPromoted:
		r.Metrics.CountSuccess(plan.Namespace, plan.Target, string(plan.Strategy), telemetry.AnalysisCompleted)
	case release.EndingUnanalyzed:
		r.Metrics.CountSuccess(plan.Namespace, plan.Target, string(plan.Strategy), telemetry.AnalysisSkipped)
	case release.EndingFailed:
		r.Metrics.CountFailure(plan.Namespace, plan.Target, string(plan.Strategy))
	default: // the release continues, or the Canary is idle
	}
	if d.Analyzed {
		r.Metrics.RecordAnalysisDuration(plan.Namespace, plan.Target, r.Clock.Since(began))
	}
}

// findPodProblems determines what prevents pods from running, with one LIST for a workload that has been unready for a while.
func (r *Reconciler) findPodProblems(ctx context.Context, key types.NamespacedName, s *observation) error {
	w := &s.snapshot.Workload
	delay := min(podListDelay, s.snapshot.Plan.Deadline/2) // the cause must be known before a rollback at the deadline
	for _, checked := range []struct {
		copy    *canary.WorkloadState
		primary bool
	}{{&w.Target, false}, {&w.Primary, true}} {
		unready := checked.copy.Found && !checked.copy.Ready && checked.copy.Replicas > 0
		at, problem := r.memory.nextPodList(key, checked.primary, unready, s.snapshot.Now, delay)
		if !at.IsZero() && !at.After(s.snapshot.Now) {
			pods, err := r.Workloads.ForCanary(s.object).Pods(ctx, s.object, checked.primary)
			if err != nil {
				return fmt.Errorf("list the pods of %s: %w", key, err)
			}
			problem = pods.Problem().String()
			r.memory.recordPodList(key, checked.primary, problem, s.snapshot.Now)
			at, _ = r.memory.nextPodList(key, checked.primary, unready, s.snapshot.Now, delay)
		}
		checked.copy.PodProblem = problem
		s.podsDue = reconciler.Earliest(s.podsDue, at)
	}
	return nil
}

// describeUnreported describes the parent of the route about which no router has reported, with at most one request per minute
// once the report is overdue. A router may need a moment after each change of the parents, so the time counts from the first
// observation by this process.
func (r *Reconciler) describeUnreported(ctx context.Context, key types.NamespacedName, s *observation) {
	now := s.snapshot.Now
	u, isDue := r.memory.trackUnreported(key, s.unreported, now)
	if isDue {
		u.message = r.Applier.DescribeUnreported(ctx, *s.unreported)
		r.memory.recordUnreported(key, u.message, now)
	}
	s.snapshot.Route.Unreported = canary.Unreported{Message: u.message, Since: u.since}
}

// forget drops the state of a Canary that no longer exists, or that another process reconciles.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.ceded.Forget(key, r.showOtherController)
	r.Queries.Forget(key)
	r.Workloads.Forget(key)
	r.dependents.Forget(key)
	r.observed.Forget(key)
	r.Reporter.Forget(key)
	r.Queue.Forget(flaggerv1.CanaryKind, key)
	r.newest.Forget(key)
	r.memory.Forget(key)
	r.Metrics.ForgetCanary(key.Namespace, key.Name)
}

// RequeueShard requeues the Canaries in the namespaces of a shard.
func (r *Reconciler) RequeueShard(queue *reconciler.Queue) sharding.Requeue {
	return func(ctx context.Context, inShard func(namespace string) bool) error {
		return releases.RequeueShard(ctx, r.Client, queue, inShard)
	}
}

// Footprint returns the keys of all state that this process keeps about Canaries.
func (r *Reconciler) Footprint() reconciler.Footprint {
	return reconciler.FootprintOf(reconciler.Footprint{
		"panicked": r.frame.Panicked(), "acquisitions": r.frame.AcquisitionKeys(), "dependents": r.dependents.Keys(), "observed": r.observed.Keys(), "ceded": r.ceded.Keys(), "memory": r.memory.Keys(), "newest": r.newest.Keys(),
		"queue": r.Queue.Keys(flaggerv1.CanaryKind), "queries": r.Queries.Keys(), "recorder": r.Reporter.Recorder.Keys(), "ongoing-events": r.Reporter.OngoingEvents.Keys(),
		"alert-failures": r.Reporter.failures.keys(), "workloads": r.Workloads.CachedKeys(),
	})
}
