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

// Each story is played once without fault. Then it is played again for each request that Serin sent to the API server
// in it (it dies before the request, it dies after it, someone else is faster, the answer is lost), and for each question
// that it put to someone (it dies before it asks, while it waits, and once it was answered; the answer is lost). All must
// come to the same end, and break nothing on the way (I30).
func TestEveryCallMayGoWrong(t *testing.T) {
	t.Parallel()
	for _, story := range runner.Stories(runner.Canary) {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			smooth := runner.RunStory(runner.Canary, story)
			runnertest.NoViolation(t, smooth)
			if smooth.Calls < 5 {
				t.Fatalf("want a story, got %d requests", smooth.Calls)
			}
			everywhere(t, story, smooth, smooth.Calls, sim.DieBefore, sim.DieAfter, sim.Lose, sim.Unknown)
			everywhere(t, story, smooth, len(smooth.Questions), sim.DieAsking, sim.DieWaiting, sim.DieAnswered, sim.LoseAnswer)
		})
	}
}

// everywhere lets the story fail in each of these ways, at each of so many moments.
func everywhere(t *testing.T, story string, smooth sim.Result, moments int, ways ...sim.Failure) {
	t.Helper()
	for at := 1; at <= moments; at++ {
		for _, how := range ways {
			if !t.Run(fmt.Sprintf("%s at %d", how, at), func(t *testing.T) { struck(t, story, smooth, sim.ScheduledFault{At: at, Failure: how}) }) {
				return
			}
		}
	}
}

// struck plays a story in which something fails, and holds it against the one in which nothing does.
func struck(t *testing.T, story string, smooth sim.Result, strikes ...sim.ScheduledFault) {
	t.Helper()
	got := runner.RunStory(runner.Canary, story, strikes...)
	runnertest.NoViolation(t, got)
	if slices.ContainsFunc(strikes, func(s sim.ScheduledFault) bool { return s.Failure == sim.LoseAnswer }) {
		return // an answer that was lost may well have been the one that the release needed
	}
	if difference := firstDifference(smooth.Final, got.Final); difference != "" {
		t.Errorf("another end:\n%s\nhistory:\n%s", difference, strings.Join(got.Trace, "\n"))
	}
	if why := askedMore(smooth.Questions, got.Questions, len(strikes)); why != "" {
		t.Errorf("%s\nhistory:\n%s", why, strings.Join(got.Trace, "\n"))
	}
}

// TestTwoCrashesAreNoMoreThanOne kills Serin twice in the plain story, at pairs of requests that are spread over all there
// are.
func TestTwoCrashesAreNoMoreThanOne(t *testing.T) {
	t.Parallel()
	const story, each = "steps", 7 // of the pairs; a prime, so that all requests come first and second
	smooth := runner.RunStory(runner.Canary, story)
	pair := 0
	for first := 1; first <= smooth.Calls; first++ {
		for second := first + 1; second <= smooth.Calls+10; second++ { // a start costs requests
			ways := [][2]sim.Failure{{sim.DieBefore, sim.DieBefore}, {sim.DieBefore, sim.DieAfter}, {sim.DieAfter, sim.DieBefore}, {sim.DieAfter, sim.DieAfter}}
			for _, how := range ways {
				if pair++; pair%each != 0 {
					continue
				}
				if !t.Run(fmt.Sprintf("%s at %d and %s at %d", how[0], first, how[1], second), func(t *testing.T) {
					struck(t, story, smooth, sim.ScheduledFault{At: first, Failure: how[0]}, sim.ScheduledFault{At: second, Failure: how[1]})
				}) {
					return
				}
			}
		}
	}
}

// TestTwoFaultsAreNoMoreThanOne lets each story fail twice, in all pairs of ways, at pairs of requests that are spread
// over all there are.
func TestTwoFaultsAreNoMoreThanOne(t *testing.T) {
	t.Parallel()
	ways := []sim.Failure{sim.DieBefore, sim.DieAfter, sim.Lose, sim.Unknown}
	for _, story := range runner.Stories(runner.Canary) {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			smooth := runner.RunStory(runner.Canary, story)
			all := smooth.Calls * smooth.Calls * len(ways) * len(ways)
			for n := range pairs {
				pair := n * all / pairs // the remainders go through ways and requests alike
				first, second := ways[pair%len(ways)], ways[pair/len(ways)%len(ways)]
				pair /= len(ways) * len(ways)
				at, after := 1+pair%smooth.Calls, 1+pair/smooth.Calls
				t.Run(fmt.Sprintf("%s at %d and %s %d later", first, at, second, after), func(t *testing.T) {
					struck(t, story, smooth, sim.ScheduledFault{At: at, Failure: first}, sim.ScheduledFault{At: at + after, Failure: second})
				})
			}
		})
	}
}

// pairs is how many pairs of faults are tried of each story; 97 is prime, so that they do not fall into step with ways and
// requests.
const pairs = 97

// askedMore says which hook was called more often than it may be: once more for each crash, with a key that it was called
// with before. Hooks that users open are polled, which I11 judges.
func askedMore(smooth, got []string, crashes int) string {
	want, had := hookCalls(smooth), hookCalls(got)
	for _, hook := range slices.Sorted(maps.Keys(had)) {
		if len(had[hook]) > len(want[hook])+crashes {
			return fmt.Sprintf("%s was called %d times, without trouble %d", hook, len(had[hook]), len(want[hook]))
		}
		if keys, usual := distinct(had[hook]), distinct(want[hook]); keys != usual {
			return fmt.Sprintf("%s was called with %d keys, without trouble with %d", hook, keys, usual)
		}
	}
	return ""
}

// hookCalls are the keys with which each hook was called, of those that are called and not polled.
func hookCalls(questions []string) map[string][]string {
	calls := map[string][]string{}
	for _, question := range questions {
		words := strings.Fields(question)
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
