package canary_test

import (
	"testing"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
)

// BenchmarkNext measures decisions: about an idle Canary, during a window, at the end of a window, and about a step, which is
// the only one that writes a status.
func BenchmarkNext(b *testing.B) {
	w := newWorld()
	w.instantPods, w.standingAnswers["all"] = true, "good"
	w.spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	w.spec.Analysis = &flaggerv1.CanaryAnalysis{
		Interval: "1m", Threshold: 5, StepWeights: []int{10, 25, 50, 75, 100},
		Metrics: []flaggerv1.CanaryMetric{{Name: canary.SuccessRate, Threshold: 99}, {Name: canary.Duration, Threshold: 500}},
		Webhooks: []flaggerv1.CanaryWebhook{
			{Name: "load", URL: "http://load"}, {Type: flaggerv1.PreRolloutHook, Name: "smoke", URL: "http://smoke"},
		},
	}
	settle := func() {
		if !w.settle(60, func(reconciliation) {}) {
			b.Fatal("does not become idle")
		}
	}
	settle()
	w.now = w.now.Add(10 * time.Second)
	settle()
	idle := w.snapshot()
	w.target.roll(content{template: "v2"}, "", true)
	settle()
	w.now = w.now.Add(time.Second)
	observing := w.snapshot()
	w.now = w.now.Add(time.Minute)
	ending := w.snapshot()
	for range 2 {
		w.sendQueries(canary.Next(w.snapshot()).Queries)
		w.answerAtOnce()
	}
	stepping := w.snapshot()
	for _, bench := range []struct {
		name     string
		snapshot canary.Snapshot
		phase    flaggerv1.CanaryPhase
		weight   int
	}{
		{"idle", idle, flaggerv1.CanaryPhaseInitialized, 0},
		{"observing", observing, flaggerv1.CanaryPhaseProgressing, 10},
		{"asking", ending, flaggerv1.CanaryPhaseProgressing, 10},
		{"stepping", stepping, flaggerv1.CanaryPhaseProgressing, 25},
	} {
		if d := canary.Next(bench.snapshot); d.Status.Phase != bench.phase || d.Status.CanaryWeight != bench.weight {
			b.Fatalf("%s: decided for phase %s and weight %d, want %s and %d", bench.name, d.Status.Phase, d.Status.CanaryWeight, bench.phase, bench.weight)
		}
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				canary.Next(bench.snapshot)
			}
		})
	}
}
