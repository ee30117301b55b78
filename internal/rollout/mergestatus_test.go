package rollout

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// TestEveryPausedStepIsWritten: a script that waits for a step index observes each one that precedes a pause. The end-to-end suite of
// Argo Rollouts does so, also for a step that takes no time.
func TestEveryPausedStepIsWritten(t *testing.T) {
	w := worldInFirstPause(t, 1, setWeight(10), pauseFor("10s"), setWeight(20), pauseFor("10s"))
	w.advanceTo(t, w.now.Add(11*time.Second))
	if want := []int32{2, 3}; !slices.Equal(w.steps, want) || w.route.Weights.Canary.Weight != 20 {
		t.Errorf("behind the pause the status named the steps %v, want %v; the weight is %d, want 20", w.steps, want, w.route.Weights.Canary.Weight)
	}
}

// TestPauseOfAnotherStepIsRemoved: a user may write the pause of a step into a status whose step is not a pause, or that is past
// the last step. It would never end.
func TestPauseOfAnotherStepIsRemoved(t *testing.T) {
	s := Snapshot{
		Now: noon, Hash: "b", Spec: argov1.RolloutSpec{Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{
			Steps: []argov1.CanaryStep{setWeight(10), pauseFor("")},
		}}},
		Status: argov1.RolloutStatus{CurrentPodHash: "b", StableRS: "a", ControllerPause: true, PauseConditions: []argov1.PauseCondition{
			{Reason: argov1.PauseReasonCanaryPauseStep, StartTime: metav1.NewTime(noon)},
		}},
	}
	for index, held := range []bool{false, true, false} {
		s.Status.CurrentStepIndex = new(int32(index))
		if status := sanitizeStatus(s); hasPauseReason(status, argov1.PauseReasonCanaryPauseStep) != held || status.ControllerPause != held {
			t.Errorf("at step %d: paused for %v, controller pause %v, want %v", index+1, status.PauseConditions, status.ControllerPause, held)
		}
	}
	s.Spec.Strategy.Canary.Steps, s.Status.CurrentStepIndex = nil, nil
	if status := sanitizeStatus(s); len(status.PauseConditions) > 0 || status.ControllerPause {
		t.Errorf("without steps: paused for %v, controller pause %v", status.PauseConditions, status.ControllerPause)
	}
}
