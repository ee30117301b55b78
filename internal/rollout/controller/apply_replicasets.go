package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
)

// errNameTaken is the error if another object has the name of a new ReplicaSet.
var errNameTaken = errors.New("another object has this name")

// rejectedReplicaSetError is the error of a ReplicaSet that could not be created.
type rejectedReplicaSetError struct {
	name  string
	cause error
}

func (e *rejectedReplicaSetError) Error() string {
	return fmt.Sprintf("create ReplicaSet %s: %v", e.name, e.cause)
}

func (e *rejectedReplicaSetError) Unwrap() error { return e.cause }

// replicaSetApplier writes the ReplicaSets of Rollouts.
type replicaSetApplier struct {
	client client.Client
	// apiReader reads from the API server.
	apiReader client.Reader
}

// replicaSet returns a ReplicaSet of the Rollout in the version of the last write.
func (s *observation) replicaSet(name string) (*appsv1.ReplicaSet, error) {
	rs := s.replicaSets[name]
	if rs == nil {
		return nil, fmt.Errorf("ReplicaSet %s of Rollout %s: %w", name, s.key(), reconciler.ErrObjectChanged)
	}
	return rs, nil
}

// update writes the changes of a ReplicaSet.
func (a replicaSetApplier) update(ctx context.Context, s *observation, name string, change func(*appsv1.ReplicaSet) *appsv1.ReplicaSet) (bool, error) {
	before, err := s.replicaSet(name)
	if err != nil {
		return false, err
	}
	after := change(before)
	changed, err := writeChanges(ctx, a.client, before, after)
	if err == nil {
		s.replicaSets[name] = after
	}
	return changed, err
}

// create creates the ReplicaSet of the template. If one exists that an earlier attempt created whose response was lost, it is
// used.
func (a replicaSetApplier) create(ctx context.Context, s *observation, e rollout.ReplicaSetExists) (bool, error) {
	if s.replicaSets[e.Name] != nil {
		return false, nil
	}
	rs := replicaset.New(s.object, s.spec, e)
	err := a.client.Create(ctx, rs)
	switch {
	case err == nil:
		s.replicaSets[e.Name] = rs
		s.snapshot.ReplicaSets = append(slices.Clip(s.snapshot.ReplicaSets), replicaset.Observe(rs)) // the release begins with it
		return true, nil
	case errors.Is(err, readyourwrites.ErrStale): // no request was sent
		return false, err
	case !apierrors.IsAlreadyExists(err):
		return false, &rejectedReplicaSetError{e.Name, err}
	}
	live := &appsv1.ReplicaSet{}
	if err := a.apiReader.Get(ctx, client.ObjectKeyFromObject(rs), live); err != nil {
		return false, fmt.Errorf("read ReplicaSet %s.%s, which already exists: %w", rs.Name, rs.Namespace, err)
	}
	if !metav1.IsControlledBy(live, s.object) || live.DeletionTimestamp != nil || !replicaset.RunsTemplate(live, s.spec.Template) {
		return false, fmt.Errorf("create ReplicaSet %s.%s: %w", rs.Name, rs.Namespace, errNameTaken)
	}
	s.replicaSets[e.Name] = live
	return false, nil
}

// delete deletes a ReplicaSet.
func (a replicaSetApplier) delete(ctx context.Context, s *observation, name string) (bool, error) {
	rs, err := s.replicaSet(name)
	if err != nil {
		return false, err
	}
	return deleteObserved(ctx, a.client, rs)
}
