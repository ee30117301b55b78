package telemetry

import (
	"testing"

	"github.com/serin-dev/serin/internal/release"
)

func TestStandingEventsAreNewsOnceWhileTheyHold(t *testing.T) {
	happened := release.Event{Type: release.Normal, Message: "Advance cart.shop canary weight 20"}
	suspended := release.Event{Type: release.Normal, Message: "skipping canary run as object is suspended", Persistent: true}
	missing := release.Event{Type: release.Warning, Message: "deployment cart.shop not found", Persistent: true}
	warned := suspended
	warned.Type = release.Warning

	var s OngoingEvents
	for _, pass := range []struct {
		name       string
		told, want []release.Event
	}{
		{"nothing", nil, nil},
		{"begins", []release.Event{suspended, happened}, []release.Event{suspended, happened}},
		{"holds, and something happens again", []release.Event{happened, suspended}, []release.Event{happened}},
		{"another begins, twice in one pass", []release.Event{missing, suspended, missing}, []release.Event{missing}},
		{"another type is another event", []release.Event{warned, missing}, []release.Event{warned}},
		{"ends", nil, nil},
		{"comes back", []release.Event{missing}, []release.Event{missing}},
	} {
		expect(t, pass.name, s.NewEvents(named("cart"), pass.told), pass.want)
	}

	expect(t, "of another release", s.NewEvents(named("till"), []release.Event{missing}), []release.Event{missing})
	s.Forget(named("cart"))
	expect(t, "after it was forgotten", s.NewEvents(named("cart"), []release.Event{missing}), []release.Event{missing})
	s.NewEvents(named("cart"), nil)
	s.Forget(named("till"))
	if len(s.ongoing) != 0 {
		t.Errorf("left behind: %v", s.ongoing)
	}
}
