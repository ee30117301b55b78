// Package controller is the shell of package canary: it observes, applies what the machine decided, writes the status,
// tells people, and hands out probes.
//
// It must not decide anything about a release: an if on a phase belongs into the machine. It must not wait for the
// outside either; questions leave through the prober and their answers bring the release back.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/ownwrites"
	"github.com/serin-dev/serin/internal/prober"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/shell"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
	"github.com/serin-dev/serin/internal/workload"
)

// stuckLook is how long a workload may be unready before its pods are listed to name what keeps them from
// running; with a short progress deadline half of that.
const stuckLook = 10 * time.Second

// Parts are what a pass over a Canary needs.
type Parts struct {
	Observer
	// Reader reads from the API server.
	Reader   client.Reader
	Clock    clock.PassiveClock
	Prober   *prober.Prober
	Reporter *Reporter
	Metrics  *telemetry.Metrics
	// Watch makes sure that changes of objects of these kinds, those of workloads and those of routes, bring their
	// releases back. Add sets it; whoever runs passes without a manager provides it.
	Watch func(workloads, routes []schema.GroupVersionKind) error
	// Health shows a sentence about the health of a part to whoever runs Serin; an empty one takes it away. nil: nobody.
	Health func(part, sentence string)
}

// Reconciler is one pass over one Canary, and what is remembered between passes.
type Reconciler struct {
	Parts

	guard      shell.Guard
	dependents *watching.Dependents
	left       watching.Left
	memory     *memory
	form       statusForm
	known      *ownwrites.Newest
}

// New makes a reconciler that remembers nothing yet.
func New(parts Parts) *Reconciler {
	return &Reconciler{
		Parts: parts, dependents: watching.NewDependents(), memory: newMemory(),
		known: ownwrites.NewestOf(flaggerv1.CanaryKind, parts.Reader),
	}
}

// pass is one pass over one Canary: observe, decide, apply, write, tell, ask.
func (r *Reconciler) pass(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	object := &flaggerv1.Canary{}
	switch err := r.Client.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		r.forget(key)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get Canary %s: %w", key, err)
	}
	stored := decodeState(object)
	began := r.Clock.Now()
	peer, err := r.leftTo(ctx, key, began)
	if err != nil {
		return r.later(ctx, key, began, err)
	}
	if !peer.Acts() || canary.OwnRelease(object.Status) {
		err = r.takeOver(ctx, object, canary.Moves(object.Status.Phase))
	}
	if err != nil {
		return r.later(ctx, key, began, err)
	}
	s, err := r.observe(ctx, object, began, peer)
	if err != nil {
		return r.later(ctx, key, began, err)
	}
	s.stored = stored
	ctx = ownwrites.Checked(ctx, r.takenOver(object))
	r.dependents.Set(key, s.things)
	if err := r.Watch(s.workloads, s.routes); err != nil {
		return reconcile.Result{}, fmt.Errorf("watch what Canary %s depends on: %w", key, err)
	}
	asking := prober.Key{NamespacedName: key, UID: object.UID}
	s.snapshot.Answers = r.Prober.Answers(asking)
	if !peer.Acts() {
		r.memory.track(key, &s.snapshot.Workload, began)
	}
	look, err := r.lookAtPods(ctx, key, s)
	if err != nil {
		return r.later(ctx, key, began, err)
	}
	if by, due := r.memory.Lateness(key, began); due {
		r.Metrics.Late(flaggerv1.CanaryKind, by)
	}

	deciding := r.Clock.Now()
	decision := canary.Next(s.snapshot)
	r.Metrics.Decided(flaggerv1.CanaryKind, r.Clock.Since(deciding))
	warnings, effect, failed := r.apply(ctx, s, decision)
	decision.Events = slices.Concat(decision.Events, s.warnings, warnings)
	if failed != nil && !isSentence(failed) {
		return r.later(ctx, key, began, failed)
	}
	if failed != nil {
		decision = canary.Refused(s.snapshot, decision.Gates, effect, shell.Sentence(failed))
	}
	if byServer(failed) {
		look = shell.Earliest(look, r.memory.RetryAt(key, shell.Refused, began))
	} else {
		r.memory.Succeeded(key, shell.Refused)
	}
	canary.Stamp(&decision.Status, s.snapshot.Plan, decision.Stamp, r.Clock.Now())
	explanation := r.memory.explain(key, decision, s.snapshot, r.Clock.Now())
	written, err := r.writeStatus(ctx, key, s, &decision, explanation)
	if err != nil {
		return r.later(ctx, key, began, err)
	}
	outcome := queue.Outcome{Waits: canary.WaitsForTurn(decision)}
	if !canary.PlaceOf(object).Moves && canary.PlaceOf(s.object).Moves {
		outcome.Started = s.object.ResourceVersion
	}
	r.Line.Settle(flaggerv1.CanaryKind, key, outcome)
	r.memory.Succeeded(key, shell.LostRace)
	r.Reporter.Report(ctx, s.object, s.snapshot.Plan, s.snapshot.Status.Phase, decision)
	r.show(s, decision)
	r.measure(s.snapshot.Plan, decision, began)
	r.Prober.Ask(asking, decision.Probes)
	r.Prober.Remember(asking, questionsOf(object))

	r.memory.ScheduleWake(key, decision.Wake)
	if s.again {
		look = shell.Earliest(look, r.memory.RetryAt(key, shell.NotInstalled, began))
	} else {
		r.memory.Succeeded(key, shell.NotInstalled)
	}
	explain := explanation.At
	if written || peer.Acts() {
		explain = time.Time{} // the write shows all gates, or the status belongs to Flagger
	}
	if written && !decision.Wake.After(s.snapshot.Now) {
		decision.Wake = time.Time{} // the event of the write brings the release back
	}
	return reconcile.Result{RequeueAfter: shell.WakeIn(r.Clock.Now(), shell.Earliest(decision.Wake, explain, look))}, nil
}

// later tells errors that go away by themselves, at once, from those that need patience.
func (r *Reconciler) later(ctx context.Context, key types.NamespacedName, began time.Time, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err), errors.Is(err, ownwrites.ErrBehind), errors.Is(err, workload.ErrChanged), errors.Is(err, traffic.ErrChanged), apierrors.IsAlreadyExists(err):
		log.FromContext(ctx).V(1).Info("Looked again", "why", err.Error())
		return reconcile.Result{RequeueAfter: shell.WakeIn(began, r.memory.RetryAt(key, shell.LostRace, began))}, nil
	default:
		return reconcile.Result{}, err
	}
}

// writeStatus persists the decision, if it says anything new, and is true when that made a new version, whose event
// brings the release back.
func (r *Reconciler) writeStatus(ctx context.Context, key types.NamespacedName, s *seen, d *canary.Decision, explanation shell.Explanation) (written bool, err error) {
	if s.snapshot.Peer.Acts() || !explanation.Due && sameStatus(d.Status, s.snapshot.Status) {
		return false, nil
	}
	status := d.Status.DeepCopy()
	if status.Serin == nil {
		status.Serin = &flaggerv1.SerinStatus{}
	}
	status.Serin.Gates = gatesOf(explanation)
	before := *s.object
	before.Status = s.stored
	stored, err := r.form.write(ctx, r.Client, &before, status)
	if err != nil {
		if !apierrors.IsTooManyRequests(err) && !byServer(err) {
			r.known.Forget(key) // where it was a conflict, somebody else was faster, and what was seen is known to be old
		}
		return false, fmt.Errorf("write the status of Canary %s: %w", key, err)
	}
	written = stored.ResourceVersion != s.object.ResourceVersion
	s.stored = decodeState(stored)
	s.object = stored
	r.known.Knows(key, stored)
	return written, nil
}

// show puts what is known into the metrics.
func (r *Reconciler) show(s *seen, d canary.Decision) {
	plan := s.snapshot.Plan
	shown := telemetry.Canary{
		Namespace: plan.Namespace, Name: plan.Name, Target: plan.Target,
		Phase: string(d.Status.Phase), Strategy: string(plan.Strategy),
	}
	weight := -1
	for _, effect := range d.Effects {
		if route, ok := effect.(canary.RouteIs); ok {
			weight = route.Canary
		}
	}
	switch {
	case weight >= 0:
	case plan.Routed && s.snapshot.Route.Found && s.snapshot.Route.Problem == "":
		weight = s.snapshot.Route.Canary
	case !plan.Routed && d.Status.Iterations > 0:
		weight = release.Total
	case !plan.Routed:
		weight = 0
	}
	if weight >= 0 {
		shown.Weights = &telemetry.Weights{Primary: release.Total - weight, Canary: weight}
	}
	if s.snapshot.Obstacle != "" {
		return // the series have the target's name, and another Canary shows it
	}
	r.Metrics.Canary(shown)
	waiting := d.Gates.First()
	key := types.NamespacedName{Namespace: plan.Namespace, Name: plan.Name}
	if waiting != nil {
		r.Metrics.Waiting(flaggerv1.CanaryKind, plan.Namespace, plan.Name, shell.GateName(*waiting), r.memory.WaitingSince(key, *waiting))
	} else {
		r.Metrics.Waiting(flaggerv1.CanaryKind, plan.Namespace, plan.Name, "", time.Time{})
	}
}

// measure counts what a decision says about the release, once its status is written.
func (r *Reconciler) measure(plan canary.Plan, d canary.Decision, began time.Time) {
	switch d.Ending {
	case release.EndingPromoted:
		r.Metrics.Succeeded(plan.Namespace, plan.Target, string(plan.Strategy), telemetry.AnalysisCompleted)
	case release.EndingUnanalyzed:
		r.Metrics.Succeeded(plan.Namespace, plan.Target, string(plan.Strategy), telemetry.AnalysisSkipped)
	case release.EndingFailed:
		r.Metrics.Failed(plan.Namespace, plan.Target, string(plan.Strategy))
	default: // it goes on, or rests
	}
	if d.Analyzed {
		r.Metrics.Analysed(plan.Namespace, plan.Target, r.Clock.Since(began))
	}
}

// lookAtPods names what keeps pods from running, with a LIST for a workload that has been unready for a while. It
// returns when the next such look is due, zero for never.
func (r *Reconciler) lookAtPods(ctx context.Context, key types.NamespacedName, s *seen) (time.Time, error) {
	w := &s.snapshot.Workload
	var next time.Time
	patience := min(stuckLook, s.snapshot.Plan.Deadline/2) // a release that is taken back shall say why
	for _, of := range []struct {
		copy    *canary.Copy
		primary bool
	}{{&w.Target, false}, {&w.Primary, true}} {
		unready := of.copy.Found && !of.copy.Ready && of.copy.Replicas > 0
		at, problem := r.memory.podsDue(key, of.primary, unready, s.snapshot.Now, patience)
		if !at.IsZero() && !at.After(s.snapshot.Now) {
			var err error
			if problem, err = r.Workloads.Of(s.object).PodProblem(ctx, s.object, of.primary); err != nil {
				return next, fmt.Errorf("look at the pods of %s: %w", key, err)
			}
			r.memory.podsListed(key, of.primary, problem, s.snapshot.Now)
			at, _ = r.memory.podsDue(key, of.primary, unready, s.snapshot.Now, patience)
		}
		of.copy.PodProblem = problem
		next = shell.Earliest(next, at)
	}
	return next, nil
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.left.Forget(key, r.showPeer)
	r.Prober.Forget(key)
	r.Workloads.Forget(key)
	r.dependents.Forget(key)
	r.Reporter.Forget(key)
	r.Line.Forget(flaggerv1.CanaryKind, key)
	r.known.Forget(key)
	r.memory.Forget(key)
	r.Metrics.Forget(key.Namespace, key.Name)
}

// Footprint is what this process remembers of Canaries.
func (r *Reconciler) Footprint() shell.Footprint {
	return shell.FootprintOf(shell.Footprint{
		"guard": r.guard.Keys(), "dependents": r.dependents.Keys(), "left": r.left.Keys(), "memory": r.memory.Keys(), "known": r.known.Keys(),
		"line": r.Line.Keys(flaggerv1.CanaryKind), "prober": r.Prober.Keys(), "recorder": r.Reporter.Recorder.Keys(), "standing": r.Reporter.Standing.Keys(),
		"workloads": r.Workloads.Keys(),
	})
}
