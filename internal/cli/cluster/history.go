package cluster

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// History returns the past releases of a Canary or a Rollout. Errors: ErrNotFound, ErrAmbiguous, ErrUnreachable.
func (s *Session) History(ctx context.Context, namespace string, name Name) (explain.History, error) {
	object, err := s.getObject(ctx, namespace, name)
	if err != nil {
		return explain.History{}, err
	}
	return s.historyOf(ctx, object)
}

// HistoryOf is History for a release that was observed.
func (s *Session) HistoryOf(ctx context.Context, observed explain.Observation) (explain.History, error) {
	return s.historyOf(ctx, objectOf(observed))
}

func (s *Session) historyOf(ctx context.Context, object client.Object) (explain.History, error) {
	switch object := object.(type) {
	case *argov1.Rollout:
		return s.rolloutHistory(ctx, object)
	case *flaggerv1.Canary:
		return explain.CanaryHistory(object), nil
	default:
		return explain.History{}, nil // there is no other kind
	}
}

func (s *Session) rolloutHistory(ctx context.Context, object *argov1.Rollout) (explain.History, error) {
	reader, err := newCachedReader(ctx, s.Client)
	if err != nil {
		return explain.History{}, err
	}
	sets, err := replicaSetsOf(ctx, reader, object)
	if err != nil {
		return explain.History{}, describeError("list ReplicaSets"+inNamespace(object.Namespace), err, explain.KindRollout)
	}
	runs, err := runsOf(ctx, reader, object)
	if err != nil && !isUnknownKind(err) {
		return explain.History{}, describeError("list AnalysisRuns"+inNamespace(object.Namespace), err, explain.KindRollout)
	}
	return explain.RolloutHistory(object, sets, runs), nil
}
