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

// query sends the query of a measurement and has judge rate the result.
func query(ctx context.Context, m metric.Measurement, judge func(value any) (argov1.AnalysisPhase, error)) (analysis.Answer, error) {
	result, err := m.Provider.QueryRaw(ctx, m.Query)
	switch {
	case errors.Is(err, metric.ErrNoData) && m.NoDataError != nil:
		return analysis.Answer{Metadata: result.Metadata}, m.NoDataError
	case errors.Is(err, metric.ErrNoData):
		result.Value = m.NoData
	case err != nil && m.ConvertError != nil:
		return analysis.Answer{}, m.ConvertError(err)
	case err != nil:
		return analysis.Answer{}, err
	}
	format := m.Format
	if format == nil {
		format = metric.FormatValue
	}
	answer := analysis.Answer{Text: format(result.Value), Metadata: result.Metadata}
	answer.Judged, err = judge(result.Value)
	return answer, err
}

// executionKey is the metadata in which the execution of an asynchronous measurement is recorded.
const executionKey = "canaryExecutionId"

// pollInterval is the time between two requests for the result of an asynchronous measurement.
const pollInterval = 15 * time.Second

// poll starts an asynchronous measurement, or requests its result.
func poll(ctx context.Context, m metric.Measurement, q analysis.Question, now func() time.Time) (analysis.Answer, error) {
	switch {
	case q.Terminate:
		return analysis.Answer{Judged: argov1.AnalysisPhaseSuccessful}, nil
	case q.Under == nil:
		executionID, err := m.Async.Start(ctx, m.Query)
		if err != nil {
			return analysis.Answer{}, err
		}
		return analysis.Answer{
			Judged: argov1.AnalysisPhaseRunning, Metadata: map[string]string{executionKey: executionID}, Resume: now().Add(pollInterval),
		}, nil
	}
	result, err := m.Async.Resume(ctx, q.Under.Metadata[executionKey])
	if errors.Is(err, metric.ErrUnfinished) {
		return analysis.Answer{Judged: argov1.AnalysisPhaseRunning, Resume: now().Add(pollInterval)}, nil
	}
	if err != nil {
		return analysis.Answer{}, err
	}
	score, err := metric.Single(result)
	if err != nil {
		return analysis.Answer{}, err
	}
	return analysis.Answer{Judged: m.Judge(score), Text: fmt.Sprint(score)}, nil
}
