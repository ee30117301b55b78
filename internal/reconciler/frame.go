package reconciler

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Frame is the part of a reconciliation that all kinds share: it reads the object, recovers from panics, measures decisions,
// writes the status and schedules retries. Each kind provides the rest: it observes, decides, applies and reports.
type Frame[O client.Object, S any] struct {
	Kind schema.GroupVersionKind
	// Client reads from caches and sees its own writes.
	Client  client.Client
	Clock   clock.PassiveClock
	Metrics *telemetry.Metrics

	// New returns an empty object. Status returns a pointer to its status, and Subresource reports whether that is a subresource.
	New         func() O
	Status      func(O) *S
	Subresource bool
	// Serves reports whether this process reconciles an object that exists.
	Serves func(O) bool
	// ReconcileObject reconciles an object that this process serves.
	ReconcileObject func(context.Context, O) (reconcile.Result, error)
	// ReportPanic reports a panic that ended a reconciliation.
	ReportPanic func(ctx context.Context, object O, cause error) error
	// OnNotFound is called for an object that does not exist, OnUnserved for one that this process does not serve; both may be nil.
	OnNotFound, OnUnserved func(context.Context, types.NamespacedName) (reconcile.Result, error)
	// Shards are the shards that this process holds; nil: there are none. An object of another shard is not reconciled. Forget drops
	// all state about an object that another process reconciles, or has reconciled in the meantime.
	Shards *sharding.Held
	Forget func(key types.NamespacedName)
	// Newest are the newest known versions of the objects; nil for a kind without queries.
	Newest *readyourwrites.NewestVersions
	// RetryAt counts an attempt that ended in a conflict and returns the time of the next one.
	RetryAt func(key types.NamespacedName, kind FailureKind, now time.Time) time.Time

	guard Guard
	// acquisitions are those of the shards in which this process has reconciled its objects.
	acquisitions acquisitions
}

// Reconcile implements reconcile.Reconciler. A panic is a defect of Serin. It must affect this object only and is reported to
// its user.
func (f *Frame[O, S]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key, kind := req.NamespacedName, f.Kind.Kind
	ctx, end, held := f.Shards.Begin(ctx, key.Namespace)
	if !held {
		f.forget(key)
		return reconcile.Result{}, nil
	}
	defer end()
	if f.Shards != nil && f.acquisitions.record(key, f.Shards.Acquisition(key.Namespace)) {
		f.Forget(key)
	}
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues(strings.ToLower(kind[:1])+kind[1:], key.Name+"."+key.Namespace))
	began := f.Clock.Now()
	result, err := f.guard.Run(ctx, f.Clock, key, f.reportPanic, f.reconcile)
	f.Metrics.RecordReconciliation(kind, key, f.Clock.Since(began))
	if err != nil {
		f.Metrics.CountReconcileFailure(kind, key)
	}
	return result, err
}

// forget drops all state about an object that another process reconciles.
func (f *Frame[O, S]) forget(key types.NamespacedName) {
	f.guard.resetBackoff(key)
	f.acquisitions.forget(key)
	f.Forget(key)
}

func (f *Frame[O, S]) reportPanic(ctx context.Context, key types.NamespacedName, cause error) error {
	f.Metrics.CountPanic(f.Kind.Kind)
	f.Metrics.CountReconcileFailure(f.Kind.Kind, key)
	object := f.New()
	if err := f.Client.Get(ctx, key, object); err != nil || !f.Serves(object) {
		return client.IgnoreNotFound(err)
	}
	return f.ReportPanic(ctx, object, cause)
}

func (f *Frame[O, S]) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	object := f.New()
	switch err := f.Client.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		result, err := callHook(ctx, f.OnNotFound, key)
		if err == nil && result.RequeueAfter == 0 {
			f.acquisitions.forget(key)
		}
		return result, err
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get %s %s: %w", f.Kind.Kind, key, err)
	case !f.Serves(object):
		return callHook(ctx, f.OnUnserved, key)
	}
	f.Metrics.StartReconciled(f.Kind.Kind, key)
	return f.ReconcileObject(ctx, object)
}

func callHook(
	ctx context.Context, hook func(context.Context, types.NamespacedName) (reconcile.Result, error), key types.NamespacedName,
) (reconcile.Result, error) {
	if hook == nil {
		return reconcile.Result{}, nil
	}
	return hook(ctx, key)
}

// Decide calls a state machine and records the duration of the decision.
func (f *Frame[O, S]) Decide(next func() release.Decision[S]) release.Decision[S] {
	began := f.Clock.Now()
	d := next()
	f.Metrics.RecordDecisionDuration(f.Kind.Kind, f.Clock.Since(began))
	return d
}

// VerifyBeforeQueries verifies that the object of a decision is current, if the decision contains queries. A write proves that by its
// resourceVersion. A process that has taken over and has nothing to write has no such proof: with an old status, it would repeat a
// call or a measurement of its predecessor. It costs one request per object and takeover.
func (f *Frame[O, S]) VerifyBeforeQueries(ctx context.Context, object O, queries []release.Query) error {
	if len(queries) == 0 {
		return nil
	}
	return f.Newest.VerifyTakeover(ctx, client.ObjectKeyFromObject(object), object, f.New())
}

// PatchStatus writes a status and returns the stored object. The patch contains the resourceVersion that the decision was based
// on, and only the difference to the previous status, so that fields of a newer Serin are retained.
func (f *Frame[O, S]) PatchStatus(ctx context.Context, object O, before, after *S) (stored O, err error) {
	patch, err := StatusPatch(object.GetResourceVersion(), before, after)
	if err != nil {
		return stored, fmt.Errorf("compare the status of %s with the previous one: %w", f.name(object), err)
	}
	stored = f.New()
	stored.SetNamespace(object.GetNamespace())
	stored.SetName(object.GetName())
	if f.Subresource {
		err = f.Client.Status().Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
	} else {
		err = f.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
	}
	if err != nil {
		return stored, fmt.Errorf("write the status of %s: %w", f.name(object), err)
	}
	return stored, nil
}

func (f *Frame[O, S]) name(object O) string {
	return fmt.Sprintf("%s %s.%s", f.Kind.Kind, object.GetName(), object.GetNamespace())
}

// Reference returns the reference to an object for Kubernetes events.
func (f *Frame[O, S]) Reference(object O) corev1.ObjectReference {
	apiVersion, kind := f.Kind.ToAPIVersionAndKind()
	return corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(),
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
}

// RetryLater ends a reconciliation with an error: a conflict is retried soon, other errors with backoff.
func (f *Frame[O, S]) RetryLater(ctx context.Context, key types.NamespacedName, err error) (reconcile.Result, error) {
	if !IsConflict(err) {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).V(1).Info("Conflicted with another write", "err", err.Error())
	now := f.Clock.Now()
	return reconcile.Result{RequeueAfter: RequeueDelay(now, f.RetryAt(key, LostRace, now))}, nil
}

// Requeue ends a reconciliation: the next one is at wake, at explainAt, or at retryAt, whichever comes first; zero times do not count.
// A status that was written explains the wait, and its event replaces a wake that is due at now, the time of the observation.
func (f *Frame[O, S]) Requeue(now, wake, explainAt, retryAt time.Time, written bool) reconcile.Result {
	if written {
		explainAt = time.Time{}
		if !wake.After(now) {
			wake = time.Time{}
		}
	}
	return reconcile.Result{RequeueAfter: RequeueDelay(f.Clock.Now(), Earliest(wake, explainAt, retryAt))}
}

// AcquisitionKeys returns the objects whose shards this process has acquired, and which it has reconciled since.
func (f *Frame[O, S]) AcquisitionKeys() []types.NamespacedName { return f.acquisitions.keys() }

// Panicked returns the objects that have not recovered from a panic.
func (f *Frame[O, S]) Panicked() []types.NamespacedName { return f.guard.Keys() }

// Footprint lists the objects that each part of the process has state of. No state may outlive its object, so that it is empty
// after all objects are deleted.
type Footprint map[string][]types.NamespacedName

// FootprintOf omits the parts without state.
func FootprintOf(parts Footprint) Footprint {
	maps.DeleteFunc(parts, func(_ string, keys []types.NamespacedName) bool { return len(keys) == 0 })
	return parts
}
