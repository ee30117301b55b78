package telemetry

import (
	"testing"

	"github.com/serin-dev/serin/internal/release"
)

func TestPersistentEventsAreReportedOnceWhileTheyPersist(t *testing.T) {
	happened := release.Event{Type: release.Normal, Message: "Advance cart.shop canary weight 20"}
	suspended := release.Event{Type: release.Normal, Message: "skipping canary run as object is suspended", Persistent: true}
	missing := release.Event{Type: release.Warning, Message: "deployment cart.shop not found", Persistent: true}
	warned := suspended
	warned.Type = release.Warning

	var s OngoingEvents
	for _, reconciliation := range []struct {
		name         string
		events, want []release.Event
	}{
		{"nothing", nil, nil},
		{"begins", []release.Event{suspended, happened}, []release.Event{suspended, happened}},
		{"persists, and another event is repeated", []release.Event{happened, suspended}, []release.Event{happened}},
		{"another begins, twice in one reconciliation", []release.Event{missing, suspended, missing}, []release.Event{missing}},
		{"another type is another event", []release.Event{warned, missing}, []release.Event{warned}},
		{"ends", nil, nil},
		{"returns", []release.Event{missing}, []release.Event{missing}},
	} {
		expect(t, reconciliation.name, s.NewEvents(shopRelease("cart"), reconciliation.events), reconciliation.want)
	}

	expect(t, "of another release", s.NewEvents(shopRelease("till"), []release.Event{missing}), []release.Event{missing})
	s.Forget(shopRelease("cart"))
	expect(t, "after it was forgotten", s.NewEvents(shopRelease("cart"), []release.Event{missing}), []release.Event{missing})
	s.NewEvents(shopRelease("cart"), nil)
	s.Forget(shopRelease("till"))
	if len(s.ongoing) != 0 {
		t.Errorf("state that remains: %v", s.ongoing)
	}
}
