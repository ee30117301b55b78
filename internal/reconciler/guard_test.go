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

func TestAPanicAffectsOnlyItsOwnRelease(t *testing.T) {
	var guard Guard
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	broken, healthy := types.NamespacedName{Name: "broken"}, types.NamespacedName{Name: "healthy"}
	reports, errUnavailable := 0, errors.New("unavailable")
	run := func(key types.NamespacedName, panics bool) (reconcile.Result, error) {
		return guard.Run(t.Context(), clk, key, func(context.Context, types.NamespacedName, error) error {
			reports++
			panic("the cause still exists")
		}, func(context.Context, types.NamespacedName) (reconcile.Result, error) {
			if panics {
				panic("a defect")
			}
			return reconcile.Result{RequeueAfter: time.Second}, errUnavailable
		})
	}
	for i, want := range []time.Duration{InitialBackoff, 2 * InitialBackoff, 4 * InitialBackoff} {
		if result, err := run(broken, true); err != nil || result.RequeueAfter != want || reports != i+1 {
			t.Errorf("panic %d: next attempt in %s, %v, reported %d times", i+1, result.RequeueAfter, err, reports)
		}
		if result, err := run(healthy, false); !errors.Is(err, errUnavailable) || result.RequeueAfter != time.Second {
			t.Errorf("another release: %+v, %v", result, err)
		}
		clk.SetTime(clk.Now().Add(want))
	}
	if _, err := run(broken, false); !errors.Is(err, errUnavailable) {
		t.Errorf("repaired: %v", err)
	}
	if result, _ := run(broken, true); result.RequeueAfter != InitialBackoff {
		t.Errorf("broken again: next attempt in %s", result.RequeueAfter)
	}
}

func TestTheDelayGrowsWithConsecutiveFailures(t *testing.T) {
	var backoff Backoff
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, want := range []int{15, 30, 60, 120, 240, 300, 300} {
		next := backoff.NextAttempt(now, InitialBackoff, MaxBackoff)
		if got := next.Sub(now); got.Seconds() != float64(want) {
			t.Errorf("failure %d: %s, want %d s", i+1, got, want)
		}
		if early := backoff.NextAttempt(now.Add(time.Second), InitialBackoff, MaxBackoff); !early.Equal(next) {
			t.Errorf("failure %d: an early reconciliation changed the next attempt from %s to %s", i+1, next, early)
		}
		now = next
	}
	if got := backoff.NextAttempt(now.Add(-time.Hour), InitialBackoff, MaxBackoff).Sub(now.Add(-time.Hour)); got > MaxBackoff {
		t.Errorf("after the clock was set back: %s", got)
	}
}
