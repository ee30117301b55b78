package reconciler

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Simple is a Frame for a kind whose status is part of the object and whose only reports are Kubernetes events. It remembers
// nothing but the lasting events.
type Simple[O client.Object, S any] struct {
	Frame[O, S]
	Recorder *telemetry.Recorder

	lasting telemetry.OngoingEvents
}

// Serving completes a frame: this process serves objects with that value of a label, and forget is called for the others, and
// for those that do not exist; nil: nothing has to be forgotten. fault is the decision about a panic.
func (s *Simple[O, S]) Serving(label, value string, fault func(status S, message string) release.Decision[S], forget func(types.NamespacedName)) {
	s.Serves = func(object O) bool { return object.GetDeletionTimestamp() == nil && object.GetLabels()[label] == value }
	s.Unserved = func(_ context.Context, key types.NamespacedName) (reconcile.Result, error) {
		if forget != nil {
			forget(key)
		}
		return reconcile.Result{}, nil
	}
	s.Gone = func(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
		s.Recorder.Forget(key)
		s.lasting.Forget(key)
		s.Metrics.ForgetReconciled(s.Kind.Kind, key)
		return s.Unserved(ctx, key)
	}
	s.ReportFault = func(ctx context.Context, object O, cause error) error {
		d := fault(*s.Status(object), FaultMessage(s.Kind.Kind, cause))
		if err := s.WriteStatus(ctx, object, d.Status); err != nil {
			return err
		}
		s.Report(ctx, object, d.Events)
		return nil
	}
	s.RetryAt = func(_ types.NamespacedName, _ Trouble, now time.Time) time.Time { return now.Add(time.Second) }
}

// RetryLater is that of the Frame. An object that is gone was overtaken, too.
func (s *Simple[O, S]) RetryLater(ctx context.Context, key types.NamespacedName, err error) (reconcile.Result, error) {
	if apierrors.IsNotFound(err) {
		err = errors.Join(ErrChanged, err)
	}
	return s.Frame.RetryLater(ctx, key, err)
}

// WriteStatus writes a status if it differs from that of the object.
func (s *Simple[O, S]) WriteStatus(ctx context.Context, object O, status S) error {
	before := s.Status(object)
	if Same(*before, status) {
		return nil
	}
	stored, err := s.PatchStatus(ctx, object, before, &status)
	if err == nil {
		object.SetResourceVersion(stored.GetResourceVersion())
	}
	return err
}

// Report records the events of a decision, and returns those that were not recorded before.
func (s *Simple[O, S]) Report(ctx context.Context, object O, events []release.Event) []release.Event {
	news := s.lasting.NewEvents(client.ObjectKeyFromObject(object), events)
	for _, event := range news {
		s.Recorder.Event(ctx, s.Reference(object), event)
	}
	return news
}

// Footprint is what this process remembers of objects of the kind.
func (s *Simple[O, S]) Footprint() Footprint {
	return FootprintOf(Footprint{"guard": s.Panicked(), "recorder": s.Recorder.Keys(), "standing": s.lasting.Keys()})
}
