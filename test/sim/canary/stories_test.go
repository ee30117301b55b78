package canary_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/test/sim/canary"
	"github.com/serin-dev/serin/test/sim/play"
)

func TestStoriesComeToTheirEnd(t *testing.T) {
	t.Parallel()
	for _, story := range canary.Stories() {
		t.Run(story.Name, func(t *testing.T) {
			t.Parallel()
			r := play.Story(play.Canary, story.Name)
			noViolation(t, r)
			want := `"phase":"` + string(story.End) + `"`
			if story.End == "" {
				want = ""
			}
			if canaryLine := lineOf(r.Final, "Canary "); (want == "") != (canaryLine == "") || !strings.Contains(canaryLine, want) {
				t.Errorf("want the end %q, got %s\nhistory:\n%s", story.End, canaryLine, strings.Join(r.History, "\n"))
			}
		})
	}
}

// lineOf is the first line of a text that begins so.
func lineOf(text, beginning string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, beginning) {
			return line
		}
	}
	return ""
}

func TestASeedIsTheSameHistoryTwice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		first, second := play.History(play.Draw{Seed: seed + 1, Tell: true}), play.History(play.Draw{Seed: seed + 1, Tell: true})
		if diff := cmp.Diff(first.History, second.History); diff != "" {
			t.Fatalf("seed %d twice (-first +second):\n%s", seed+1, diff)
		}
		if first.Passes != second.Passes || !slices.Equal(first.Happened, second.Happened) || first.Final != second.Final {
			t.Errorf("seed %d is not the same twice", seed+1)
		}
	}
}
