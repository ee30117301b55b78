package cluster

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	var sets appsv1.ReplicaSetList
	if err := s.Client.List(ctx, &sets, client.InNamespace(object.Namespace)); err != nil {
		return explain.History{}, describeError("list ReplicaSets"+inNamespace(object.Namespace), err, explain.KindRollout)
	}
	var runs argov1.AnalysisRunList
	if err := s.Client.List(ctx, &runs, client.InNamespace(object.Namespace)); err != nil && !isUnknownKind(err) {
		return explain.History{}, describeError("list AnalysisRuns"+inNamespace(object.Namespace), err, explain.KindRollout)
	}
	return explain.RolloutHistory(object, controlledBy(object, sets.Items), controlledBy(object, runs.Items)), nil
}

// controlledBy returns the objects that a Rollout controls.
func controlledBy[T any, P interface {
	*T
	metav1.Object
}](owner metav1.Object, all []T,
) []T {
	var owned []T
	for i := range all {
		if metav1.IsControlledBy(P(&all[i]), owner) {
			owned = append(owned, all[i])
		}
	}
	return owned
}
