package rollout_test

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim/rollout"
	"github.com/serin-dev/serin/test/sim/runner"
	"github.com/serin-dev/serin/test/sim/runner/runnertest"
)

func TestStoriesEndInTheExpectedPhase(t *testing.T) {
	t.Parallel()
	for _, story := range rollout.Stories() {
		t.Run(story.Name, func(t *testing.T) {
			t.Parallel()
			r := runner.RunStory(runner.Rollout, story.Name)
			runnertest.NoViolation(t, r)
			line := runnertest.Line(r, "Rollout ")
			ends := strings.Contains(line, `"phase":"`+string(story.End)+`"`) && strings.Contains(line, `"serves":"`+story.Version+`"`)
			if story.End == "" && line != "" || story.End != "" && !ends {
				t.Errorf("want phase %q with version %s, got %s\ntrace:\n%s", story.End, story.Version, line, strings.Join(r.Trace, "\n"))
			}
		})
	}
}
