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

// service is whom a metric asks, and what.
type service struct {
	finder metric.Finder
	query  metric.Query
	// none is what an answer without data means: the value that conditions judge, or an error with the text of the API.
	none    any
	noneErr error
	// text shows a value.
	text func(any) string
	// broken has the words of the API for an answer that is none; nil: as they are.
	broken func(error) error

	// slow is set instead of finder where a measurement takes longer than a call.
	slow  metric.Slow
	judge func(score float64) argov1.AnalysisPhase
	now   func() time.Time
}

// ask asks, and has judge judge what was answered.
func (s service) ask(ctx context.Context, judge func(value any) (argov1.AnalysisPhase, error)) (analysis.Answer, error) {
	found, err := s.finder.Find(ctx, s.query)
	switch {
	case errors.Is(err, metric.ErrNoData) && s.noneErr != nil:
		return analysis.Answer{Metadata: found.Metadata}, s.noneErr
	case errors.Is(err, metric.ErrNoData):
		found.Value = s.none
	case err != nil && s.broken != nil:
		return analysis.Answer{}, s.broken(err)
	case err != nil:
		return analysis.Answer{}, err
	}
	answer := analysis.Answer{Text: s.text(found.Value), Metadata: found.Metadata}
	answer.Judged, err = judge(found.Value)
	return answer, err
}

// ticketKey is the name under which the work of a slow service is remembered.
const ticketKey = "canaryExecutionId"

// patience is the pause between two looks at the work of a slow service.
const patience = 15 * time.Second

// await begins work, or looks how far it is.
func (s service) await(ctx context.Context, q analysis.Question) (analysis.Answer, error) {
	switch {
	case q.Terminate:
		return analysis.Answer{Judged: argov1.AnalysisPhaseSuccessful}, nil
	case q.Under == nil:
		ticket, err := s.slow.Begin(ctx, s.query)
		if err != nil {
			return analysis.Answer{}, err
		}
		return analysis.Answer{
			Judged: argov1.AnalysisPhaseRunning, Metadata: map[string]string{ticketKey: ticket}, Resume: s.now().Add(patience),
		}, nil
	}
	found, err := s.slow.Resume(ctx, q.Under.Metadata[ticketKey])
	if errors.Is(err, metric.ErrUnfinished) {
		return analysis.Answer{Judged: argov1.AnalysisPhaseRunning, Resume: s.now().Add(patience)}, nil
	}
	if err != nil {
		return analysis.Answer{}, err
	}
	score, err := metric.Single(found)
	if err != nil {
		return analysis.Answer{}, err
	}
	return analysis.Answer{Judged: s.judge(score), Text: fmt.Sprint(score)}, nil
}
