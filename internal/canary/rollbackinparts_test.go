package canary_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// worldDuringRollback is a world during a rollback that started with that weight and those pods.
func worldDuringRollback(t *rapid.T) *world {
	w := newWorld()
	w.instantPods = true
	w.spec = flaggerv1.CanarySpec{
		TargetRef: flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"},
		Analysis: &flaggerv1.CanaryAnalysis{
			Interval: "1m", Threshold: 1, StepWeight: rapid.SampledFrom([]int{1, 30, 50, 99, 100}).Draw(t, "weight"),
			StepWeightPromotion: 10,
		},
	}
	if rapid.Bool().Draw(t, "sticky") {
		w.spec.Analysis.SessionAffinity = &flaggerv1.SessionAffinity{CookieName: "ship", PrimaryCookieName: "home"}
	}
	w.target.scale(rapid.Int32Range(1, 20).Draw(t, "replicas"), true)
	settle := func() {
		if !w.settle(60, func(reconciliation) {}) {
			t.Fatalf("does not become idle in phase %s", w.status.Phase)
		}
	}
	for w.status.Phase != flaggerv1.CanaryPhaseInitialized {
		settle()
		w.now = w.now.Add(10 * time.Second)
	}
	w.target.roll(content{template: "v2"}, "", true)
	settle()
	w.target.scale(rapid.Int32Range(1, 20).Draw(t, "canary pods"), true)
	settle()
	if w.route().Canary == 0 {
		t.Fatalf("no weight in phase %s", w.status.Phase)
	}
	w.instantPods = false
	w.primary.available = rapid.Int32Range(0, w.primary.replicas).Draw(t, "primary pods")
	w.command = "abort@" + canary.RunOf("uid", w.status)
	return w
}

// TestRollbackReturnsTheTrafficThatThePrimaryCanCarry simulates rollbacks while pods of primary and canary start and stop.
func TestRollbackReturnsTheTrafficThatThePrimaryCanCarry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := worldDuringRollback(t)
		enough := release.PodsForAllTraffic(w.primary.replicas, w.target.available)
		weight, drained := w.route().Canary, time.Time{}
		var trace []string
		check := func(p reconciliation) {
			live := w.route().Canary
			trace = append(trace, fmt.Sprintf("%s %s weight=%d live=%d primary %s canary %s: %v", w.now.Format(time.TimeOnly), w.status.Phase,
				w.status.CanaryWeight, live, workloadText(w.primary), workloadText(w.target), p.changes))
			fail := func(format string, args ...any) {
				t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(trace, "\n"))
			}
			if live > weight {
				fail("the primary lost a part of the traffic again: the canary had %d", weight)
			}
			if down := slices.ContainsFunc(p.changes, scalesToZero); down && (live > 0 || w.now.Before(drained.Add(5*time.Second))) {
				fail("the canary lost its pods with weight %d, or %s after its traffic", live, w.now.Sub(drained))
			}
			if live == 0 && weight > 0 {
				drained = w.now
			}
			maximum := release.Total - int(release.CarriedWeight(release.Total, min(w.primary.available, w.primary.endpoints), enough))
			serves := w.target.available > 0 && w.target.endpoints > 0
			if settled := !p.statusWritten && !p.crashed; settled && w.primary.available > 0 && w.primary.endpoints > 0 && live > maximum {
				fail("the canary keeps %d, and the primary carries all but %d", live, maximum)
			}
			if live < min(weight, maximum) && serves && !w.primary.ready() {
				fail("the primary got more than its pods carry: the canary keeps %d instead of %d", live, min(weight, maximum))
			}
			weight = live
		}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			if !w.settle(60, check) {
				t.Fatalf("does not become idle:\n%s", strings.Join(trace, "\n"))
			}
			switch rapid.IntRange(0, 6).Draw(t, "change") {
			case 0:
				w.primary.available = rapid.Int32Range(0, w.primary.replicas).Draw(t, "primary pods")
			case 1: // an autoscaler that never scales down
				w.primary.replicas = rapid.Int32Range(max(w.primary.replicas, 1), 60).Draw(t, "primary replicas")
			case 2:
				if w.target.replicas > 0 {
					w.target.available = rapid.Int32Range(0, w.target.replicas).Draw(t, "canary pods")
				}
			case 3:
				w.endpointsDelayed = rapid.Bool().Draw(t, "late")
			case 4:
				w.restart()
			case 5:
				w.crash = rapid.IntRange(0, 6).Draw(t, "effects")
			case 6:
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
			}
		}
		w.endpointsDelayed, w.primary.available = false, w.primary.replicas
		for range 5 {
			if !w.settle(60, check) {
				t.Fatalf("does not become idle:\n%s", strings.Join(trace, "\n"))
			}
			w.now = w.now.Add(10 * time.Second)
		}
		if w.status.Phase != flaggerv1.CanaryPhaseFailed || w.route().Canary != 0 || w.target.replicas != 0 {
			t.Fatalf("the rollback did not end:\n%s", strings.Join(trace, "\n"))
		}
		if serin := w.status.Serin; serin != nil && serin.CarriedBy != nil {
			t.Fatalf("the rollback ended, but its status still has carriedBy=%d", *serin.CarriedBy)
		}
	})
}
