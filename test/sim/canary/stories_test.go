package canary_test

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim/canary"
	"github.com/serin-dev/serin/test/sim/play"
	"github.com/serin-dev/serin/test/sim/play/playtest"
)

func TestStoriesComeToTheirEnd(t *testing.T) {
	t.Parallel()
	for _, story := range canary.Stories() {
		t.Run(story.Name, func(t *testing.T) {
			t.Parallel()
			r := play.Story(play.Canary, story.Name)
			playtest.NoViolation(t, r)
			want := `"phase":"` + string(story.End) + `"`
			if story.End == "" {
				want = ""
			}
			if canaryLine := playtest.Line(r, "Canary "); (want == "") != (canaryLine == "") || !strings.Contains(canaryLine, want) {
				t.Errorf("want the end %q, got %s\nhistory:\n%s", story.End, canaryLine, strings.Join(r.History, "\n"))
			}
		})
	}
}
