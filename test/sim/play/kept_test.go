package play_test

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim/kept"
	"github.com/serin-dev/serin/test/sim/play"
)

// TestWhatWasFoundStaysMended plays the histories that once found a mistake.
func TestWhatWasFoundStaysMended(t *testing.T) {
	t.Parallel()
	histories, err := kept.All()
	if err != nil {
		t.Fatal(err)
	}
	if len(histories) == 0 {
		t.Fatal("no history is kept")
	}
	for _, h := range histories {
		t.Run(h.Name, func(t *testing.T) {
			t.Parallel()
			result := play.History(play.Draw{API: h.API, Seed: h.Seed, Only: h.Only, Lasts: h.Lasts})
			for _, v := range result.Violations {
				t.Errorf("%s after %s: %s\nonce: %s\nhistory:\n%s", v.Number, v.At, v.Sentence, h.Why, strings.Join(result.History, "\n"))
			}
		})
	}
}
