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

// TestStoriesTolerateEachFault executes each story once without faults, and then once for each request that Serin sent to the
// API server, with one failure (it crashes before or after the request, the request conflicts, the response is lost), and once
// for each measurement (it crashes before it, during it or after the answer). Each run must end in the same state without any
// violation (I30).
func TestStoriesTolerateEachFault(t *testing.T) {
	t.Parallel()
	for _, story := range runner.Stories(runner.Rollout) {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			faultFree := runner.RunStory(runner.Rollout, story)
			runnertest.NoViolation(t, faultFree)
			if faultFree.Calls < 5 {
				t.Fatalf("want a story with at least 5 requests, got %d", faultFree.Calls)
			}
			injectAtEach(t, story, faultFree, faultFree.Calls, sim.CrashBefore, sim.CrashAfter, sim.FailConflict, sim.LoseResponse)
			injectAtEach(t, story, faultFree, len(faultFree.Queries), sim.CrashBeforeQuery, sim.CrashDuringQuery, sim.CrashAfterAnswer)
		})
	}
}

// injectAtEach executes the story with a fault at each of the first count requests or queries, and cycles through the failures.
func injectAtEach(t *testing.T, story string, faultFree sim.Result, count int, failures ...sim.Failure) {
	t.Helper()
	for at := 1; at <= count; at++ {
		how := failures[at%len(failures)]
		if !t.Run(fmt.Sprintf("%s at %d", how, at), func(t *testing.T) {
			got := runner.RunStory(runner.Rollout, story, sim.ScheduledFault{At: at, Failure: how})
			runnertest.NoViolation(t, got)
			if difference := firstDifference(faultFree.FinalState, got.FinalState); difference != "" {
				t.Errorf("the final states differ:\n%s\ntrace:\n%s", difference, strings.Join(got.Trace, "\n"))
			}
		}) {
			return
		}
	}
}

// firstDifference returns the first line that two final states do not have in common.
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
