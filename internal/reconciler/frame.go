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

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Frame is what surrounds the reconciliations of one kind: reading the object, a panic, the time that a decision takes, the write
// of the status, and when to retry. A kind fills in what is its own: observing, deciding, applying and reporting.
type Frame[O client.Object, S any] struct {
	Kind schema.GroupVersionKind
	// Client reads from caches and sees its own writes.
	Client  client.Client
	Clock   clock.PassiveClock
	Metrics *telemetry.Metrics

	// New returns an empty object, and Status where its status is. Subresource is true if that is a subresource.
	New         func() O
	Status      func(O) *S
	Subresource bool
	// Serves reports whether this process reconciles an object that exists.
	Serves func(O) bool
	// ReconcileObject is one reconciliation of an object that this process serves.
	ReconcileObject func(context.Context, O) (reconcile.Result, error)
	// ReportFault reports a defect of Serin that ended a reconciliation.
	ReportFault func(ctx context.Context, object O, fault error) error
	// Gone is called for an object that does not exist, Unserved for one that this process does not serve; nil: for none.
	Gone, Unserved func(context.Context, types.NamespacedName) (reconcile.Result, error)
	// RetryAt counts an attempt that was overtaken, and returns the time of the next one.
	RetryAt func(key types.NamespacedName, of Trouble, now time.Time) time.Time

	guard Guard
}

// Reconcile implements reconcile.Reconciler. A panic is a defect of Serin, which must affect this object only, and which its
// user is notified of.
func (f *Frame[O, S]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key, kind := req.NamespacedName, f.Kind.Kind
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues(strings.ToLower(kind[:1])+kind[1:], key.Name+"."+key.Namespace))
	began := f.Clock.Now()
	result, err := f.guard.Run(ctx, f.Clock, key, f.reportFault, f.reconcile)
	f.Metrics.RecordReconciliation(kind, key, f.Clock.Since(began))
	if err != nil {
		f.Metrics.CountReconcileFailure(kind, key)
	}
	return result, err
}

func (f *Frame[O, S]) reportFault(ctx context.Context, key types.NamespacedName, fault error) error {
	f.Metrics.CountPanic(f.Kind.Kind)
	f.Metrics.CountReconcileFailure(f.Kind.Kind, key)
	object := f.New()
	if err := f.Client.Get(ctx, key, object); err != nil || !f.Serves(object) {
		return client.IgnoreNotFound(err)
	}
	return f.ReportFault(ctx, object, fault)
}

func (f *Frame[O, S]) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	object := f.New()
	switch err := f.Client.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return call(ctx, f.Gone, key)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get %s %s: %w", f.Kind.Kind, key, err)
	case !f.Serves(object):
		return call(ctx, f.Unserved, key)
	}
	f.Metrics.StartReconciled(f.Kind.Kind, key)
	return f.ReconcileObject(ctx, object)
}

func call(ctx context.Context, hook func(context.Context, types.NamespacedName) (reconcile.Result, error), key types.NamespacedName) (reconcile.Result, error) {
	if hook == nil {
		return reconcile.Result{}, nil
	}
	return hook(ctx, key)
}

// Decide calls a state machine, and records how long it took.
func (f *Frame[O, S]) Decide(next func() release.Decision[S]) release.Decision[S] {
	began := f.Clock.Now()
	d := next()
	f.Metrics.RecordDecisionDuration(f.Kind.Kind, f.Clock.Since(began))
	return d
}

// PatchStatus writes a status and returns the stored object. The patch names the version that the decision was based on and
// contains only the difference to the status before, so that fields of a newer Serin are retained.
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

// Reference is that of an object for Kubernetes events.
func (f *Frame[O, S]) Reference(object O) corev1.ObjectReference {
	apiVersion, kind := f.Kind.ToAPIVersionAndKind()
	return corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(),
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
}

// RetryLater ends a reconciliation with an error: one that was overtaken by another write is retried soon, and others with backoff.
func (f *Frame[O, S]) RetryLater(ctx context.Context, key types.NamespacedName, err error) (reconcile.Result, error) {
	if !Overtaken(err) {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).V(1).Info("Was overtaken by another write", "why", err.Error())
	now := f.Clock.Now()
	return reconcile.Result{RequeueAfter: WakeIn(now, f.RetryAt(key, LostRace, now))}, nil
}

// Panicked returns the objects that have not recovered from a panic.
func (f *Frame[O, S]) Panicked() []types.NamespacedName { return f.guard.Keys() }

// Footprint is what each part of a process remembers, by object. Nothing may outlive its object, so that it is empty when all
// objects are gone.
type Footprint map[string][]types.NamespacedName

// FootprintOf leaves out the parts that remember nothing.
func FootprintOf(parts Footprint) Footprint {
	maps.DeleteFunc(parts, func(_ string, keys []types.NamespacedName) bool { return len(keys) == 0 })
	return parts
}
