package rollout

import (
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// TestEventsOfArgosTestSuiteAreIndividual: Argo's end-to-end suite compares the list of events of a release that is aborted after its
// weight, and retried. It waits for none of them.
func TestEventsOfArgosTestSuiteAreIndividual(t *testing.T) {
	written := map[string]int{} // in the current series, by reason
	for _, reason := range []string{
		"RolloutNotCompleted", "ScalingReplicaSet", "RolloutStepCompleted", "RolloutPaused", "ScalingReplicaSet", "RolloutAborted",
		"ScalingReplicaSet", "RolloutStepCompleted", "RolloutPaused", "RolloutStepCompleted", "RolloutResumed", "ScalingReplicaSet", "RolloutCompleted",
	} {
		if startsSeries(reason) {
			clear(written)
		}
		written[reason]++
		inStatus := reason == reasonStepCompleted || reason == reasonPaused || reason == reasonResumed
		if inStatus && written[reason] > individualEvents(reason) {
			t.Errorf("%s is combined", reason)
		}
	}
}

// TestAPauseThatAUserEndsIsNeverCombined: tools that notify the user who must resume a release read its event.
func TestAPauseThatAUserEndsIsNeverCombined(t *testing.T) {
	for name, c := range map[string]struct {
		step     argov1.CanaryStep
		reason   argov1.PauseReason
		combined bool
	}{
		"timed":        {pauseFor("10s"), argov1.PauseReasonCanaryPauseStep, true},
		"indefinite":   {pauseFor(""), argov1.PauseReasonCanaryPauseStep, false},
		"inconclusive": {pauseFor("10s"), argov1.PauseReasonInconclusiveAnalysis, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{Snapshot: Snapshot{Spec: argov1.RolloutSpec{Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{Steps: []argov1.CanaryStep{c.step}}}}}}
			event := pausedEvent(f, argov1.RolloutStatus{CurrentStepIndex: new(int32(0)), PauseConditions: []argov1.PauseCondition{{Reason: c.reason}}})
			if event.InStatus != c.combined || event.Type != release.Normal || event.Message != "Rollout is paused ("+string(c.reason)+")" {
				t.Errorf("event %+v", event)
			}
		})
	}
}
