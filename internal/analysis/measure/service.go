package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/metric"
)

// queryOnce sends the query of a measurement and evaluates the result with judge.
func queryOnce(ctx context.Context, m metric.Measurement, evaluate func(value any) (argov1.AnalysisPhase, error)) (analysis.MeasurementResult, error) {
	result, err := m.Provider.QueryRaw(ctx, m.Query)
	switch {
	case errors.Is(err, metric.ErrNoData) && m.NoDataError != nil:
		return analysis.MeasurementResult{Metadata: result.Metadata}, m.NoDataError
	case errors.Is(err, metric.ErrNoData):
		result.Value = m.NoData
	case err != nil && m.ConvertError != nil:
		return analysis.MeasurementResult{}, m.ConvertError(err)
	case err != nil:
		return analysis.MeasurementResult{}, err
	}
	format := m.Format
	if format == nil {
		format = metric.FormatValue
	}
	answer := analysis.MeasurementResult{Value: format(result.Value), Metadata: result.Metadata}
	answer.Phase, err = evaluate(result.Value)
	return answer, err
}

// executionKey is the key of the metadata that contains the execution of an asynchronous measurement.
const executionKey = "canaryExecutionId"

// pollInterval is the time between two requests for the result of an asynchronous measurement.
const pollInterval = 15 * time.Second

// pollAsync starts an asynchronous measurement, or requests its result.
func pollAsync(ctx context.Context, m metric.Measurement, q analysis.MeasurementRequest, now func() time.Time) (analysis.MeasurementResult, error) {
	switch {
	case q.Terminate:
		return analysis.MeasurementResult{Phase: argov1.AnalysisPhaseSuccessful}, nil
	case q.InProgress == nil:
		executionID, err := m.Async.Start(ctx, m.Query)
		if err != nil {
			return analysis.MeasurementResult{}, err
		}
		return analysis.MeasurementResult{
			Phase: argov1.AnalysisPhaseRunning, Metadata: map[string]string{executionKey: executionID}, ResumeAt: now().Add(pollInterval),
		}, nil
	}
	result, err := m.Async.Resume(ctx, q.InProgress.Metadata[executionKey])
	if errors.Is(err, metric.ErrUnfinished) {
		return analysis.MeasurementResult{Phase: argov1.AnalysisPhaseRunning, ResumeAt: now().Add(pollInterval)}, nil
	}
	if err != nil {
		return analysis.MeasurementResult{}, err
	}
	score, err := metric.Single(result)
	if err != nil {
		return analysis.MeasurementResult{}, err
	}
	return analysis.MeasurementResult{Phase: m.Judge(score), Value: fmt.Sprint(score)}, nil
}
