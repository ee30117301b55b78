package rollout

import (
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// BenchmarkNext measures a decision about an idle Rollout, and about a paused one.
func BenchmarkNext(b *testing.B) {
	w := newWorld(argov1.RolloutSpec{Replicas: new(int32(10)), Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{
		CanaryService: "canary", StableService: "stable", TrafficRouting: &argov1.RolloutTrafficRouting{},
		Steps: []argov1.CanaryStep{setWeight(20), pauseFor(""), setWeight(50), pauseFor("")},
	}}})
	w.settle(b)
	idle := w.snapshot(b)
	w.template = "v2"
	w.generation++
	w.settle(b)
	held := w.snapshot(b)
	for _, bench := range []struct {
		name     string
		snapshot Snapshot
		phase    argov1.RolloutPhase
	}{
		{"idle", idle, argov1.RolloutPhaseHealthy},
		{"held", held, argov1.RolloutPhasePaused},
	} {
		if d := Next(bench.snapshot); d.Status.Phase != bench.phase {
			b.Fatalf("%s: decided for phase %s, want %s", bench.name, d.Status.Phase, bench.phase)
		}
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Next(bench.snapshot)
			}
		})
	}
}
