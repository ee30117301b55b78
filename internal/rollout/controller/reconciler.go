// Package controller is the shell of package rollout: it observes, applies what the machine decided, writes the status and
// tells people.
//
// It must not decide anything about a release: an if on a phase belongs into the machine. It must not wait for anything
// but the API server.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/ownwrites"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/shell"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

// Parts are what a pass over a Rollout needs.
type Parts struct {
	Observer
	Clock    clock.PassiveClock
	Recorder *telemetry.Recorder
	Standing *telemetry.Standing
	Metrics  *telemetry.Metrics
	// Notifications dispatches notifications; nil: there are none.
	Notifications *dispatch.Dispatcher
	// Resync is how often a workload is looked at of whose changes no watch tells.
	Resync time.Duration
	// Watch makes sure that changes of objects of these kinds bring their releases back. Add sets it; whoever runs passes
	// without a manager provides it.
	Watch func(kinds []schema.GroupVersionKind) error
	// Marked are the kinds of users' objects, beside Services, that carry marks of Rollouts and may be watched.
	Marked []schema.GroupVersionKind
	// Health shows a sentence about the health of a part to whoever runs Serin; an empty one takes it away. nil: nobody.
	Health func(part, sentence string)
}

// Reconciler is one pass over one Rollout, and what is remembered between passes.
type Reconciler struct {
	Parts

	guard      shell.Guard
	dependents *watching.Dependents
	left       watching.Left
	memory     *memory
	// known are Rollouts, and lenders the workloads whose templates they have.
	known, lenders *ownwrites.Newest
}

// New makes a reconciler that remembers nothing yet.
func New(parts Parts) *Reconciler {
	return &Reconciler{
		Parts: parts, dependents: watching.NewDependents(), memory: newMemory(),
		known: ownwrites.NewestOf(argov1.RolloutKind, parts.Reader), lenders: ownwrites.NewestOf("the workload of Rollout", parts.Reader),
	}
}

// pass is one pass over one Rollout: observe, decide, apply, write, tell.
func (r *Reconciler) pass(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	object := &argov1.Rollout{}
	switch err := r.Client.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		if err := r.gone(ctx, key, ""); err != nil {
			return reconcile.Result{}, err
		}
		return r.leftovers(ctx, key)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get Rollout %s: %w", key, err)
	case object.DeletionTimestamp != nil:
		return reconcile.Result{}, nil // its end is an event of its own
	}
	if err := r.gone(ctx, key, object.UID); err != nil { // one of the same name before it
		return reconcile.Result{}, err
	}
	r.Metrics.RolloutExists(key.Namespace, key.Name)
	began := r.Clock.Now()
	sign, err := r.leftTo(ctx, key, began)
	if err != nil {
		return r.later(ctx, key, began, err)
	}
	if sign.Text != "" {
		r.tell(ctx, object, r.Standing.News(key, rollout.LeftTo(sign.Text, sign.Until).Events)...)
		if !rollout.OwnRelease(object.Status) {
			return reconcile.Result{RequeueAfter: shell.WakeIn(began, sign.Until)}, nil
		}
	}
	if r.memory.meets(key, object.UID) {
		r.tell(ctx, object, added(object))
		if adopted, ok := rollout.Adopted(object); ok {
			r.tell(ctx, object, adopted)
		}
	}
	ctx = ownwrites.Checked(ctx, r.takeOver(object))
	s, err := r.observe(ctx, object, began)
	if errors.Is(err, traffic.ErrUnreachable) {
		return r.unreachable(ctx, object, began, err)
	}
	if err != nil {
		return r.later(ctx, key, began, err)
	}
	ctx = ownwrites.Checked(ctx, r.takeOverSets(s, r.takeOverWorkload(s, r.takeOver(object))))
	r.dependents.Set(key, s.things)
	if err := r.Watch(s.kinds); err != nil {
		return reconcile.Result{}, fmt.Errorf("watch what Rollout %s depends on: %w", key, err)
	}
	if by, due := r.memory.Lateness(key, began); due {
		r.Metrics.Late(argov1.RolloutKind, by)
	}

	deciding := r.Clock.Now()
	decision := rollout.Next(s.snapshot)
	r.Metrics.Decided(argov1.RolloutKind, r.Clock.Since(deciding))
	if sign.Text != "" && !rollout.RollsBack(s.snapshot, decision) {
		wake := sign.Until
		r.settle(s.object, s, rollout.Decision{})
		if decision.Wake.After(s.snapshot.Now) { // such as a deadline
			wake = shell.Earliest(wake, decision.Wake)
		}
		return reconcile.Result{RequeueAfter: shell.WakeIn(began, wake)}, nil
	}
	told, failed := r.apply(ctx, s, decision.Effects)
	s.snapshot.Now = release.Later(s.snapshot.Now, r.Clock.Now()) // a pause begins when its weight is there
	r.tellAbout(ctx, r.about(s), told...)
	if failed == nil {
		decision = rollout.Settled(s.snapshot, decision)
	} else {
		if decision, err = r.failed(s, decision.Gates, failed); err != nil {
			return r.later(ctx, key, began, err)
		}
		switch {
		case errors.Is(failed, errTaken):
			failed = nil // the next pass takes another name
		case errors.Is(failed, traffic.ErrUnreachable):
			failed, s.again = nil, shell.Earliest(s.again, s.snapshot.Now.Add(unreachableRetry)) // no watch tells that it answers
		}
	}
	switch {
	case refused(failed):
		failed, s.again = nil, shell.Earliest(s.again, r.memory.RetryAt(key, shell.Refused, began))
	default:
		r.memory.Succeeded(key, shell.Refused)
	}
	if s.missing {
		s.again = shell.Earliest(s.again, r.memory.RetryAt(key, shell.NotInstalled, began))
	} else {
		r.memory.Succeeded(key, shell.NotInstalled)
	}
	explanation := r.memory.explain(s, decision)
	written, err := r.writeStatus(ctx, s, &decision, explanation, s.released || explanation.Due)
	if err != nil {
		return r.later(ctx, key, began, err)
	}
	r.settle(object, s, decision)
	r.memory.Do(key, func(e *remembered) { e.routed, e.routedKnown = s.routed(), true })
	r.memory.Succeeded(key, shell.LostRace)
	r.tellAbout(ctx, r.about(s), r.Standing.News(key, slices.Concat(decision.Events, s.heard))...)
	r.notify(ctx, r.about(s))
	r.show(s, decision)
	r.memory.ScheduleWake(key, decision.Wake)
	explain := explanation.At
	if written {
		explain = time.Time{} // the status shows all gates now
	}
	if written && !decision.Wake.After(s.snapshot.Now) {
		decision.Wake = time.Time{}
	}
	return reconcile.Result{RequeueAfter: shell.WakeIn(r.Clock.Now(), shell.Earliest(decision.Wake, explain, s.again))}, failed
}

// failed is what is decided instead where the failure of an effect is part of what is known of the release; else it is
// the failure itself.
func (r *Reconciler) failed(s *seen, looked release.Gates, cause error) (rollout.Decision, error) {
	if refusal, ok := errors.AsType[*refusedError](cause); ok {
		return rollout.CreateRefused(s.snapshot, refusal.name, refusal.cause.Error()), nil
	}
	switch {
	case errors.Is(cause, errTaken):
		return rollout.NameTaken(s.snapshot), nil
	case errors.Is(cause, traffic.ErrUnreachable):
		r.Metrics.RolloutFailed(s.object.Namespace, s.object.Name)
		return rollout.Unreachable(s.snapshot, looked, shell.Sentence(cause)), nil
	case refused(cause):
		r.Metrics.RolloutFailed(s.object.Namespace, s.object.Name)
		return rollout.Refused(s.snapshot, looked, shell.Sentence(cause)), nil
	default:
		return rollout.Decision{}, cause
	}
}

// refused is true of what somebody has to put right before it can succeed. It is tried again less and less often: what
// thousands of such releases ask for is one reconciliation each in five minutes.
func refused(cause error) bool {
	return isSentence(cause) || apierrors.IsForbidden(cause) || apierrors.IsInvalid(cause)
}

// later tells errors that go away by themselves, at once, from those that need patience.
func (r *Reconciler) later(ctx context.Context, key types.NamespacedName, began time.Time, err error) (reconcile.Result, error) {
	switch {
	case overtaken(err):
		log.FromContext(ctx).V(1).Info("Looked again", "why", err.Error())
		return reconcile.Result{RequeueAfter: shell.WakeIn(began, r.memory.RetryAt(key, shell.LostRace, began))}, nil
	default:
		r.Metrics.RolloutFailed(key.Namespace, key.Name)
		return reconcile.Result{}, err
	}
}

// overtaken is true of what only says that somebody was faster, this process itself among them: the next look knows it.
func overtaken(err error) bool {
	return apierrors.IsConflict(err) || errors.Is(err, ownwrites.ErrBehind) || apierrors.IsAlreadyExists(err) ||
		errors.Is(err, errChanged) || errors.Is(err, traffic.ErrChanged)
}

// writeStatus stores the decision if the status changes, or if forced, and reports whether that created a new version, whose
// event requeues the release. The patch names the version that the decision was based on and contains only the difference, so
// that fields of a newer Serin are retained.
func (r *Reconciler) writeStatus(ctx context.Context, s *seen, d *rollout.Decision, explanation shell.Explanation, forced bool) (written bool, err error) {
	if !forced && rollout.SameStatus(withoutGates(d.Status), withoutGates(s.snapshot.Status)) {
		return false, nil
	}
	status := *d.Status.DeepCopy()
	status.Serin = explained(status, explanation, s.routed())
	patch, err := shell.StatusPatch(s.object.ResourceVersion, &s.snapshot.Status, &status)
	if err != nil {
		return false, fmt.Errorf("compare the status of Rollout %s with what it was: %w", s.key(), err)
	}
	stored := &argov1.Rollout{} // takes the answer
	stored.Namespace, stored.Name = s.object.Namespace, s.object.Name
	if err := r.Client.Status().Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch)); err != nil {
		if !apierrors.IsConflict(err) {
			r.known.Forget(s.key())
		}
		return false, fmt.Errorf("write the status of Rollout %s: %w", s.key(), err)
	}
	written = stored.ResourceVersion != s.object.ResourceVersion
	if r.memory.losesPlace(status.Serin, stored.Status.Serin) {
		s.again = shell.Earliest(s.again, s.snapshot.Now) // the line knows who waits, now that the status cannot say it
	}
	s.object = stored
	r.known.Knows(s.key(), stored)
	if r.memory.noticePruning(status.Serin, stored.Status.Serin) {
		r.tell(ctx, stored, release.Event{Type: release.Warning, Reason: "StatusPruned", Message: textPruned})
	}
	return written, nil
}

// textPruned is what people read of definitions that know nothing of Serin.
const textPruned = "The installed definition of rollouts.argoproj.io drops status.serin: releases work, with less precision after a restart, and do not say what they wait for; apply Serin's definitions with: serin crds --group argoproj.io | kubectl apply --server-side -f -"

// explained is what Serin adds to a status: what is waited for, when the pause began, while there is one, which release is
// Serin's, and who shares the traffic.
func explained(status argov1.RolloutStatus, explanation shell.Explanation, routed []argov1.RoutedStatus) *argov1.SerinStatus {
	own := argov1.SerinStatus{Gates: gatesOf(explanation), Routed: routed}
	if status.Serin != nil {
		own.Queue = status.Serin.Queue
	}
	if status.Serin != nil && len(status.PauseConditions) > 0 {
		own.PausedAt = status.Serin.PausedAt
	}
	if status.Serin != nil {
		own.CarriedBy = status.Serin.CarriedBy
	}
	if status.CurrentPodHash != status.StableRS {
		own.Release = status.CurrentPodHash
	}
	if equality.Semantic.DeepEqual(own, argov1.SerinStatus{}) {
		return nil
	}
	return &own
}

func withoutGates(status argov1.RolloutStatus) argov1.RolloutStatus {
	var own *argov1.SerinStatus
	if status.Serin != nil && status.Serin.Queue != nil {
		own = &argov1.SerinStatus{Queue: status.Serin.Queue}
	}
	status.Serin = own
	return status
}

// gone gives back what a Rollout had that was deleted: Services select the pods of all revisions again, and routes are as
// their users have them. Nobody waits for it: there is no finalizer. now is the one that has the name now; empty: none.
func (r *Reconciler) gone(ctx context.Context, key types.NamespacedName, now types.UID) error {
	was := r.memory.deleted(key)
	if was == nil {
		if now == "" {
			r.forget(key)
		}
		return nil
	}
	stored, err := r.storedUID(ctx, key)
	if err != nil {
		return err
	}
	if was.UID == now || was.UID == stored {
		r.memory.settled(key) // it has only left our sight
		if now == "" {
			r.forget(key) // another controller serves it
		}
		return nil
	}
	if stored == "" { // a Rollout that has its name continues with what it had, even if the cache does not have it yet
		if err := r.giveBack(ctx, was); err != nil {
			return fmt.Errorf("give back what Rollout %s had: %w", key, err)
		}
	}
	r.tell(ctx, was, removed(was))
	r.memory.settled(key)
	r.forget(key)
	return nil
}

// storedUID returns the UID of the Rollout that the API server has under a name, and "" if it has none: a Rollout that is
// missing in the cache may have left only our selector, or may have been created again a moment ago.
func (r *Reconciler) storedUID(ctx context.Context, key types.NamespacedName) (types.UID, error) {
	stored := &argov1.Rollout{}
	if err := r.Reader.Get(ctx, key, stored); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read Rollout %s from the API server: %w", key, err)
	}
	return stored.UID, nil
}

// giveBack releases the routes and the Services of a Rollout that is gone. The Services come last: by their marks another
// process goes on, should this one die.
func (r *Reconciler) giveBack(ctx context.Context, was *argov1.Rollout) error {
	managed, err := r.managedServices(ctx, client.ObjectKeyFromObject(was))
	if err != nil {
		return err
	}
	former, err := r.formerOf(was, managed) // their objects may not have been given back yet
	if err != nil {
		return err
	}
	for _, named := range former {
		if err := r.restore(ctx, as(was, named)); err != nil {
			return err
		}
	}
	if err := r.restore(ctx, was); err != nil {
		return err
	}
	if slices.Contains(r.Marked, deploymentKind) {
		workloads, err := r.markedWorkloads(ctx, client.ObjectKeyFromObject(was))
		if err != nil {
			return err
		}
		for _, name := range namesOf(workloads) {
			if _, err := r.releaseWorkload(ctx, was, name); err != nil {
				return err
			}
		}
	}
	services := namesOf(managed)
	for _, name := range rollout.ServicesOf(was.Spec.Strategy) { // an old list may not have them yet
		if !slices.Contains(services, name) {
			services = append(services, name)
		}
	}
	for _, name := range services {
		if _, err := r.releaseService(ctx, was.Namespace, was.Name, name); err != nil {
			return err
		}
	}
	return nil
}

// restore makes the routes of a Rollout what their users have them be.
func (r *Reconciler) restore(ctx context.Context, was *argov1.Rollout) error {
	routers, err := r.routersOf(was)
	if err != nil {
		return nil //nolint:nilerr // a router that is not served has nothing of ours
	}
	for _, router := range routers {
		if err := r.Applier.Restore(ctx, router.Renderer, router.Target(was, "", "")); err != nil && !errors.Is(err, traffic.ErrNotInstalled) {
			return err
		}
	}
	return nil
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.left.Forget(key, r.showPeer)
	r.Line.Forget(argov1.RolloutKind, key)
	if r.Outside != nil {
		r.Outside.Forget(key)
	}
	r.memory.Forget(key)
	r.known.Forget(key)
	r.lenders.Forget(key)
	r.dependents.Forget(key)
	r.Recorder.Forget(key)
	if r.Notifications != nil {
		r.Notifications.Forget(key)
	}
	r.Standing.Forget(key)
	r.Metrics.ForgetRollout(key.Namespace, key.Name)
}

// Footprint is what this process remembers of Rollouts.
func (r *Reconciler) Footprint() shell.Footprint {
	parts := shell.Footprint{
		"guard": r.guard.Keys(), "dependents": r.dependents.Keys(), "left": r.left.Keys(), "memory": r.memory.keys(), "known": r.known.Keys(), "line": r.Line.Keys(argov1.RolloutKind),
		"lenders": r.lenders.Keys(), "recorder": r.Recorder.Keys(), "standing": r.Standing.Keys(),
	}
	if r.Outside != nil {
		parts["prober"] = r.Outside.Keys()
	}
	if r.Notifications != nil {
		parts["notifications"] = r.Notifications.Keys()
	}
	return shell.FootprintOf(parts)
}
