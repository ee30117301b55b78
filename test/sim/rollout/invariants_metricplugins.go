package rollout

import (
	"maps"
	"slices"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/test/sim/actors"
)

// pluginMeasurements is I44. It compares each measurement by a plugin with the reply of the plugin; I4 covers how it counts.
type pluginMeasurements struct {
	*ledger

	// replies are the last replies, by process and query. resumeAt is when each measurement may be resumed, by the process that
	// received the reply: a reply that arrives after a handover does not reach the status.
	replies  map[string]metricPluginReplied
	resumeAt map[measurement]map[string]time.Time
}

func newPluginMeasurements(l *ledger) *pluginMeasurements {
	return &pluginMeasurements{l, map[string]metricPluginReplied{}, map[measurement]map[string]time.Time{}}
}

// check is called for each event.
func (c *pluginMeasurements) check(event any) {
	switch h := event.(type) {
	case metricPluginReplied:
		c.replies[h.Instance+"/"+h.QueryID] = h
	case actors.QueryAnswered:
		if len(requestOf(h.QuerySent).Metric.Provider.Plugin) > 0 {
			c.checkResult(h)
		}
	case actors.QuerySent:
		request := requestOf(h)
		requested := slices.Collect(maps.Values(c.resumeAt[measurementOf(h)]))
		if len(requested) == 0 || len(request.Metric.Provider.Plugin) == 0 || request.InProgress == nil || request.Terminate || c.Clocks.Changed {
			return
		}
		earliest := slices.MinFunc(requested, time.Time.Compare).Add(-time.Second) // times in a status are whole seconds
		if c.Now().Before(earliest) {
			c.Violate("I44", h.Key.Name, "%s is resumed at %s, and the plugin requested %s", measurementOf(h), c.Now(), earliest)
		}
	}
}

// checkResult checks the result of a measurement. Without a reply, for example because the AnalysisRun is gone, it is an error.
func (c *pluginMeasurements) checkResult(h actors.QueryAnswered) {
	key := h.Instance + "/" + h.Query.ID
	replied, called := c.replies[key]
	delete(c.replies, key)
	request, want := requestOf(h.QuerySent), argov1.AnalysisPhaseError
	if called && replied.Err == nil {
		want = expectedPluginPhase(replied.Reply.Phase, request)
	}
	if got := phaseOf(h); got != want {
		c.Violate("I44", h.Key.Name, "%s is %q instead of %q: the plugin returned %q, %v", measurementOf(h.QuerySent), got, want, replied.Reply.Phase, replied.Err)
	}
	measured := measurementOf(h.QuerySent)
	delete(c.resumeAt[measured], h.Instance)
	if want == argov1.AnalysisPhaseRunning && replied.Reply.ResumeAt != nil {
		if c.resumeAt[measured] == nil {
			c.resumeAt[measured] = map[string]time.Time{}
		}
		c.resumeAt[measured][h.Instance] = replied.Reply.ResumeAt.Time
	}
}

// expectedPluginPhase returns the phase of a measurement for a phase that the plugin returned.
func expectedPluginPhase(phase argov1.AnalysisPhase, request analysis.MeasurementRequest) argov1.AnalysisPhase {
	switch phase {
	case argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseInconclusive:
		return phase
	case argov1.AnalysisPhaseRunning, argov1.AnalysisPhasePending:
		if !request.Terminate {
			return argov1.AnalysisPhaseRunning
		}
	default: // an error, or a phase that does not exist
	}
	return argov1.AnalysisPhaseError
}
