package actors

import (
	"context"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/test/sim"
)

// EventEmitted reports that a process emitted an event.
type EventEmitted struct {
	Instance              string
	Object                types.NamespacedName
	Type, Reason, Message string
}

// LogLine reports a line in the log of a process, in runs that check logs for secrets.
type LogLine struct{ Text string }

// EventRecorder receives the events of a process. They are published to the world and not stored, because no actor reads them.
type EventRecorder struct {
	// Outbox contains the events that have not been sent yet.
	Outbox *telemetry.Outbox

	world    *sim.World
	instance *sim.Instance
}

// NewEventRecorder returns the event recorder of a process.
func NewEventRecorder(w *sim.World, i *sim.Instance) *EventRecorder {
	// The clock is never advanced, and later than any time in a run: combined events are sent at once.
	outbox := telemetry.NewOutbox(clocktesting.NewFakeClock(sim.StartTime.AddDate(100, 0, 0)), logr.Discard())
	return &EventRecorder{Outbox: outbox, world: w, instance: i}
}

// ForComponent returns a recorder for the events of a component.
func (r *EventRecorder) ForComponent(component string) *telemetry.Recorder {
	return telemetry.NewRecorder(r, r.Outbox, r.instance.Clock, component)
}

// Flush sends all queued events.
func (r *EventRecorder) Flush() {
	for r.Outbox.AttemptNext(context.Background()) {
	}
}

// Create implements telemetry.EventWriter.
func (r *EventRecorder) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	r.record(object)
	return nil
}

// Patch implements telemetry.EventWriter.
func (r *EventRecorder) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	r.record(object)
	return nil
}

func (r *EventRecorder) record(object client.Object) {
	e, ok := object.(*corev1.Event)
	if !ok {
		return
	}
	key := types.NamespacedName{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
	r.world.Trace("  %s: %s: %s: %s", key.Name, e.Type, e.Reason, e.Message)
	if strings.Contains(e.Message, "fault in Serin") || strings.Contains(e.Message, "because of a defect in Serin") {
		r.world.Violate("panic", "%s", e.Message)
	}
	r.world.Publish(EventEmitted{Instance: r.instance.Name, Object: key, Type: e.Type, Reason: e.Reason, Message: e.Message})
}
