package canary_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/runner"
	"github.com/serin-dev/serin/test/sim/runner/runnertest"
)

// TestStoriesTolerateEachFault executes each story once without faults, and then once for each request that Serin sent to the
// API server (it crashes before or after the request, the request conflicts, the response is lost) and for each query (it
// crashes before it, during it or after the answer, or the answer is lost). Each run must end in the same state without any
// violation (I30).
func TestStoriesTolerateEachFault(t *testing.T) {
	t.Parallel()
	for _, story := range runner.Stories(runner.Canary) {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			faultFree := runner.RunStory(runner.Canary, story)
			runnertest.NoViolation(t, faultFree)
			if faultFree.Calls < 5 {
				t.Fatalf("want a story with at least 5 requests, got %d", faultFree.Calls)
			}
			injectAtEach(t, story, faultFree, faultFree.Calls, sim.CrashBefore, sim.CrashAfter, sim.FailConflict, sim.LoseResponse)
			injectAtEach(t, story, faultFree, len(faultFree.Queries), sim.CrashBeforeQuery, sim.CrashDuringQuery, sim.CrashAfterAnswer, sim.LoseAnswer)
		})
	}
}

// injectAtEach executes the story with each of these failures at each of the first count requests or queries.
func injectAtEach(t *testing.T, story string, faultFree sim.Result, count int, failures ...sim.Failure) {
	t.Helper()
	for at := 1; at <= count; at++ {
		for _, how := range failures {
			if !t.Run(fmt.Sprintf("%s at %d", how, at), func(t *testing.T) { compareWithFaults(t, story, faultFree, sim.ScheduledFault{At: at, Failure: how}) }) {
				return
			}
		}
	}
}

// compareWithFaults executes a story with faults, and compares the result with that of the run without faults.
func compareWithFaults(t *testing.T, story string, faultFree sim.Result, faults ...sim.ScheduledFault) {
	t.Helper()
	got := runner.RunStory(runner.Canary, story, faults...)
	runnertest.NoViolation(t, got)
	if slices.ContainsFunc(faults, func(s sim.ScheduledFault) bool { return s.Failure == sim.LoseAnswer }) {
		return // the release may have needed the lost answer
	}
	if difference := firstDifference(faultFree.FinalState, got.FinalState); difference != "" {
		t.Errorf("the final states differ:\n%s\ntrace:\n%s", difference, strings.Join(got.Trace, "\n"))
	}
	if why := extraHookCalls(faultFree.Queries, got.Queries, len(faults)); why != "" {
		t.Errorf("%s\ntrace:\n%s", why, strings.Join(got.Trace, "\n"))
	}
}

// TestStoryToleratesTwoCrashes crashes Serin twice in the plain story, at a sample of all pairs of requests.
func TestStoryToleratesTwoCrashes(t *testing.T) {
	t.Parallel()
	const story, sampling = "steps", 7 // one of so many pairs; a prime, so that each request occurs first and second
	faultFree := runner.RunStory(runner.Canary, story)
	pair := 0
	for first := 1; first <= faultFree.Calls; first++ {
		for second := first + 1; second <= faultFree.Calls+10; second++ { // a restart needs additional requests
			failures := [][2]sim.Failure{{sim.CrashBefore, sim.CrashBefore}, {sim.CrashBefore, sim.CrashAfter}, {sim.CrashAfter, sim.CrashBefore}, {sim.CrashAfter, sim.CrashAfter}}
			for _, how := range failures {
				if pair++; pair%sampling != 0 {
					continue
				}
				if !t.Run(fmt.Sprintf("%s at %d and %s at %d", how[0], first, how[1], second), func(t *testing.T) {
					compareWithFaults(t, story, faultFree, sim.ScheduledFault{At: first, Failure: how[0]}, sim.ScheduledFault{At: second, Failure: how[1]})
				}) {
					return
				}
			}
		}
	}
}

// TestStoriesTolerateTwoFaults injects two faults into each story, in all pairs of failures, at a sample of all pairs of
// requests.
func TestStoriesTolerateTwoFaults(t *testing.T) {
	t.Parallel()
	failures := []sim.Failure{sim.CrashBefore, sim.CrashAfter, sim.FailConflict, sim.LoseResponse}
	for _, story := range runner.Stories(runner.Canary) {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			faultFree := runner.RunStory(runner.Canary, story)
			all := faultFree.Calls * faultFree.Calls * len(failures) * len(failures)
			for n := range pairs {
				pair := n * all / pairs // the remainders iterate over failures and requests
				first, second := failures[pair%len(failures)], failures[pair/len(failures)%len(failures)]
				pair /= len(failures) * len(failures)
				at, after := 1+pair%faultFree.Calls, 1+pair/faultFree.Calls
				t.Run(fmt.Sprintf("%s at %d and %s %d later", first, at, second, after), func(t *testing.T) {
					compareWithFaults(t, story, faultFree, sim.ScheduledFault{At: at, Failure: first}, sim.ScheduledFault{At: at + after, Failure: second})
				})
			}
		})
	}
}

// pairs is the number of pairs of faults for each story. 97 is prime, so that the sample does not align with failures and
// requests.
const pairs = 97

// extraHookCalls describes a hook that was called too often: a call may be repeated once for each crash, with the same key.
// Hooks that are polled are checked by I11.
func extraHookCalls(faultFree, got []string, crashes int) string {
	want, had := hookCalls(faultFree), hookCalls(got)
	for _, hook := range slices.Sorted(maps.Keys(had)) {
		if len(had[hook]) > len(want[hook])+crashes {
			return fmt.Sprintf("%s was called %d times, without faults %d", hook, len(had[hook]), len(want[hook]))
		}
		if keys, usual := distinct(had[hook]), distinct(want[hook]); keys != usual {
			return fmt.Sprintf("%s was called with %d keys, without faults with %d", hook, keys, usual)
		}
	}
	return ""
}

// hookCalls returns the keys with which each hook was called, for hooks that are called and not polled.
func hookCalls(queries []string) map[string][]string {
	calls := map[string][]string{}
	for _, query := range queries {
		words := strings.Fields(query)
		if len(words) != 4 || words[1] != "hook" || strings.HasPrefix(words[0], "confirm-") || words[0] == "rollback" {
			continue
		}
		calls[words[0]+" "+words[2]] = append(calls[words[0]+" "+words[2]], words[3])
	}
	return calls
}

func distinct(keys []string) int {
	slices.Sort(keys)
	return len(slices.Compact(keys))
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
