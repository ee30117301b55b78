package measure

import (
	"context"
	"errors"
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/plugin"
)

// errPluginsOff is the error of a measurement by a plugin while plugins are off.
var errPluginsOff = errors.New("plugins are off: start the controller with --allow-plugins, see docs/plugins.md")

// MetricPlugins makes the calls of metric plugins. plugin.Host implements it, and the simulator with plugins that fail.
type MetricPlugins interface {
	CallMetric(ctx context.Context, call plugin.MetricCall) (argov1.Measurement, error)
	CollectGarbage(ctx context.Context, name string, run *argov1.AnalysisRun, metric argov1.Metric, limit int) error
	MetricMetadata(ctx context.Context, namespace, name string, metric argov1.Metric) (map[string]string, error)
}

// callPlugin lets the plugin of a metric start, resume or terminate a measurement. The plugin decides about its phase.
func (m *Measurer) callPlugin(ctx context.Context, run *argov1.AnalysisRun, resolved argov1.Metric, q analysis.MeasurementRequest) (analysis.MeasurementResult, error) {
	name := ""
	for name = range resolved.Provider.Plugin { // validated: there is one
		break
	}
	if m.Plugins == nil {
		return analysis.MeasurementResult{}, fmt.Errorf("metric plugin %s: %w", name, errPluginsOff)
	}
	measured, err := m.Plugins.CallMetric(ctx, plugin.MetricCall{Plugin: name, Run: run, Metric: resolved, InProgress: q.InProgress, Terminate: q.Terminate})
	if err != nil {
		if _, refused := errors.AsType[*plugin.RefusedError](err); refused {
			err = fmt.Errorf("metric plugin %w", err)
		}
		return analysis.MeasurementResult{}, err
	}
	result := analysis.MeasurementResult{Phase: measured.Phase, Message: measured.Message, Value: measured.Value, Metadata: measured.Metadata}
	switch {
	case measured.Phase == argov1.AnalysisPhaseError:
		result.Message = fmt.Sprintf("failed to %s via plugin: %s", operationOf(q), measured.Message)
	case measured.Phase.Completed():
	case q.Terminate:
		return result, fmt.Errorf("metric plugin %s did not terminate the measurement: it returned the phase %q", name, measured.Phase)
	case measured.Phase != argov1.AnalysisPhaseRunning && measured.Phase != argov1.AnalysisPhasePending:
		return result, fmt.Errorf("metric plugin %s returned the phase %q, which is not valid", name, measured.Phase)
	default:
		result.Phase = argov1.AnalysisPhaseRunning
		if measured.ResumeAt != nil {
			result.ResumeAt = measured.ResumeAt.Time
		}
	}
	if q.InProgress == nil {
		result.MetricMetadata = m.accompanyMeasurement(ctx, run, name, resolved)
	}
	return result, nil
}

func operationOf(q analysis.MeasurementRequest) string {
	switch {
	case q.InProgress == nil:
		return "run"
	case q.Terminate:
		return "terminate"
	default:
		return "resume"
	}
}

// accompanyMeasurement makes the calls that belong to a new measurement: it returns the metadata of the metric, and lets the
// plugin delete what belongs to measurements that the status no longer contains. A failure of these calls does not affect the
// measurement.
func (m *Measurer) accompanyMeasurement(ctx context.Context, run *argov1.AnalysisRun, name string, resolved argov1.Metric) map[string]string {
	limit := analysis.MeasurementLimit(run.Spec, resolved.Name)
	for _, result := range run.Status.MetricResults {
		if result.Name == resolved.Name && int(result.Count+result.Error) >= limit { // the status may contain fewer: its size is limited
			_ = m.Plugins.CollectGarbage(ctx, name, run, resolved, limit)
		}
	}
	metadata, err := m.Plugins.MetricMetadata(ctx, run.Namespace, name, resolved)
	if err != nil {
		return nil
	}
	return metadata
}
