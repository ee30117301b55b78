package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/shell"
)

// Reconcile is one pass over one Canary. A panic in it is a fault of Serin, which must cost this release alone: it is
// logged, counted, told on the release, and the pass is tried again after a while.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("canary", key.Name+"."+key.Namespace))
	return r.guard.Run(ctx, r.Clock, key, r.faulted, r.pass)
}

// faulted tells of a pass that panicked, in the condition Blocked and in an event.
func (r *Reconciler) faulted(ctx context.Context, key types.NamespacedName, fault error) error {
	r.Metrics.Panicked(flaggerv1.CanaryKind)
	now := r.Clock.Now()
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
	decision := canary.Faulted(s.snapshot, shell.FaultSentence("release", fault))
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
	afterRefusal trouble = "refused"       // an effect was refused; rights may be granted, a quota raised
	notInstalled trouble = "not-installed" // the kind of a route has no definition
	lostRace     trouble = "lost-race"     // an object was just changed, or the cache does not have our own last write yet
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
	return shell.FirstPause, shell.MaxPause
}

// again counts a failure and is when to try next.
func (m *memory) again(key types.NamespacedName, of trouble, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	if e.retries == nil {
		e.retries = map[trouble]*shell.Row{}
	}
	if e.retries[of] == nil {
		e.retries[of] = &shell.Row{}
	}
	first, most := of.pauses()
	return e.retries[of].Again(now, first, most)
}

func (m *memory) succeeded(key types.NamespacedName, of trouble) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.of[key]; e != nil {
		delete(e.retries, of)
	}
}
