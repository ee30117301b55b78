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

// EventEmitted reports an event that a process wrote.
type EventEmitted struct {
	Instance              string
	Object                types.NamespacedName
	Type, Reason, Message string
}

// LogLine reports a line in the log of a process, in runs that look for secrets there.
type LogLine struct{ Text string }

// EventRecorder receives the events of a process. They are published to the world and not stored, because nothing reads them.
type EventRecorder struct {
	// Outbox has what was said and has not left the process yet.
	Outbox *telemetry.Outbox

	world    *sim.World
	instance *sim.Instance
}

// NewEventRecorder returns the one of a process.
func NewEventRecorder(w *sim.World, i *sim.Instance) *EventRecorder {
	outbox := telemetry.NewOutbox(clocktesting.NewFakeClock(sim.Beginning), logr.Discard()) // it waits for nothing here
	return &EventRecorder{Outbox: outbox, world: w, instance: i}
}

// Recorder is for the events of a component.
func (v *EventRecorder) Recorder(component string) *telemetry.Recorder {
	return telemetry.NewRecorder(v, v.Outbox, v.instance.Clock, component)
}

// Flush lets everything out that was said.
func (v *EventRecorder) Flush() {
	for v.Outbox.AttemptNext(context.Background()) {
	}
}

// Create implements telemetry.EventWriter.
func (v *EventRecorder) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	v.record(object)
	return nil
}

// Patch implements telemetry.EventWriter.
func (v *EventRecorder) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	v.record(object)
	return nil
}

func (v *EventRecorder) record(object client.Object) {
	e, ok := object.(*corev1.Event)
	if !ok {
		return
	}
	of := types.NamespacedName{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
	v.world.Trace("  %s: %s: %s: %s", of.Name, e.Type, e.Reason, e.Message)
	if strings.Contains(e.Message, "fault in Serin") || strings.Contains(e.Message, "by a fault of its own") {
		v.world.Violate("panic", "%s", e.Message)
	}
	v.world.Publish(EventEmitted{Instance: v.instance.Name, Object: of, Type: e.Type, Reason: e.Reason, Message: e.Message})
}
