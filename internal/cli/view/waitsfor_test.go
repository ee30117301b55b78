package view_test

import (
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
	"github.com/serin-dev/serin/internal/release"
)

// TestAnIdleReleaseWaitsForNoTime: a promoted Rollout retains the gate of its progress deadline until its old pods have ended.
func TestAnIdleReleaseWaitsForNoTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	deadline := explain.Gate{Name: "deadline", Verdict: "wait", Opener: "time", Until: now.Add(10 * time.Minute)}
	for state, want := range map[release.State]string{release.Idle: "-", release.InProgress: "deadline 10m"} {
		if got := view.WaitsFor(&explain.Release{State: state, Gates: []explain.Gate{deadline}}, now); got != want {
			t.Errorf("%s: it waits for %q, want %q", state, got, want)
		}
	}
}
