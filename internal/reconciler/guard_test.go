package reconciler

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestAPanicCostsItsOwnReleaseOnly(t *testing.T) {
	var guard Guard
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	broken, good := types.NamespacedName{Name: "broken"}, types.NamespacedName{Name: "good"}
	told, errAway := 0, errors.New("away")
	run := func(key types.NamespacedName, panics bool) (reconcile.Result, error) {
		return guard.Run(t.Context(), clk, key, func(context.Context, types.NamespacedName, error) error {
			told++
			panic("the cause is still there")
		}, func(context.Context, types.NamespacedName) (reconcile.Result, error) {
			if panics {
				panic("a fault")
			}
			return reconcile.Result{RequeueAfter: time.Second}, errAway
		})
	}
	for i, want := range []time.Duration{FirstPause, 2 * FirstPause, 4 * FirstPause} {
		if result, err := run(broken, true); err != nil || result.RequeueAfter != want || told != i+1 {
			t.Errorf("panic %d: next in %s, %v, told %d times", i+1, result.RequeueAfter, err, told)
		}
		if result, err := run(good, false); !errors.Is(err, errAway) || result.RequeueAfter != time.Second {
			t.Errorf("beside it: %+v, %v", result, err)
		}
		clk.SetTime(clk.Now().Add(want))
	}
	if _, err := run(broken, false); !errors.Is(err, errAway) {
		t.Errorf("mended: %v", err)
	}
	if result, _ := run(broken, true); result.RequeueAfter != FirstPause {
		t.Errorf("broken again: next in %s", result.RequeueAfter)
	}
}

func TestFailuresInARowAreTriedLessAndLess(t *testing.T) {
	var row Row
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, want := range []int{15, 30, 60, 120, 240, 300, 300} {
		next := row.Again(now, FirstPause, MaxPause)
		if got := next.Sub(now); got.Seconds() != float64(want) {
			t.Errorf("failure %d: %s, want %d s", i+1, got, want)
		}
		if early := row.Again(now.Add(time.Second), FirstPause, MaxPause); !early.Equal(next) {
			t.Errorf("failure %d: a pass that came for another reason moved the next one from %s to %s", i+1, next, early)
		}
		now = next
	}
	if got := row.Again(now.Add(-time.Hour), FirstPause, MaxPause).Sub(now.Add(-time.Hour)); got > MaxPause {
		t.Errorf("after the clock was set back: %s", got)
	}
}
