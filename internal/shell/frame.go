package shell

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

// Frame is what is around the passes over objects of a kind that hold their status themselves, without a subresource for
// it: a pass begins and ends in it. Between passes it remembers nothing but what people were told.
type Frame[O client.Object, S any] struct {
	Kind schema.GroupVersionKind
	// Client reads from caches and sees its own writes.
	Client   client.Client
	Clock    clock.PassiveClock
	Recorder *telemetry.Recorder
	Metrics  *telemetry.Metrics
	// InstanceLabel has the ID of the controller that serves an object; InstanceID is the one of this controller. Empty: it
	// serves those without any.
	InstanceLabel, InstanceID string

	// New is an empty object, and Status the place of its status.
	New    func() O
	Status func(O) *S
	// Pass is one pass over an object that is there, and that no other controller serves.
	Pass func(context.Context, O) (reconcile.Result, error)
	// Faulted is the decision to tell of a fault of Serin.
	Faulted func(status S, sentence string) release.Decision[S]
	// Left is called for an object that is gone, or not served; nil: nobody has to know.
	Left func(types.NamespacedName)

	guard    Guard
	standing telemetry.Standing
}

// Reconcile is one pass. A panic in it is a fault of Serin, which must cost this object alone, and which its owner reads.
func (f *Frame[O, S]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key, kind := req.NamespacedName, f.Kind.Kind
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues(strings.ToLower(kind[:1])+kind[1:], key.Name+"."+key.Namespace))
	began := f.Clock.Now()
	result, err := f.guard.Run(ctx, f.Clock, key, f.faulted, f.pass)
	f.Metrics.Reconciled(kind, key, f.Clock.Since(began))
	if err != nil {
		f.Metrics.ReconcileFailed(kind, key)
	}
	return result, err
}

// faulted tells of a pass that panicked, in the message of the status and in an event.
func (f *Frame[O, S]) faulted(ctx context.Context, key types.NamespacedName, fault error) error {
	f.Metrics.Panicked(f.Kind.Kind)
	f.Metrics.ReconcileFailed(f.Kind.Kind, key)
	object := f.New()
	if err := f.Client.Get(ctx, key, object); err != nil || !f.serves(object) {
		return client.IgnoreNotFound(err)
	}
	d := f.Faulted(*f.Status(object), FaultSentence(f.Kind.Kind, fault))
	if err := f.WriteStatus(ctx, object, d.Status); err != nil {
		return err
	}
	f.Report(ctx, object, d.Events)
	return nil
}

// serves is true of an object that stays, and that no other controller serves.
func (f *Frame[O, S]) serves(object O) bool {
	return object.GetDeletionTimestamp() == nil && object.GetLabels()[f.InstanceLabel] == f.InstanceID
}

func (f *Frame[O, S]) pass(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	object := f.New()
	switch err := f.Client.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		f.left(key)
		f.Recorder.Forget(key)
		f.standing.Forget(key)
		f.Metrics.ForgetReconciled(f.Kind.Kind, key)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get %s %s: %w", f.Kind.Kind, key, err)
	case !f.serves(object):
		f.left(key)
		return reconcile.Result{}, nil
	}
	f.Metrics.Exists(f.Kind.Kind, key)
	return f.Pass(ctx, object)
}

func (f *Frame[O, S]) left(key types.NamespacedName) {
	if f.Left != nil {
		f.Left(key)
	}
}

// Decide has a machine decide, and counts for how long it did.
func (f *Frame[O, S]) Decide(next func() release.Decision[S]) release.Decision[S] {
	began := f.Clock.Now()
	d := next()
	f.Metrics.Decided(f.Kind.Kind, f.Clock.Since(began))
	return d
}

// WriteStatus persists a status, if it says anything new. The patch goes to the object, names the version that was decided
// on, and holds the difference only.
func (f *Frame[O, S]) WriteStatus(ctx context.Context, object O, status S) error {
	before := f.Status(object)
	if Same(*before, status) {
		return nil
	}
	patch, err := StatusPatch(object.GetResourceVersion(), before, &status)
	if err != nil {
		return fmt.Errorf("compare the status of %s with what it was: %w", f.name(object), err)
	}
	stored := f.New() // takes the answer
	stored.SetNamespace(object.GetNamespace())
	stored.SetName(object.GetName())
	if err := f.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the status of %s: %w", f.name(object), err)
	}
	object.SetResourceVersion(stored.GetResourceVersion())
	return nil
}

func (f *Frame[O, S]) name(object O) string {
	return fmt.Sprintf("%s %s.%s", f.Kind.Kind, object.GetName(), object.GetNamespace())
}

// Report tells what happened, and gives what of it was not told before.
func (f *Frame[O, S]) Report(ctx context.Context, object O, events []release.Event) []release.Event {
	news := f.standing.News(client.ObjectKeyFromObject(object), events)
	apiVersion, kind := f.Kind.ToAPIVersionAndKind()
	for _, event := range news {
		f.Recorder.Event(ctx, corev1.ObjectReference{
			APIVersion: apiVersion, Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(),
			UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		}, event)
	}
	return news
}

// Footprint is what this process remembers of objects of the kind.
func (f *Frame[O, S]) Footprint() Footprint {
	return FootprintOf(Footprint{"guard": f.guard.Keys(), "recorder": f.Recorder.Keys(), "standing": f.standing.Keys()})
}

// Footprint is of which objects each part of a process remembers something. Nothing may outlive its object, so that it is
// empty when all objects are gone.
type Footprint map[string][]types.NamespacedName

// FootprintOf leaves out the parts that remember nothing.
func FootprintOf(parts Footprint) Footprint {
	maps.DeleteFunc(parts, func(_ string, keys []types.NamespacedName) bool { return len(keys) == 0 })
	return parts
}

// race is the pause after somebody else was faster; mostly their event brings the object back before.
const race = time.Second

// Later tells errors that go away by themselves, at once, from those that need patience.
func Later(ctx context.Context, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).V(1).Info("Looked again", "why", err.Error())
		return reconcile.Result{RequeueAfter: race}, nil
	}
	return reconcile.Result{}, err
}
