package controller

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
)

// observeReplicaSets claims the ReplicaSets of the Rollout, and finds the one of its template.
func (o *Observer) observeReplicaSets(ctx context.Context, s *observation) error {
	sets, err := replicaSetClaimer{o.Client, o.APIReader}.claimReplicaSets(ctx, s)
	if err != nil {
		return err
	}
	replicaset.SortByAge(sets)
	for _, rs := range sets {
		s.replicaSets[rs.Name] = rs
		s.snapshot.ReplicaSets = append(s.snapshot.ReplicaSets, replicaset.Observe(rs))
	}
	if s.spec.Selector != nil {
		s.snapshot.Selector = metav1.FormatLabelSelector(s.spec.Selector)
	}
	if c := s.spec.Strategy.Canary; c != nil {
		if s.snapshot.StepHash, err = rollout.StepHash(c.Steps); err != nil {
			return fmt.Errorf("hash the steps of Rollout %s: %w", s.key(), err)
		}
	}
	workload := ""
	if s.snapshot.Workload != nil {
		workload = s.snapshot.Workload.Generation
	}
	found, hash, err := replicaset.FindByTemplate(sets, replicaset.FindCriteria{
		Template: s.spec.Template, CollisionCount: s.object.Status.CollisionCount,
		ObservedHash: replicaset.ObservedTemplateHash(s.object.Status, s.object.Generation, workload),
	})
	if err != nil {
		return fmt.Errorf("find the ReplicaSet of Rollout %s: %w", s.key(), err)
	}
	s.hash, s.snapshot.Hash = hash, hash
	if found != nil {
		s.snapshot.Hash = replicaset.PodTemplateHash(found)
	}
	return nil
}
