package canary_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/play"
)

// Each story is played once without trouble. Then, for each request that Serin sent to the API server in it, four more
// times: it dies before the request, it dies after it, somebody else is faster, the answer is lost. All must come to the
// same end, and break nothing on the way (I30).
func TestEveryCallMayGoWrong(t *testing.T) {
	t.Parallel()
	for _, story := range play.Stories() {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			smooth := play.Story(story, sim.Strike{})
			noViolation(t, smooth)
			if smooth.Calls < 5 {
				t.Fatalf("want a story, got %d requests", smooth.Calls)
			}
			for call := 1; call <= smooth.Calls; call++ {
				for _, how := range []sim.How{sim.DieBefore, sim.DieAfter, sim.Lose, sim.Unknown} {
					strike := sim.Strike{Call: call, How: how}
					struck := play.Story(story, strike)
					if t.Run(fmt.Sprintf("%s at %d", how, call), func(t *testing.T) {
						noViolation(t, struck)
						if difference := firstDifference(smooth.Final, struck.Final); difference != "" {
							t.Errorf("another end:\n%s\nhistory:\n%s", difference, strings.Join(struck.History, "\n"))
						}
					}); t.Failed() {
						return
					}
				}
			}
		})
	}
}

func noViolation(t *testing.T, r sim.Result) {
	t.Helper()
	for _, v := range r.Violations {
		t.Errorf("%s after %s: %s\nhistory:\n%s", v.Number, v.At, v.Sentence, strings.Join(r.History, "\n"))
	}
}

func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		x, y := "(nothing)", "(nothing)"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return "want " + x + "\ngot  " + y
		}
	}
	return ""
}
