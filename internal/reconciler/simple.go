package reconciler

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// Simple is a Frame for a kind whose status is part of the object and whose only reports are Kubernetes events. Its only state
// is the record of ongoing events.
type Simple[O client.Object, S any] struct {
	Frame[O, S]
	Recorder *telemetry.Recorder

	ongoing telemetry.OngoingEvents
}

// ActingSign returns the sign of another controller that acts on the objects of a namespace now. Nil: there is no other controller.
type ActingSign func(ctx context.Context, namespace string, now time.Time) (othercontroller.Sign, error)

// cededInterval is the time after which an object that is left to another controller is reconciled again.
const cededInterval = 10 * time.Second

// Cede returns how long the objects of a namespace are left to another controller; 0: none acts on them.
func (s *Simple[O, S]) Cede(ctx context.Context, other ActingSign, namespace string) (time.Duration, error) {
	if other == nil {
		return 0, nil
	}
	now := s.Clock.Now()
	sign, err := other(ctx, namespace, now)
	if err != nil || sign.Text == "" {
		return 0, err
	}
	if !sign.Until.IsZero() {
		return min(RequeueDelay(now, sign.Until), cededInterval), nil
	}
	return cededInterval, nil
}

// ServeLabelled completes a frame: this process serves the objects whose label has the given value. forget is called for other
// objects and for deleted ones; it may be nil. decideOnPanic returns the decision after a panic.
func (s *Simple[O, S]) ServeLabelled(
	label, value string, decideOnPanic func(status S, message string) release.Decision[S], forget func(types.NamespacedName),
) {
	s.Serves = func(object O) bool { return object.GetDeletionTimestamp() == nil && object.GetLabels()[label] == value }
	s.OnUnserved = func(_ context.Context, key types.NamespacedName) (reconcile.Result, error) {
		if forget != nil {
			forget(key)
		}
		return reconcile.Result{}, nil
	}
	s.Forget = func(key types.NamespacedName) {
		s.Recorder.Forget(key)
		s.ongoing.Forget(key)
		s.Metrics.ForgetReconciled(s.Kind.Kind, key)
		if s.Newest != nil {
			s.Newest.Forget(key)
		}
		if forget != nil {
			forget(key)
		}
	}
	s.OnNotFound = func(_ context.Context, key types.NamespacedName) (reconcile.Result, error) {
		s.Forget(key)
		return reconcile.Result{}, nil
	}
	s.ReportPanic = func(ctx context.Context, object O, cause error) error {
		d := decideOnPanic(*s.Status(object), PanicMessage(s.Kind.Kind, cause))
		if err := s.WriteStatus(ctx, object, d.Status); err != nil {
			return err
		}
		s.Report(ctx, object, d.Events)
		return nil
	}
	s.RetryAt = func(_ types.NamespacedName, _ FailureKind, now time.Time) time.Time { return now.Add(time.Second) }
}

// RetryLater is like Frame.RetryLater, but treats a deleted object as a conflict, too.
func (s *Simple[O, S]) RetryLater(ctx context.Context, key types.NamespacedName, err error) (reconcile.Result, error) {
	if apierrors.IsNotFound(err) {
		err = errors.Join(ErrObjectChanged, err)
	}
	return s.Frame.RetryLater(ctx, key, err)
}

// WriteStatus writes a status if it differs from that of the object.
func (s *Simple[O, S]) WriteStatus(ctx context.Context, object O, status S) error {
	before := s.Status(object)
	if SemanticEqual(*before, status) {
		return nil
	}
	key := client.ObjectKeyFromObject(object)
	stored, err := s.PatchStatus(ctx, object, before, &status)
	if err != nil {
		if s.Newest != nil {
			s.Newest.Forget(key) // see NewestVersions.Forget
		}
		return err
	}
	object.SetResourceVersion(stored.GetResourceVersion())
	if s.Newest != nil {
		s.Newest.RecordVersion(key, stored)
	}
	return nil
}

// Report records the events of a decision, and returns those that were not recorded before.
func (s *Simple[O, S]) Report(ctx context.Context, object O, events []release.Event) []release.Event {
	reported := s.ongoing.NewEvents(client.ObjectKeyFromObject(object), events)
	for _, event := range joinEvents(reported) {
		s.Recorder.Event(ctx, s.Reference(object), event)
	}
	return reported
}

// joinEvents joins the events of one decision that have the same reason, such as the results of all metrics when a run ends. Each
// event is a request to the API server. Warnings remain separate.
func joinEvents(events []release.Event) []release.Event {
	var joined []release.Event
	for _, event := range events {
		i := slices.IndexFunc(joined, func(e release.Event) bool { return e.Reason == event.Reason })
		if i < 0 || event.Type == release.Warning || joined[i].Type == release.Warning {
			joined = append(joined, event)
			continue
		}
		joined[i].Message += "; " + event.Message
	}
	return joined
}

// Footprint lists the objects of the kind that this process has state of.
func (s *Simple[O, S]) Footprint() Footprint {
	parts := Footprint{"panicked": s.Panicked(), "acquisitions": s.AcquisitionKeys(), "recorder": s.Recorder.Keys(), "ongoing-events": s.ongoing.Keys()}
	if s.Newest != nil {
		parts["newest"] = s.Newest.Keys()
	}
	return FootprintOf(parts)
}
