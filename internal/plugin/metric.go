package plugin

import (
	"context"
	"errors"
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
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

// errMeasurement is the error of a call that returns a measurement with the phase Error, for the metrics: the measurement is a result
// with a message of its own.
var errMeasurement = errors.New("the phase of the measurement is Error")

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
	err := h.call(ctx, pluginKey{Metric, c.Plugin}, c.Run.Namespace, method, args, &reply, func() error {
		err := checkMetadata(reply.Metadata)
		if err == nil && reply.Phase == argov1.AnalysisPhaseError {
			err = errMeasurement
		}
		return err
	})
	if err != nil && !errors.Is(err, errMeasurement) {
		return argov1.Measurement{}, err
	}
	return reply, nil
}

// maxMetadataEntries and maxMetadataKeyBytes limit the metadata that a plugin adds to a status.
const (
	maxMetadataEntries  = 32
	maxMetadataKeyBytes = 256
)

// checkMetadata returns the reason why metadata is not stored.
func checkMetadata(metadata map[string]string) error {
	if len(metadata) > maxMetadataEntries {
		return fmt.Errorf("the returned metadata has %d entries: a plugin must return at most %d", len(metadata), maxMetadataEntries)
	}
	for key := range metadata {
		if len(key) > maxMetadataKeyBytes {
			return fmt.Errorf("a key of the returned metadata has %d bytes: a plugin must return at most %d", len(key), maxMetadataKeyBytes)
		}
	}
	return nil
}

// MetricMetadata returns what the plugin adds to the result of a metric.
func (h *Host) MetricMetadata(ctx context.Context, namespace, name string, metric argov1.Metric) (map[string]string, error) {
	var reply map[string]string
	err := h.call(ctx, pluginKey{Metric, name}, namespace, "GetMetadata", metricMetadataArgs{metric}, &reply, func() error { return checkMetadata(reply) })
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// CollectGarbage lets the plugin delete what belongs to all but the newest measurements of a metric.
func (h *Host) CollectGarbage(ctx context.Context, name string, run *argov1.AnalysisRun, metric argov1.Metric, limit int) error {
	var reply rpcError
	args := metricGarbageCollectArgs{wireRun(run), metric, limit}
	return h.call(ctx, pluginKey{Metric, name}, run.Namespace, "GarbageCollect", args, &reply, func() error { return reply.asError() })
}

// wireRun returns an AnalysisRun without what only the API server needs.
func wireRun(run *argov1.AnalysisRun) *argov1.AnalysisRun {
	out := run.DeepCopy()
	out.ManagedFields = nil
	return out
}
