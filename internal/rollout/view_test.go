package rollout

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// TestEveryGateIsOpenedAsListed: users and docs/gates.md rely on the openers in GateKinds.
func TestEveryGateIsOpenedAsListed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		v := View(s)
		for _, gate := range v.Gates {
			if gate.Kind.Name == "" {
				t.Fatalf("the gate %s is not in GateKinds", gate.Name)
			}
			if gate.Verdict != release.Pass && !slices.Contains(gate.Kind.Openers, gate.Opener) {
				t.Fatalf("the gate %s (%s) is opened by %s, its kind by %s", gate.Name, gate.Message, gate.Opener, gate.Kind.Openers)
			}
		}
		for i, step := range v.Upcoming {
			if step.Text == "" || step.At.Before(s.Now) || i > 0 && step.At.Before(v.Upcoming[i-1].At) {
				t.Fatalf("step %d of the forecast: %+v, at %s", i, step, s.Now)
			}
		}
	})
}

// TestViewWithAnotherControllerForecastsNothing: the gates and the next steps of that controller are unknown.
func TestViewWithAnotherControllerForecastsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := ViewWithOtherController(drawSnapshot(t), "Deployment argo-rollouts has 1 ready pods", time.Time{})
		if len(v.Gates) != 1 || v.Gates[0].Name != "peer" || len(v.Upcoming) > 0 {
			t.Fatalf("got gates %v, steps %v; want the gate peer alone, no steps", v.Gates, v.Upcoming)
		}
	})
}

// TestAFixIsNotTimedOut: the status may still be that of the previous revision when a pipeline begins to wait for the next one.
func TestAFixIsNotTimedOut(t *testing.T) {
	status := argov1.RolloutStatus{Phase: argov1.RolloutPhaseDegraded, CurrentPodHash: "v2", StableRS: "v1", Conditions: []argov1.RolloutCondition{
		{Type: argov1.RolloutProgressing, Status: conditionStatus(false), Reason: reasonDeadlineExceeded},
	}}
	for hash, want := range map[string]bool{"v2": true, "v3": false} {
		if got := newView(Snapshot{Hash: hash, Status: status}, nil).TimedOut; got != want {
			t.Errorf("the template has the hash %s, and the status v2: timed out is %t, want %t", hash, got, want)
		}
	}
}

// TestHealthySinceTheEndOfTheRelease: the condition Healthy is False, since the start of the release, until the pods of the previous
// revision have ended.
func TestHealthySinceTheEndOfTheRelease(t *testing.T) {
	at := func(minute int) metav1.Time {
		return metav1.NewTime(time.Date(2026, 1, 2, 12, minute, 0, 0, time.UTC))
	}
	condition := func(kind argov1.RolloutConditionType, value bool, minute int) argov1.RolloutCondition {
		return argov1.RolloutCondition{Type: kind, Status: conditionStatus(value), LastTransitionTime: at(minute)}
	}
	finished := at(5)
	for _, tc := range []struct {
		name       string
		conditions []argov1.RolloutCondition
		finishedAt *metav1.Time
		want       time.Time
	}{
		{"pods of the previous revision remain", []argov1.RolloutCondition{condition(argov1.RolloutHealthy, false, 1), condition(argov1.RolloutCompleted, true, 4)}, &finished, finished.Time},
		{"they have ended", []argov1.RolloutCondition{condition(argov1.RolloutHealthy, true, 9), condition(argov1.RolloutCompleted, true, 4)}, &finished, finished.Time},
		{"the template of the stable revision after an abort", []argov1.RolloutCondition{condition(argov1.RolloutCompleted, true, 7)}, &finished, at(7).Time},
		{"no record", []argov1.RolloutCondition{condition(argov1.RolloutHealthy, true, 9)}, nil, at(9).Time},
		{"unknown", []argov1.RolloutCondition{condition(argov1.RolloutHealthy, false, 9)}, nil, time.Time{}},
	} {
		status := argov1.RolloutStatus{Phase: argov1.RolloutPhaseHealthy, Conditions: tc.conditions, Duration: &argov1.RolloutDuration{FinishedAt: tc.finishedAt}}
		if got := phaseSince(status); !got.Equal(tc.want) {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}
