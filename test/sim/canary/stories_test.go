package canary_test

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim/canary"
	"github.com/serin-dev/serin/test/sim/runner"
	"github.com/serin-dev/serin/test/sim/runner/runnertest"
)

func TestStoriesEndInTheExpectedPhase(t *testing.T) {
	t.Parallel()
	for _, story := range canary.Stories() {
		t.Run(story.Name, func(t *testing.T) {
			t.Parallel()
			r := runner.RunStory(runner.Canary, story.Name)
			runnertest.NoViolation(t, r)
			want := `"phase":"` + string(story.End) + `"`
			if story.End == "" {
				want = ""
			}
			if canaryLine := runnertest.Line(r, "Canary "); (want == "") != (canaryLine == "") || !strings.Contains(canaryLine, want) {
				t.Errorf("want phase %q, got %s\ntrace:\n%s", story.End, canaryLine, strings.Join(r.Trace, "\n"))
			}
		})
	}
}
