package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
)

// replicaSetClaimer claims ReplicaSets for Rollouts.
type replicaSetClaimer struct {
	client client.Client
	// apiReader reads from the API server.
	apiReader client.Reader
}

// claimReplicaSets returns the ReplicaSets of a Rollout. Like the controller of Deployments, it adopts ReplicaSets that
// match the selector and have no controller, and releases its own that no longer match.
func (c replicaSetClaimer) claimReplicaSets(ctx context.Context, s *observation) ([]*appsv1.ReplicaSet, error) {
	var own, orphans appsv1.ReplicaSetList
	if err := c.client.List(ctx, &own, OwnedBy(s.object)...); err != nil {
		return nil, fmt.Errorf("list the ReplicaSets of Rollout %s: %w", s.key(), err)
	}
	selector, err := metav1.LabelSelectorAsSelector(s.spec.Selector)
	hasSelector := err == nil && s.spec.Selector != nil && !selector.Empty()
	var sets []*appsv1.ReplicaSet
	for i := range own.Items {
		rs := &own.Items[i]
		if hasSelector && !selector.Matches(labels.Set(rs.Labels)) && rs.DeletionTimestamp == nil {
			if err := c.removeOwnerReference(ctx, s, rs); err != nil {
				return nil, err
			}
			continue
		}
		sets = append(sets, rs)
	}
	if !hasSelector {
		return sets, nil
	}
	err = c.client.List(ctx, &orphans, client.InNamespace(s.object.Namespace), client.MatchingFields{byOwner: noOwner},
		client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the ReplicaSets without an owner that Rollout %s selects: %w", s.key(), err)
	}
	for i := range orphans.Items {
		if orphans.Items[i].DeletionTimestamp != nil {
			continue
		}
		rs, err := c.adopt(ctx, s, &orphans.Items[i])
		if err != nil {
			return nil, err
		}
		sets = append(sets, rs)
	}
	return sets, nil
}

// adopt makes the Rollout the controller of a ReplicaSet. It reads the Rollout from the API server, because a cache may have
// one that was deleted, or that was replaced by another one of the same name.
func (c replicaSetClaimer) adopt(ctx context.Context, s *observation, orphan *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	live := &argov1.Rollout{}
	if err := c.apiReader.Get(ctx, s.key(), live); err != nil {
		return nil, fmt.Errorf("verify that Rollout %s still exists: %w", s.key(), err)
	}
	if live.UID != s.object.UID || live.DeletionTimestamp != nil {
		return nil, fmt.Errorf("adopt ReplicaSet %s.%s: %w", orphan.Name, orphan.Namespace, reconciler.ErrObjectChanged)
	}
	adopted := orphan.DeepCopy()
	adopted.OwnerReferences = append(adopted.OwnerReferences, *metav1.NewControllerRef(s.object, argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind)))
	_, err := writeChanges(ctx, c.client, orphan, adopted)
	return adopted, err
}

// removeOwnerReference removes the owner reference to the Rollout from a ReplicaSet.
func (c replicaSetClaimer) removeOwnerReference(ctx context.Context, s *observation, rs *appsv1.ReplicaSet) error {
	released := rs.DeepCopy()
	released.OwnerReferences = nil
	for _, owner := range rs.OwnerReferences {
		if owner.UID != s.object.UID {
			released.OwnerReferences = append(released.OwnerReferences, owner)
		}
	}
	_, err := writeChanges(ctx, c.client, rs, released)
	return err
}
