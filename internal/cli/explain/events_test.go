package explain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// parseEvents parses one event per line: its time, its text, and an asterisk in front of a command of a user.
func parseEvents(t *testing.T, text string) []explain.Event {
	t.Helper()
	var events []explain.Event
	for line := range strings.Lines(text) {
		at, message, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		message, byUser := strings.CutPrefix(message, "*")
		events = append(events, explain.Event{At: clitest.At(t, at), Type: "Normal", Message: message, ByUser: byUser})
	}
	return events
}

func messagesOf(events []explain.Event) []string {
	var out []string
	for _, event := range events {
		out = append(out, event.Message)
	}
	return out
}

// TestEventsOfACanary: the commands that lead to a release belong to it, also if they were recorded before its start.
func TestEventsOfACanary(t *testing.T) {
	const record = `
metadata: {name: cart}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}, analysis: {interval: 30s, threshold: 2, stepWeight: 50}}
`
	for _, tc := range []struct{ name, status, events, want string }{
		{
			name:   "a retry in the second before the start",
			status: `{phase: Progressing, serin: {history: [{revision: s1-new, start: "2026-01-02T11:50:00Z", end: "2026-01-02T11:59:00Z", result: failed}]}}`,
			events: `11:58:58 Advance cart.shop canary weight 50
				11:58:59 *abort requested by vera: checkout is slow
				11:59:00 Canary failed! Scaling down cart.shop
				11:59:30 Post-rollout check notify passed
				12:00:00 *retry requested by vera: it was the database
				12:00:01 New revision detected! Scaling up cart.shop
				12:00:02 Advance cart.shop canary weight 50`,
			want: `retry requested by vera: it was the database; New revision detected! Scaling up cart.shop; Advance cart.shop canary weight 50`,
		},
		{
			name:   "a retry after the start",
			status: `{phase: Progressing}`,
			events: `12:00:01 New revision detected! Scaling up cart.shop
				12:00:01 *retry requested by vera`,
			want: `New revision detected! Scaling up cart.shop; retry requested by vera`,
		},
		{
			name:   "everything in one second: the repeated event about the failure has an older name than the abort",
			status: `{phase: Progressing, serin: {history: [{revision: s1-new, start: "2026-01-02T11:50:00Z", end: "2026-01-02T12:00:00Z", result: failed}]}}`,
			events: `12:00:00 Canary failed! Scaling down cart.shop
				12:00:00 *abort requested by vera
				12:00:00 *retry requested by vera
				12:00:01 New revision detected! Scaling up cart.shop`,
			want: `retry requested by vera; New revision detected! Scaling up cart.shop`,
		},
		{
			name:   "the approval of the start, and the command that changed the target",
			status: `{phase: Progressing, serin: {history: [{revision: s1-old, start: "2026-01-02T11:50:00Z", end: "2026-01-02T11:59:00Z", result: promoted}]}}`,
			events: `11:55:00 *promote --full requested by vera
				11:59:00 Promotion completed! Scaling down cart.shop
				12:00:00 *set image app=cart:v3 requested by vera
				12:00:01 Halt cart.shop advancement waiting for approval sign-off
				12:00:05 *approve confirm-rollout/sign-off requested by max
				12:00:06 Confirm-rollout check sign-off passed
				12:00:06 New revision detected! Scaling up cart.shop`,
			want: `set image app=cart:v3 requested by vera; approve confirm-rollout/sign-off requested by max; New revision detected! Scaling up cart.shop`,
		},
		{
			name:   "a release that supersedes another one, which has no event about its end",
			status: `{phase: Progressing, serin: {history: [{revision: s1-b, start: "2026-01-02T11:50:00Z", end: "2026-01-02T12:00:00Z", result: superseded}]}}`,
			events: `11:50:00 New revision detected! Scaling up cart.shop
				11:51:00 *approve confirm-traffic-increase/sign-off requested by max
				11:52:00 Advance cart.shop canary weight 50
				12:00:00 *set image app=cart:v3 requested by vera
				12:00:00 New revision detected! Restarting analysis for cart.shop`,
			want: `set image app=cart:v3 requested by vera; New revision detected! Restarting analysis for cart.shop`,
		},
		{
			name: "the last release has ended",
			status: `{phase: Failed, serin: {history: [{revision: s1-b, start: "2026-01-02T11:58:00Z", end: "2026-01-02T11:59:00Z", result: failed},
				{revision: s1-a, start: "2026-01-02T11:50:00Z", end: "2026-01-02T11:55:00Z", result: failed}]}}`,
			events: `11:54:00 *pause requested by vera
				11:57:59 *retry requested by vera
				11:58:00 New revision detected! Scaling up cart.shop
				11:59:00 Canary failed! Scaling down cart.shop`,
			want: `retry requested by vera; New revision detected! Scaling up cart.shop; Canary failed! Scaling down cart.shop`,
		},
		{
			name:   "Kubernetes has deleted the event about the start",
			status: `{phase: Progressing, serin: {history: [{revision: s1-a, start: "2026-01-02T10:50:00Z", end: "2026-01-02T10:55:00Z", result: failed}]}}`,
			events: `11:58:00 Advance cart.shop canary weight 30
				11:59:00 Advance cart.shop canary weight 40`,
			want: `Advance cart.shop canary weight 30; Advance cart.shop canary weight 40`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := clitest.At(t, "12:00:10")
			observed, err := clitest.ParseObservation(record+"status: "+tc.status, now)
			if err != nil {
				t.Fatal(err)
			}
			shared := observed.Shared()
			shared.Events = parseEvents(t, tc.events)
			got := messagesOf(observed.WithShared(shared).Describe(now).Events)
			if want := strings.Split(tc.want, "; "); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestEventsOfARollout(t *testing.T) {
	now := clitest.At(t, "12:00:10")
	observed := &explain.Rollout{Object: &argov1.Rollout{}, Snapshot: rollout.Snapshot{Name: "web", Now: now}}
	observed.Events = parseEvents(t, `11:58:00 Rollout not completed, started update to revision 2 (5d4c)
		11:59:00 *promote --full requested by vera
		11:59:00 Rollout completed update to revision 2 (5d4c): Completed all 2 canary steps
		11:59:30 Scaled down ReplicaSet web-6f7b (revision 1) from 1 to 0
		12:00:00 *undo to revision 1 requested by max
		12:00:00 Rollout updated to revision 3
		12:00:00 Rollout not completed, started update to revision 3 (6f7b)
		12:00:01 Rollout is paused (CanaryPauseStep)`)
	want := []string{"undo to revision 1 requested by max", "Rollout not completed, started update to revision 3 (6f7b)", "Rollout is paused (CanaryPauseStep)"}
	if got := messagesOf(observed.Describe(now.Add(time.Second)).Events); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestRepetitionsHaveTheirPeriod: controllers count the events of earlier releases too.
func TestRepetitionsHaveTheirPeriod(t *testing.T) {
	at := clitest.At(t, "12:00:00")
	for _, tc := range []struct {
		event explain.Event
		want  string
	}{
		{explain.Event{At: at, Count: 1}, ""},
		{explain.Event{At: at, Count: 3}, " (3 times)"},
		{explain.Event{At: at, Count: 3, FirstAt: at.Add(-time.Hour)}, " (3 times since 11:00:00Z)"},
		{explain.Event{At: at, Count: 3, FirstAt: at.Add(-49 * time.Hour)}, " (3 times since 2025-12-31T11:00:00Z)"},
	} {
		if got := tc.event.Repetitions(); got != tc.want {
			t.Errorf("%+v: got %q, want %q", tc.event, got, tc.want)
		}
	}
}

// TestARejectionIsComplete: the status of a Rollout contains the beginning of the message, and an event all of it.
func TestARejectionIsComplete(t *testing.T) {
	now := clitest.At(t, "12:00:10")
	complete := "ReplicaSet web-5d4c: " + strings.Repeat("é", 120) + ": raise the quota"
	observed := &explain.Rollout{Object: &argov1.Rollout{}, Snapshot: rollout.Snapshot{Name: "web", Now: now}}
	observed.Snapshot.Status.Serin = &argov1.SerinStatus{Gates: []argov1.GateStatus{
		{Name: "refused", Verdict: string(release.Fail), Opener: string(release.ByUser), Message: release.Truncate(complete, reconciler.MaxGateMessage)},
	}}
	observed.Events = []explain.Event{{At: now, Type: "Warning", Message: "Reconciliation failed with error: " + complete}}
	r := observed.Describe(now)
	if text := strings.Join(explain.Why(r, now), "\n"); !strings.Contains(text, complete) {
		t.Errorf("got %s\nwithout %q", text, complete)
	}
}
