package telemetry

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

// OngoingEvents remembers the persistent events of the last reconciliation of every release, so that each event is reported
// when its condition begins and not again while it persists. The zero value is ready for use; one instance serves the
// releases of one kind.
type OngoingEvents struct {
	mu      sync.Mutex
	ongoing map[types.NamespacedName]map[eventText]bool
}

// eventText identifies an event of one object: events with the same type and message are the same to a reader.
type eventText struct {
	kind    release.EventType
	message string
}

// NewEvents returns the events of a reconciliation that were not reported yet, in their order: all that are not persistent,
// and the persistent ones that the last reconciliation did not have. A persistent event that is missing from a reconciliation
// has ended and is reported again when it returns.
func (s *OngoingEvents) NewEvents(key types.NamespacedName, events []release.Event) []release.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ongoing[key]
	var now map[eventText]bool
	var reported []release.Event
	for _, event := range events {
		if !event.Persistent {
			reported = append(reported, event)
			continue
		}
		text := eventText{event.Type, event.Message}
		if !before[text] && !now[text] {
			reported = append(reported, event)
		}
		if now == nil {
			now = map[eventText]bool{}
		}
		now[text] = true
	}

	switch {
	case now == nil:
		delete(s.ongoing, key) // most releases have no persistent event and must not use memory
	case s.ongoing == nil:
		s.ongoing = map[types.NamespacedName]map[eventText]bool{key: now}
	default:
		s.ongoing[key] = now
	}
	return reported
}

// Forget drops the state of a deleted release.
func (s *OngoingEvents) Forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ongoing, key)
}

// Keys returns the releases that have ongoing events.
func (s *OngoingEvents) Keys() []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.ongoing))
}
