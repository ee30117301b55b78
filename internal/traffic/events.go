package traffic

import (
	"fmt"

	"github.com/serin-dev/serin/internal/release"
)

// Event reports to the user a change of one object of a route.
type Event struct {
	Warning         bool
	Reason, Message string
}

// EventReasons are the reasons of the events about an object. Empty: there is no event.
type EventReasons struct {
	Created, NotCreated, Changed, Missing string
}

// eventRecorder collects the events of one application of a route.
type eventRecorder struct {
	route  release.Route
	events []Event
}

func (e *eventRecorder) recordMissing(existing Objects) {
	for _, x := range existing {
		if x.Object == nil {
			e.record(true, x.Ref.Events.Missing, x.Ref.String()+" not found")
		}
	}
}

func (e *eventRecorder) recordWrite(ref Ref, verb string, err error) {
	switch {
	case err != nil && verb == verbCreate:
		e.record(true, ref.Events.NotCreated, fmt.Sprintf("%s was not created: %v", ref, err))
	case err != nil:
	case verb == verbCreate:
		e.record(false, ref.Events.Created, "Created "+ref.String()+e.weights(ref))
	case verb == verbUpdate:
		e.record(false, ref.Events.Changed, "Updated "+ref.String()+e.weights(ref))
	}
}

func (e *eventRecorder) record(warning bool, reason, message string) {
	if reason != "" {
		e.events = append(e.events, Event{Warning: warning, Reason: reason, Message: message})
	}
}

// weights is the part of a message about an object that has weights.
func (e *eventRecorder) weights(ref Ref) string {
	if ref.SelectsPods {
		return ""
	}
	return fmt.Sprintf(": canary=%d stable=%d", e.route.Canary, e.route.Stable())
}
