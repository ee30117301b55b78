package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/runner"
	"github.com/serin-dev/serin/test/sim/runner/runnertest"
)

// Each story is played once without fault. Then it is played again for each request that Serin sent to the API server
// in it, which fails in one way (it dies before the request, it dies after it, someone else is faster, the answer is
// lost), and for each measurement (it dies before it asks, while it waits, or once it was answered). All must come to the same end, and break
// nothing on the way (I30).
func TestEveryCallMayGoWrong(t *testing.T) {
	t.Parallel()
	for _, story := range runner.Stories(runner.Rollout) {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			smooth := runner.RunStory(runner.Rollout, story)
			runnertest.NoViolation(t, smooth)
			if smooth.Calls < 5 {
				t.Fatalf("want a story, got %d requests", smooth.Calls)
			}
			everywhere(t, story, smooth, smooth.Calls, sim.DieBefore, sim.DieAfter, sim.Lose, sim.Unknown)
			everywhere(t, story, smooth, len(smooth.Questions), sim.DieAsking, sim.DieWaiting, sim.DieAnswered)
		})
	}
}

// everywhere lets the story fail at each of so many moments, in these ways by turns.
func everywhere(t *testing.T, story string, smooth sim.Result, moments int, ways ...sim.Failure) {
	t.Helper()
	for at := 1; at <= moments; at++ {
		how := ways[at%len(ways)]
		if !t.Run(fmt.Sprintf("%s at %d", how, at), func(t *testing.T) {
			got := runner.RunStory(runner.Rollout, story, sim.ScheduledFault{At: at, Failure: how})
			runnertest.NoViolation(t, got)
			if difference := firstDifference(smooth.Final, got.Final); difference != "" {
				t.Errorf("another end:\n%s\nhistory:\n%s", difference, strings.Join(got.Trace, "\n"))
			}
		}) {
			return
		}
	}
}

// firstDifference is the first line that two ends do not have in common.
func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range a {
		if !slices.Contains(b, line) {
			i := slices.IndexFunc(b, func(other string) bool { return !slices.Contains(a, other) })
			return "want " + line + "\ngot  " + append(b, "nothing")[max(i, 0)]
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("want %d objects, got %d", len(a), len(b))
	}
	return ""
}
