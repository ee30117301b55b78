package plugin

import (
	"context"
	"errors"
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// MetricCall is a call of a metric plugin.
type MetricCall struct {
	Plugin string
	Run    *argov1.AnalysisRun
	// Metric with the values of its arguments.
	Metric argov1.Metric
	// InProgress is the measurement to resume or terminate; nil: a new one begins.
	InProgress *argov1.Measurement
	Terminate  bool
}

// CallMetric starts, resumes or terminates a measurement. The plugin decides about its phase. The error is a RefusedError or a
// CallError.
func (h *Host) CallMetric(ctx context.Context, c MetricCall) (argov1.Measurement, error) {
	method := "Run"
	var args any = metricRunArgs{wireRun(c.Run), c.Metric}
	if c.InProgress != nil {
		method, args = "Resume", metricResumeArgs{wireRun(c.Run), c.Metric, *c.InProgress}
		if c.Terminate {
			method = "Terminate"
		}
	}
	var reply argov1.Measurement
	err := h.call(ctx, pluginKey{Metric, c.Plugin}, c.Run.Namespace, method, args, &reply)
	if err == nil {
		err = checkMetadata(method, reply.Metadata)
	}
	return reply, err
}

// maxMetadataEntries and maxMetadataKeyBytes limit the metadata that a plugin adds to a status.
const (
	maxMetadataEntries  = 32
	maxMetadataKeyBytes = 256
)

// checkMetadata returns the reason why metadata is not stored.
func checkMetadata(method string, metadata map[string]string) error {
	if len(metadata) > maxMetadataEntries {
		return &CallError{method, fmt.Errorf("the returned metadata has %d entries: a plugin must return at most %d", len(metadata), maxMetadataEntries)}
	}
	for key := range metadata {
		if len(key) > maxMetadataKeyBytes {
			return &CallError{method, fmt.Errorf("a key of the returned metadata has %d bytes: a plugin must return at most %d", len(key), maxMetadataKeyBytes)}
		}
	}
	return nil
}

// MetricMetadata returns what the plugin adds to the result of a metric.
func (h *Host) MetricMetadata(ctx context.Context, namespace, name string, metric argov1.Metric) (map[string]string, error) {
	var reply map[string]string
	const method = "GetMetadata"
	err := h.call(ctx, pluginKey{Metric, name}, namespace, method, metricMetadataArgs{metric}, &reply)
	if err == nil {
		err = checkMetadata(method, reply)
	}
	return reply, err
}

// CollectGarbage lets the plugin delete what belongs to all but the newest measurements of a metric.
func (h *Host) CollectGarbage(ctx context.Context, name string, run *argov1.AnalysisRun, metric argov1.Metric, limit int) error {
	var reply rpcError
	const method = "GarbageCollect"
	err := h.call(ctx, pluginKey{Metric, name}, run.Namespace, method, metricGarbageCollectArgs{wireRun(run), metric, limit}, &reply)
	if err == nil && reply.ErrorString != "" {
		return &CallError{method, errors.New(release.Truncate(reply.ErrorString, maxTextBytes))}
	}
	return err
}

// wireRun returns an AnalysisRun without what only the API server needs.
func wireRun(run *argov1.AnalysisRun) *argov1.AnalysisRun {
	out := run.DeepCopy()
	out.ManagedFields = nil
	return out
}
