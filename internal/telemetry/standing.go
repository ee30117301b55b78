package telemetry

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

// OngoingEvents remembers which standing events every release was in at its last pass, so that each is told when it begins
// and not again while it holds. The zero value is ready for use; one serves the releases of one kind.
type OngoingEvents struct {
	mu      sync.Mutex
	ongoing map[types.NamespacedName]map[eventText]bool
}

// eventText is what makes two events of one object the same to a reader.
type eventText struct {
	kind    release.EventType
	message string
}

// NewEvents are those of the events of a pass that people do not know yet, in their order: all that are not standing, and
// the standing ones that did not hold at the last pass. A standing event that is missing from a pass has ended, and is
// news when it comes back.
func (s *OngoingEvents) NewEvents(key types.NamespacedName, events []release.Event) []release.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ongoing[key]
	var now map[eventText]bool
	var news []release.Event
	for _, event := range events {
		if !event.Persistent {
			news = append(news, event)
			continue
		}
		this := eventText{event.Type, event.Message}
		if !before[this] && !now[this] {
			news = append(news, event)
		}
		if now == nil {
			now = map[eventText]bool{}
		}
		now[this] = true
	}

	switch {
	case now == nil:
		delete(s.ongoing, key) // most releases stand in nothing, and shall cost nothing
	case s.ongoing == nil:
		s.ongoing = map[types.NamespacedName]map[eventText]bool{key: now}
	default:
		s.ongoing[key] = now
	}
	return news
}

// Forget drops what is known of a release that is gone.
func (s *OngoingEvents) Forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ongoing, key)
}

// Keys are the releases that are remembered.
func (s *OngoingEvents) Keys() []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.ongoing))
}
