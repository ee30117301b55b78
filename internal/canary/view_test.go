package canary_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// TestEveryGateIsOpenedAsItsKindLists: users and docs/gates.md rely on the openers in GateKinds.
func TestEveryGateIsOpenedAsItsKindLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Draw(t, "snapshot")
		for _, gate := range canary.View(s).Gates {
			if gate.Kind.Name == "" {
				t.Fatalf("the gate %s is not in GateKinds", gate.Name)
			}
			listed := gate.Kind.Openers
			if gate.Kind.Queries { // its query, and what defers the query
				listed = slices.Concat(listed, []release.Opener{release.ByAnswer, release.ByCluster})
			}
			if gate.Verdict != release.Pass && !slices.Contains(listed, gate.Opener) {
				t.Fatalf("the gate %s (%s) is opened by %s, its kind by %s", gate.Name, gate.Message, gate.Opener, listed)
			}
		}
	})
}

func TestViewShowsAReleaseInProgressAndStepsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots().Draw(t, "snapshot")
		v := canary.View(s)
		if v.State == release.Idle && canary.IsActivePhase(s.Status.Phase) {
			t.Fatalf("a release in phase %s is shown as idle", s.Status.Phase)
		}
		if v.Weight < 0 || v.Weight > release.Total {
			t.Fatalf("the canary is shown with %d%% of the traffic", v.Weight)
		}
		for i, step := range v.Upcoming {
			if step.Text == "" || step.At.Before(s.Now) || i > 0 && step.At.Before(v.Upcoming[i-1].At) {
				t.Fatalf("step %d of the forecast: %+v, at %s", i, step, s.Now)
			}
		}
	})
}
