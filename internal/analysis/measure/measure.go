// Package measure takes the measurements of AnalysisRuns: it reads Secrets, queries the services that metrics name, and
// runs Jobs.
//
// It knows conditions, Secrets and Jobs. It must not know any specific metrics service, which are entries of
// metric.Registry, when something is measured, or the consequence of the result.
package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/condition"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// measurementTimeout is the timeout of one measurement. Each call to a service has a shorter one.
const measurementTimeout = 2 * time.Minute

// Measurer performs measurements, concurrently with reconciliations.
type Measurer struct {
	// Client reads runs from caches.
	Client client.Reader
	// Secrets reads Secrets from the API server.
	Secrets client.Reader
	Clock   clock.PassiveClock
	// Services are the metrics services that metrics may refer to.
	Services *metric.Registry
	// Restricted sends requests to addresses that users specify, Unrestricted to those that the administrator
	// specifies.
	Restricted, Unrestricted *outbound.Client
	// Namespace of the controller, which contains the Secrets of the services.
	Namespace string
	// Environment contains the environment variables of the process; some services may be configured by them.
	Environment func(string) string
	// Jobs runs the measurements of the provider job.
	Jobs *Jobs
	// Plugins runs the metric plugins; nil: they are off.
	Plugins   MetricPlugins
	Telemetry *telemetry.Metrics
}

// Measure performs the measurement that a query requests. The detail of its answer is an analysis.MeasurementResult.
func (m *Measurer) Measure(ctx context.Context, key queryrunner.Key, query release.Query) release.Answer {
	began := m.Clock.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, measurementTimeout, fmt.Errorf("measurement timed out after %s", measurementTimeout))
	defer cancel()
	request, ok := query.Request.(analysis.MeasurementRequest)
	if !ok {
		return release.Answer{Outcome: release.Broken, Text: fmt.Sprintf("unknown request type %T", query.Request)}
	}
	run := &argov1.AnalysisRun{}
	answer := release.Answer{Outcome: release.Measured}
	var detail analysis.MeasurementResult
	hidden := &secretValues{}
	err := m.Client.Get(ctx, key.NamespacedName, run)
	switch {
	case err == nil:
		detail, err = m.performMeasurement(ctx, run, request, hidden)
	case request.InProgress != nil && JobName(*request.InProgress) != "" && !apierrors.IsNotFound(err):
		detail, err = m.Jobs.stillRunning(*request.InProgress, err.Error()), nil
	}
	if err != nil {
		answer.Outcome = metric.OutcomeOf(err)
		detail.Phase, detail.Message = argov1.AnalysisPhaseError, err.Error()
	}
	answer.Detail = redactResult(detail, hidden)
	m.Telemetry.RecordQueryDuration(telemetry.MetricQuery, answer.Outcome, m.Clock.Since(began))
	return answer
}

// MeasureOnce measures a metric, by its name with arguments resolved, of a run that need not exist in the cluster. The result is a
// message if the outcome is not Measured. Only metrics whose measurement ends with its request are supported.
func (m *Measurer) MeasureOnce(ctx context.Context, run *argov1.AnalysisRun, name string) (analysis.MeasurementResult, release.Outcome) {
	hidden := &secretValues{}
	result, err := m.performMeasurement(ctx, run, analysis.MeasurementRequest{Metric: argov1.Metric{Name: name}}, hidden)
	if err != nil {
		result.Message = err.Error()
		return redactResult(result, hidden), metric.OutcomeOf(err)
	}
	return redactResult(result, hidden), release.Measured
}

// redactResult returns a result without secrets.
func redactResult(a analysis.MeasurementResult, hidden *secretValues) analysis.MeasurementResult {
	a.Message, a.Value = release.Truncate(hidden.redact(a.Message), analysis.MaxTextBytes), release.Truncate(hidden.redact(a.Value), analysis.MaxTextBytes)
	for _, metadata := range []map[string]string{a.Metadata, a.MetricMetadata} {
		for key, value := range metadata {
			metadata[key] = release.Truncate(hidden.redact(value), analysis.MaxTextBytes)
		}
	}
	return a
}

// performMeasurement performs one measurement. It adds the values of Secrets to hidden, also if it fails.
func (m *Measurer) performMeasurement(ctx context.Context, run *argov1.AnalysisRun, q analysis.MeasurementRequest, hidden *secretValues) (analysis.MeasurementResult, error) {
	ctx, end := metric.LimitAnalysis(ctx, run.Namespace)
	defer end()
	i := metricIndex(run, q.Metric.Name)
	if i < 0 {
		return analysis.MeasurementResult{}, fmt.Errorf("metric %s no longer exists in the AnalysisRun", q.Metric.Name)
	}
	if run.Spec.Metrics[i].Provider.Job != nil && q.InProgress != nil { // a Secret that cannot be read now must not end it
		return m.Jobs.continueMeasurement(ctx, run, q)
	}
	resolved, err := analysis.ResolveMetric(run.Spec.Metrics[i], run.Spec.Args, func(ref argov1.SecretKeyRef) (string, error) {
		value, err := m.readSecretKey(ctx, run.Namespace, ref)
		hidden.add(value)
		return value, err
	})
	if err != nil {
		return analysis.MeasurementResult{}, err
	}
	resolved.Name = q.Metric.Name // without secrets: it becomes a part of objects
	if resolved.Provider.Job != nil {
		return m.Jobs.startJob(ctx, run, resolved, q.Number)
	}
	if len(resolved.Provider.Plugin) > 0 {
		return m.callPlugin(ctx, run, resolved, q)
	}
	measurement, err := m.Services.NewMeasurement(ctx, m.newServiceRequest(run, resolved, hidden))
	if err != nil {
		return analysis.MeasurementResult{}, err
	}
	if measurement.Async != nil {
		return pollAsync(ctx, measurement, q, m.Clock.Now)
	}
	if q.InProgress != nil { // a user wrote it into the status: measurements of this provider end with their request
		if q.Terminate {
			return analysis.MeasurementResult{Phase: argov1.AnalysisPhaseSuccessful}, nil
		}
		return analysis.MeasurementResult{}, errors.New("the provider does not support measurements in progress")
	}
	return queryOnce(ctx, measurement, func(value any) (argov1.AnalysisPhase, error) {
		if err := metric.AcquireSlot(ctx); err != nil { // it has one, unless there was no response to decode
			return "", err
		}
		return condition.EvaluatePhase(ctx, value, resolved.SuccessCondition, resolved.FailureCondition)
	})
}

// newServiceRequest returns a metric with everything that a service may use to query it.
func (m *Measurer) newServiceRequest(run *argov1.AnalysisRun, resolved argov1.Metric, hidden *secretValues) metric.AnalysisRequest {
	now := m.Clock.Now()
	return metric.AnalysisRequest{
		Run: run, Metric: resolved, Now: now,
		Restricted: m.Restricted, Unrestricted: m.Unrestricted,
		ControllerNamespace: m.Namespace, Credentials: m.readCredentials, Hide: hidden.hide, Environment: m.Environment,
		EvaluateTime: func(ctx context.Context, expression string) (time.Time, error) {
			if err := metric.AcquireSlot(ctx); err != nil {
				return time.Time{}, err
			}
			defer metric.ReleaseSlot(ctx)
			return condition.EvaluateTime(ctx, expression, now)
		},
	}
}

// metricIndex returns the index of the metric that has this name after its arguments are resolved; -1: there is none.
func metricIndex(run *argov1.AnalysisRun, name string) int {
	for i, m := range run.Spec.Metrics {
		if analysis.ResolveMetricName(m.Name, run.Spec.Args) == name {
			return i
		}
	}
	return -1
}
