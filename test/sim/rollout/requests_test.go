package rollout_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/test/sim/runner"
	"github.com/serin-dev/serin/test/sim/runner/runnertest"
)

// combined marks the event that represents several. In a simulation run, it is written whenever one of them occurs, and in production
// once a minute.
const combined = "(combined from similar events)"

// TestRequestsOfARelease counts the requests of the release that make bench measures, from its start to the removal of the old pods.
// Each has its reason in docs/benchmarks.md.
func TestRequestsOfARelease(t *testing.T) {
	t.Parallel()
	r := runner.RunStory(runner.Rollout, "five weights")
	runnertest.NoViolation(t, r)
	start := slices.IndexFunc(r.Trace, func(line string) bool { return strings.Contains(line, "users ship") })
	if start < 0 {
		t.Fatalf("no release in the trace:\n%s", strings.Join(r.Trace, "\n"))
	}
	got, isCombined := map[string]int{}, false
	for _, line := range r.Trace[start:] {
		if _, request, is := strings.Cut(line, " serin → "); is {
			fields := strings.Fields(request)
			got[fields[0]+" "+fields[1]]++
		} else if strings.Contains(line, combined) {
			isCombined = true
		} else if strings.Contains(line, ": Normal: ") || strings.Contains(line, ": Warning: ") {
			got["event"]++
		}
	}
	if isCombined {
		got["event"]++
	}
	want := map[string]int{
		// RolloutUpdated, NewReplicaSetCreated, RolloutNotCompleted, ScalingReplicaSet and AnalysisRunRunning at the start; SwitchService
		// twice; TrafficWeightUpdated, RolloutStepCompleted twice, RolloutPaused and RolloutResumed once, and the combined event;
		// RolloutCompleted; MetricSuccessful and AnalysisRunSuccessful; ScalingReplicaSet at the end.
		"event": 17,
		// One for the revision. Its status at the start, with the name of the AnalysisRun, with its phase, with the number of pods,
		// with the available ones; at the start and end of each pause; at the promotion, and without the weight; when the delay of
		// the old pods ends, and without them.
		"patch rollout": 1 + 5 + 10 + 2 + 2,
		// The start, two metrics that are measured five times at different times, the request to end, and the result.
		"patch analysisrun": 1 + 10 + 2,
		// The five weights, all of the traffic, and none when the stable Service selects the new pods.
		"patch virtualservice": 7,
		// Scaled up; the delay of the old pods, and its end.
		"patch replicaset": 3,
		"patch service":    2, "create replicaset": 1, "create analysisrun": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s\ntrace:\n%s", diff, strings.Join(r.Trace[start:], "\n"))
	}
}
