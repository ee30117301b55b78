package telemetry

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

// Standing remembers which standing events every release was in at its last pass, so that each is told when it begins
// and not again while it holds. The zero value is ready for use; one serves the releases of one kind.
type Standing struct {
	mu    sync.Mutex
	holds map[types.NamespacedName]map[told]bool
}

// told is what makes two events of one object the same to a reader.
type told struct {
	kind    release.EventType
	message string
}

// News are those of the events of a pass that people do not know yet, in their order: all that are not standing, and
// the standing ones that did not hold at the last pass. A standing event that is missing from a pass has ended, and is
// news when it comes back.
func (s *Standing) News(key types.NamespacedName, events []release.Event) []release.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.holds[key]
	var now map[told]bool
	var news []release.Event
	for _, event := range events {
		if !event.Standing {
			news = append(news, event)
			continue
		}
		this := told{event.Type, event.Message}
		if !before[this] && !now[this] {
			news = append(news, event)
		}
		if now == nil {
			now = map[told]bool{}
		}
		now[this] = true
	}

	switch {
	case now == nil:
		delete(s.holds, key) // most releases stand in nothing, and shall cost nothing
	case s.holds == nil:
		s.holds = map[types.NamespacedName]map[told]bool{key: now}
	default:
		s.holds[key] = now
	}
	return news
}

// Forget drops what is known of a release that is gone.
func (s *Standing) Forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, key)
}

// Keys are the releases that are remembered.
func (s *Standing) Keys() []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.holds))
}
