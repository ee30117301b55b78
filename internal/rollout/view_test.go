package rollout

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

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
