package explain

import (
	"slices"
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// TestWhyNamesTheUserWhoAbortedARollout: its status contains only that it was aborted.
func TestWhyNamesTheUserWhoAbortedARollout(t *testing.T) {
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	r := Release{
		Kind: KindRollout, Namespace: "shop", Name: "web", State: release.Idle, Result: release.RolledBack, PromotedRevision: "old", Message: "RolloutAborted",
		Events: []Event{
			{At: at.Add(-time.Hour), Type: "Normal", Message: "promote requested by vera", ByUser: true},
			{At: at, Type: "Normal", Message: "will be rolled back requested by vera: checkout is slow", ByUser: true},
			{At: at, Type: "Normal", Message: "Rollout aborted update to revision 2"},
		},
	}
	const want = "Last command: will be rolled back requested by vera: checkout is slow at 12:00:00Z."
	if got := Why(r, at); !slices.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Events = r.Events[2:]
	if got := lastCommandSentences(r); got != nil {
		t.Errorf("without an event of a user: got %q", got)
	}
}

func TestACutMessageHasNoPeriod(t *testing.T) {
	for text, want := range map[string]string{"a": "a.", "a.": "a.", "back-off pull…": "back-off pull…"} {
		if got := asSentence(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
