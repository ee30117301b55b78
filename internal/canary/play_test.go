package canary_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// TestPlayedReleasesEqualThoseOfTheWorld plays random valid specs: the release is promoted, with the weights and at the times of
// the world of the scenarios in which everything succeeds.
func TestPlayedReleasesEqualThoseOfTheWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawPlayable(t)
		want := releaseOfWorld(t, w, "good")
		got := playedRelease(t, w, canary.PassingAnswer)
		if !slices.Equal(got.weights, want.weights) || got.duration != want.duration {
			t.Fatalf("the played release has %v in %s, that of the world %v in %s", got.weights, got.duration, want.weights, want.duration)
		}
	})
}

// TestSlowestAnswersJustPassTheThreshold: with the slowest answers a release is still promoted, after as many failed checks as it
// tolerates, and one more would roll it back.
func TestSlowestAnswersJustPassTheThreshold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawPlayable(t)
		shortest, slowest := playedRelease(t, w, canary.PassingAnswer), playedRelease(t, w, canary.SlowestAnswer)
		plan := w.plan()
		fails := len(plan.Checks) > 0 || slices.ContainsFunc(plan.Hooks, func(h canary.Hook) bool {
			return h.Type == flaggerv1.RolloutHook || h.Type == flaggerv1.PreRolloutHook
		})
		switch {
		case plan.SkipAnalysis || !fails:
			if slowest.duration != shortest.duration {
				t.Fatalf("no check can fail, but the slowest release takes %s, not %s", slowest.duration, shortest.duration)
			}
		case slowest.failedChecks != plan.Threshold-1:
			t.Fatalf("%d failed checks, and the threshold is %d", slowest.failedChecks, plan.Threshold)
		case slowest.duration < shortest.duration+time.Duration(plan.Threshold-1)*plan.Interval:
			t.Fatalf("%d failed checks in windows of %s, but the slowest release takes %s and the shortest %s",
				plan.Threshold-1, plan.Interval, slowest.duration, shortest.duration)
		}
	})
}

// drawPlayable draws a world with a valid spec that ends within the decisions of a played release.
func drawPlayable(t *rapid.T) *world {
	w := newWorld()
	w.instantPods = true
	drawSpec(t, w)
	w.spec.Suspend = false
	plan := w.plan()
	if len(plan.ValidationErrors) > 0 || plan.Iterations > 100 {
		t.Skip("not playable")
	}
	return w
}

// course is how a release went.
type course struct {
	weights      []int
	duration     time.Duration
	failedChecks int
}

func (c *course) add(weight int) {
	if len(c.weights) == 0 || c.weights[len(c.weights)-1] != weight {
		c.weights = append(c.weights, weight)
	}
}

// releaseOfWorld initialises the world, and releases a new revision with one answer to all queries.
func releaseOfWorld(t *rapid.T, w *world, answer string) course {
	w.standingAnswers["all"] = answer
	var c course
	var wake time.Time
	see := func(p reconciliation) {
		wake = p.Wake
		if route := w.route(); route != nil {
			c.add(route.Canary)
		}
	}
	until := func(phase flaggerv1.CanaryPhase) {
		for range 2000 {
			if !w.settle(4000, see) {
				t.Fatalf("the world does not settle")
			}
			if w.status.Phase == phase {
				return
			}
			if !wake.After(w.now) {
				t.Fatalf("the release waits in phase %s", w.status.Phase)
			}
			w.now = wake
		}
		t.Fatalf("the release does not end")
	}
	until(flaggerv1.CanaryPhaseInitialized)
	start := w.now
	c = course{}
	w.target.roll(content{template: "v2"}, "", true)
	until(flaggerv1.CanaryPhaseSucceeded)
	c.duration, c.failedChecks = w.now.Sub(start), w.status.FailedChecks
	return c
}

// playedRelease plays the initialization and a release of the spec of a world.
func playedRelease(t *rapid.T, w *world, answer func(canary.Snapshot, release.Query) release.Answer) course {
	s := canary.Snapshot{Now: midnight, UID: "uid", Generation: 1, Plan: w.plan()}
	s.Workload.SameTemplate = true
	s.Workload.Target = canary.WorkloadState{Found: true, Revision: "v1", FlaggerHash: "hash-v1", Replicas: 1}
	s, settled := canary.Play(s, canary.PassingAnswer, func(canary.Transition) bool { return true })
	if !settled || s.Status.Phase != flaggerv1.CanaryPhaseInitialized {
		t.Fatalf("the initialization ends in phase %q", s.Status.Phase)
	}
	s.Workload.Target.Revision, s.Workload.Target.FlaggerHash, s.Workload.SameTemplate = "v2", "hash-v2", false
	var c course
	start, end := s.Now, s.Now
	s, settled = canary.Play(s, answer, func(tr canary.Transition) bool {
		if tr.After.Route.Found {
			c.add(tr.After.Route.Canary)
		}
		c.failedChecks = max(c.failedChecks, tr.After.Status.FailedChecks)
		if tr.Before.Status.Phase != tr.After.Status.Phase {
			end = tr.After.Now
		}
		return true
	})
	if !settled || s.Status.Phase != flaggerv1.CanaryPhaseSucceeded {
		t.Fatalf("the release ends in phase %q after %s", s.Status.Phase, s.Now.Sub(start))
	}
	c.duration = end.Sub(start)
	return c
}
