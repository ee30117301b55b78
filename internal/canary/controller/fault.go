package controller

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/shell"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Reconcile is one pass over one Canary. A panic in it is a fault of Serin, which must cost this release alone: it is
// logged, counted, told on the release, and the pass is tried again after a while.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	key := req.NamespacedName
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("canary", key.Name+"."+key.Namespace))
	defer func() {
		if cause := recover(); cause != nil {
			result, err = r.faulted(ctx, key, cause), nil
		}
	}()
	result, err = r.pass(ctx, key)
	r.memory.succeeded(key, afterFault)
	return result, err
}

// faulted tells of a pass that panicked, and says when the next is due.
func (r *Reconciler) faulted(ctx context.Context, key types.NamespacedName, cause any) reconcile.Result {
	fault := telemetry.Fault(cause)
	log.FromContext(ctx).Error(fault, "Pass panicked", "stack", string(debug.Stack()))
	r.Metrics.Panicked(flaggerv1.CanaryKind)
	now := r.Clock.Now()
	next := r.memory.again(key, afterFault, now)
	if err := r.tellFault(ctx, key, fault, now); err != nil {
		log.FromContext(ctx).Error(err, "Told of a panic")
	}
	return reconcile.Result{RequeueAfter: shell.WakeIn(now, next)}
}

// tellFault says it in the condition Blocked and in an event. What panicked a moment ago may do so again.
func (r *Reconciler) tellFault(ctx context.Context, key types.NamespacedName, fault error, now time.Time) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = telemetry.Fault(cause)
		}
	}()
	object := &flaggerv1.Canary{}
	switch err := r.Client.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Canary %s: %w", key, err)
	}
	s := &seen{object: object, snapshot: canary.Snapshot{
		Now: now, UID: string(object.UID), Generation: object.Generation, Status: *object.Status.DeepCopy(), Pruned: r.memory.pruned(key),
		Plan: canary.Plan{Name: object.Name, Namespace: object.Namespace, Target: object.Spec.TargetRef.Name},
	}}
	decision := canary.Faulted(s.snapshot, fmt.Sprintf(
		"Serin failed at this release by a fault of its own (%v), and its log has the details: nothing of it changes until that is mended; it is tried again, at least every %s",
		fault, maxPause))
	gates, _ := r.memory.gates(key, decision, s.snapshot, now)
	if _, err := r.writeStatus(ctx, key, s, &decision, gates); err != nil {
		return err
	}
	r.Reporter.Report(ctx, s.object, s.snapshot.Plan, s.snapshot.Status.Phase, decision)
	return nil
}

// trouble is what makes a release wait longer with each failure in a row.
type trouble string

const (
	afterFault   trouble = "fault"         // a pass panicked
	afterRefusal trouble = "refused"       // an effect was refused; rights may be granted, a quota raised
	notInstalled trouble = "not-installed" // the kind of a route has no definition
	lostRace     trouble = "lost-race"     // an object was just changed, or the cache does not have our own last write yet
)

// Bounds of the pause after failures in a row. A release that nobody mends must not cost those that are well: what
// thousands of them ask for is one pass each in five minutes.
const (
	firstPause = 15 * time.Second
	maxPause   = 5 * time.Minute
)

// Bounds of the pause after lost races. Most are over at once; a watch that lags for long must not cost a pass each time.
const (
	firstRace = 20 * time.Millisecond
	maxRace   = 5 * time.Second
)

// pauses are the first and the longest pause of a row.
func (of trouble) pauses() (first, most time.Duration) {
	if of == lostRace {
		return firstRace, maxRace
	}
	return firstPause, maxPause
}

// retry is a row of failures.
type retry struct {
	pause time.Duration
	next  time.Time
}

// again counts a failure and is when to try next. A pass that something else brought before that moment is not one more
// failure.
func (m *memory) again(key types.NamespacedName, of trouble, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	row := e.retries[of]
	first, most := of.pauses()
	if now.Before(row.next) && row.next.Sub(now) <= most { // a clock that was set back must not hold it for longer
		return row.next
	}
	row.pause = min(max(2*row.pause, first), most)
	row.next = now.Add(row.pause)
	if e.retries == nil {
		e.retries = map[trouble]retry{}
	}
	e.retries[of] = row
	return row.next
}

func (m *memory) succeeded(key types.NamespacedName, of trouble) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.of[key]; e != nil {
		delete(e.retries, of)
	}
}
