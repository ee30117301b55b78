package rollout_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/play"
	"github.com/serin-dev/serin/test/sim/rollout"
)

func TestStoriesComeToTheirEnd(t *testing.T) {
	t.Parallel()
	for _, story := range rollout.Stories() {
		t.Run(story.Name, func(t *testing.T) {
			t.Parallel()
			r := play.Story(play.Rollout, story.Name)
			noViolation(t, r)
			line := lineOf(r.Final, "Rollout ")
			ends := strings.Contains(line, `"phase":"`+string(story.End)+`"`) && strings.Contains(line, `"serves":"`+story.Version+`"`)
			if story.End == "" && line != "" || story.End != "" && !ends {
				t.Errorf("want the end %q with %s, got %s\nhistory:\n%s", story.End, story.Version, line, strings.Join(r.History, "\n"))
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
		draw := play.Draw{API: play.Rollout, Seed: seed + 1, Tell: true}
		first, second := play.History(draw), play.History(draw)
		if diff := cmp.Diff(first.History, second.History); diff != "" {
			t.Fatalf("seed %d twice (-first +second):\n%s", seed+1, diff)
		}
		if first.Passes != second.Passes || !slices.Equal(first.Happened, second.Happened) || first.Final != second.Final {
			t.Errorf("seed %d is not the same twice", seed+1)
		}
	}
}

func noViolation(t *testing.T, r sim.Result) {
	t.Helper()
	for _, v := range r.Violations {
		t.Errorf("%s after %s: %s\nhistory:\n%s", v.Number, v.At, v.Sentence, strings.Join(r.History, "\n"))
	}
}
