package release_test

import (
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

func TestEarliestStepDependsOnlyOnTimedGates(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	later := now.Add(time.Minute)
	for _, tc := range []struct {
		name string
		gate release.GateView
		want time.Time
	}{
		{"a gate of any name", release.GateView{Gate: release.NewTimedGate("soak", later, "")}, later},
		{"an elapsed gate", release.GateView{Gate: release.NewTimedGate("soak", now.Add(-time.Minute), "")}, now},
		{"an informational gate", release.GateView{Gate: release.NewTimedGate("deadline", later, ""), Kind: release.GateKind{Informational: true}}, now},
		{"an open gate", release.GateView{Gate: release.Gate{Name: "soak", Verdict: release.Pass, Opener: release.ByTime, Until: later}}, now},
		{"a deadline of the cluster", release.GateView{Gate: release.Gate{Name: "pods", Verdict: release.Wait, Opener: release.ByCluster, Until: later}}, now},
	} {
		view := release.View{Gates: []release.GateView{tc.gate}}
		if got := view.TimedGatesOpenAt(now); !got.Equal(tc.want) {
			t.Errorf("%s: the next step is possible from %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestGateKindsResolvePlaceholders(t *testing.T) {
	kinds := release.GateKinds{{Name: "rollout-asked/HOOK"}, {Name: "rollout/HOOK"}, {Name: "window"}, {Name: "METRIC"}}
	for name, want := range map[string]string{
		"window": "window", "rollout/load": "rollout/HOOK", "rollout-asked/load": "rollout-asked/HOOK", "rollout": "", "windows": "", "": "",
	} {
		if got := kinds.Of(name).Name; got != want {
			t.Errorf("gate %q is of kind %q, want %q", name, got, want)
		}
	}
	if got := kinds.OfMetric().Name; got != "METRIC" {
		t.Errorf("gates of metrics are of kind %q", got)
	}
}
