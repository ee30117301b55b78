package rollout

import (
	"slices"
	"testing"
	"time"
)

// TestWhoWaitsForAStepSeesIt: a suite or a script that waits for an index finds each one that a pause leads to.
func TestWhoWaitsForAStepSeesIt(t *testing.T) {
	w := stepping(t, 1, setWeight(10), pauseFor("10s"), setWeight(20), pauseFor("10s"))
	w.until(t, w.now.Add(11*time.Second))
	if want := []int32{2, 3}; !slices.Equal(w.steps, want) || w.route.Weights.Canary.Weight != 20 {
		t.Errorf("behind the pause the status named the steps %v, want %v; the weight is %d, want 20", w.steps, want, w.route.Weights.Canary.Weight)
	}
}
