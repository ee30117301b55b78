package canary_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// TestKeysDistinguishQueries: a receiver may respond to each key once. A query that is sent again because its answer was lost
// has the same key; a gate that is polled, and another run, have other keys.
func TestKeysDistinguishQueries(t *testing.T) {
	w := newWorld()
	w.instantPods = true
	w.spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	w.spec.Analysis = &flaggerv1.CanaryAnalysis{
		StepWeight: 50, Webhooks: []flaggerv1.CanaryWebhook{{Type: flaggerv1.ConfirmRolloutHook, Name: "gate", URL: "http://gate"}},
	}
	settle := func() {
		t.Helper()
		if !w.settle(60, func(reconciliation) {}) {
			t.Fatal("does not become idle")
		}
	}
	key := func() string {
		t.Helper()
		settle()
		if len(w.pending) != 1 {
			t.Fatalf("queries are %v, want one", w.pending)
		}
		return w.pending[0].Request.(canary.HookQuery).Key
	}
	later := func() { w.now = w.now.Add(time.Minute) }
	settle()
	later()
	settle()
	w.target.roll(content{template: "v2"}, "", true)
	seen := map[string]string{}
	checkKey := func(query string) {
		t.Helper()
		current := key()
		if before := seen[current]; before != "" {
			t.Errorf("%s has the key of %s", query, before)
		}
		seen[current] = query
		w.restart()
		if again := key(); again != current {
			t.Errorf("%s, sent again after a restart, has another key", query)
		}
	}
	checkKey("the first query")
	w.answer("no")
	settle()
	later()
	checkKey("the next call of a polled gate")
	w.answer("no")
	settle()
	later()
	first := key()
	w.answer("no")
	settle()
	later()
	if second := key(); second == first {
		t.Error("a gate that is polled always has the same key")
	}
	w.target.roll(content{template: "v3"}, "", true)
	checkKey("the query for another revision")
}

// TestRunsOfOneSecondHaveDifferentIDs changes the strategy of a run three times within a second. An answer of one run must not
// count in another one, so the IDs differ.
func TestRunsOfOneSecondHaveDifferentIDs(t *testing.T) {
	w := newWorld()
	w.instantPods = true
	w.spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	weighted := &flaggerv1.CanaryAnalysis{Interval: "1h", StepWeight: 50}
	blueGreen := &flaggerv1.CanaryAnalysis{Interval: "1h", Iterations: 4}
	settle := func() { // there is nothing to do until the window is over
		t.Helper()
		w.settle(60, func(reconciliation) {})
	}
	w.spec.Analysis = weighted
	settle()
	w.now = w.now.Add(time.Minute)
	settle()
	w.target.roll(content{template: "v2"}, "", true)
	settle()
	runs := []string{w.status.Serin.Run}
	w.now = w.now.Add(time.Minute).Truncate(time.Second)
	for _, analysis := range []*flaggerv1.CanaryAnalysis{blueGreen, weighted, blueGreen} {
		w.spec.Analysis = analysis
		settle()
		w.now = w.now.Add(200 * time.Millisecond)
		if run := w.status.Serin.Run; slices.Contains(runs, run) || w.status.Phase != flaggerv1.CanaryPhaseProgressing {
			t.Errorf("run %s in phase %s follows the runs %v", run, w.status.Phase, runs)
		}
		runs = append(runs, w.status.Serin.Run)
	}
}

// TestEventKeyIdentifiesOneEvent: an event that is sent again has the same key; no other event does.
func TestEventKeyIdentifiesOneEvent(t *testing.T) {
	window := &flaggerv1.AnalysisWindow{Start: metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	later := &flaggerv1.AnalysisWindow{Start: metav1.NewMicroTime(window.Start.Add(time.Minute))}
	ordinal := 0
	key := func(uid, run string, window *flaggerv1.AnalysisWindow, url, message, phase string) string {
		status := flaggerv1.CanaryStatus{Serin: &flaggerv1.SerinStatus{Run: run, Window: window}}
		return canary.EventKey(uid, status, canary.Hook{CanaryWebhook: flaggerv1.CanaryWebhook{Type: flaggerv1.EventHook, Name: "audit", URL: url}, Ordinal: ordinal}, release.Event{Type: release.Normal, Message: message, Phase: phase})
	}
	first := key("uid", "run", window, "http://audit", "Advance", "Progressing")
	if again := key("uid", "run", window, "http://audit", "Advance", "Progressing"); again != first {
		t.Errorf("sent again with key %s, first with %s", again, first)
	}
	for what, other := range map[string]string{
		"release": key("other", "run", window, "http://audit", "Advance", "Progressing"), "run": key("uid", "other", window, "http://audit", "Advance", "Progressing"),
		"window": key("uid", "run", later, "http://audit", "Advance", "Progressing"), "receiver": key("uid", "run", window, "http://other", "Advance", "Progressing"),
		"message": key("uid", "run", window, "http://audit", "Halt", "Progressing"), "phase": key("uid", "run", window, "http://audit", "Advance", "Failed"),
	} {
		if other == first {
			t.Errorf("another %s has the same key", what)
		}
	}
	if ordinal = 1; key("uid", "run", window, "http://audit", "Advance", "Progressing") == first {
		t.Error("another webhook with the same name and URL has the same key")
	}
}
