package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin"
	"github.com/serin-dev/serin/test/sim"
)

// MetricPlugins is the class of releases whose metrics a plugin measures.
const MetricPlugins sim.FaultClass = "metric-plugin"

// metricPluginName is the plugin of all these metrics.
const metricPluginName = "sim/metric"

// useMetricPlugin makes the templates of a release measure with the plugin, which decides about each phase.
func (r *Release) useMetricPlugin(s *sim.Stream) {
	templates := sim.Pick(s, []string{shortTemplate}, []string{endlessTemplate}, []string{shortTemplate, endlessTemplate})
	for _, template := range templates {
		r.measureWith(template, argov1.MetricProvider{Plugin: map[string]json.RawMessage{metricPluginName: json.RawMessage(`{"size":1}`)}})
	}
	r.metricPlugin = true
}

// metricPluginReplied reports what a call of a metric plugin returned.
type metricPluginReplied struct {
	Instance, QueryID string
	Reply             argov1.Measurement
	Err               error
}

// metricPlugins is the plugin in one process. It implements measure.MetricPlugins, so that the production code interprets its
// replies.
type metricPlugins struct {
	*externalServices

	instance *sim.Instance
}

var errPluginCrashed = errors.New("call error: connection is shut down")

// CallMetric implements measure.MetricPlugins. It takes simulated time.
func (m *metricPlugins) CallMetric(ctx context.Context, call plugin.MetricCall) (argov1.Measurement, error) {
	c, ok := ctx.Value(measurementCallKey{}).(measurementCall)
	if !ok {
		return argov1.Measurement{}, errors.New("a call without a measurement")
	}
	after, reply, err := m.drawReply(c, call)
	m.World.Sleep(after)
	m.World.Publish(metricPluginReplied{Instance: m.instance.Name, QueryID: c.query.Query.ID, Reply: reply, Err: err})
	return reply, err
}

// drawReply returns the reply of the plugin, and the delay after which it arrives. The faults are those of all metrics services:
// the plugin hangs, crashes, returns an error or a phase that does not exist, replies late, or measures another version.
func (m *metricPlugins) drawReply(c measurementCall, call plugin.MetricCall) (time.Duration, argov1.Measurement, error) {
	read := m.drawReading(c.query)
	s := m.Services.AnswerStream("plugin/" + c.query.Key.Name + "/" + c.query.Query.ID)
	running, later := s.Chance(0.4), s.Between(time.Second, 40*time.Second)
	reply := argov1.Measurement{StartedAt: new(metav1.NewTime(m.instance.Clock.Now())), Value: fmt.Sprint(read.value)}
	if call.InProgress != nil {
		reply.StartedAt = call.InProgress.StartedAt
	}
	switch {
	case c.scheduled(sim.LoseAnswer):
		return read.after, argov1.Measurement{}, errPluginCrashed
	case read.failure != "":
		return read.after, argov1.Measurement{}, fmt.Errorf("%w: %s", errPluginCrashed, read.failure)
	case len(read.value) == 0:
		reply.Phase, reply.Message = argov1.AnalysisPhaseError, "no data"
	case math.IsNaN(read.value[0]):
		reply.Phase = "Purple"
	case running && call.InProgress == nil:
		reply.Phase, reply.ResumeAt = argov1.AnalysisPhaseRunning, new(metav1.NewTime(m.instance.Clock.Now().Add(read.after+later)))
	case read.value[0] < 5:
		reply.Phase = argov1.AnalysisPhaseSuccessful
	default:
		reply.Phase = argov1.AnalysisPhaseFailed
	}
	return read.after, reply, nil
}

// MetricMetadata implements measure.MetricPlugins.
func (m *metricPlugins) MetricMetadata(context.Context, string, string, argov1.Metric) (map[string]string, error) {
	return map[string]string{"measured-by": metricPluginName}, nil
}

// CollectGarbage implements measure.MetricPlugins.
func (m *metricPlugins) CollectGarbage(context.Context, string, *argov1.AnalysisRun, argov1.Metric, int) error {
	return nil
}
