package reconciler

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/release"
)

func TestEventsOfOneDecisionAreJoinedByReason(t *testing.T) {
	event := func(kind release.EventType, reason, message string) release.Event {
		return release.Event{Type: kind, Reason: reason, Message: message}
	}
	got := joinEvents([]release.Event{
		event(release.Normal, "MetricSuccessful", "errors"), event(release.Warning, "MetricFailed", "latency"), event(release.Normal, "MetricSuccessful", "load"),
		event(release.Warning, "MetricFailed", "memory"), event(release.Normal, "AnalysisRunFailed", "done"),
	})
	want := []release.Event{
		event(release.Normal, "MetricSuccessful", "errors; load"), event(release.Warning, "MetricFailed", "latency"), event(release.Warning, "MetricFailed", "memory"),
		event(release.Normal, "AnalysisRunFailed", "done"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
