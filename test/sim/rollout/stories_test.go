package rollout_test

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim/play"
	"github.com/serin-dev/serin/test/sim/play/playtest"
	"github.com/serin-dev/serin/test/sim/rollout"
)

func TestStoriesComeToTheirEnd(t *testing.T) {
	t.Parallel()
	for _, story := range rollout.Stories() {
		t.Run(story.Name, func(t *testing.T) {
			t.Parallel()
			r := play.Story(play.Rollout, story.Name)
			playtest.NoViolation(t, r)
			line := playtest.Line(r, "Rollout ")
			ends := strings.Contains(line, `"phase":"`+string(story.End)+`"`) && strings.Contains(line, `"serves":"`+story.Version+`"`)
			if story.End == "" && line != "" || story.End != "" && !ends {
				t.Errorf("want the end %q with %s, got %s\nhistory:\n%s", story.End, story.Version, line, strings.Join(r.History, "\n"))
			}
		})
	}
}
