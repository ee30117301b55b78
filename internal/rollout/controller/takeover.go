package controller

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/ownwrites"
)

// takeOver keeps a process from acting on a Rollout as it was long ago: see ownwrites.Newest. Writes of the Rollout itself
// name the version that they were decided on, and prove by themselves that it is the newest.
func (r *Reconciler) takeOver(object *argov1.Rollout) ownwrites.Check {
	return func(ctx context.Context, written client.Object) error {
		if _, itself := written.(*argov1.Rollout); itself {
			return nil
		}
		return r.known.TakeOver(ctx, client.ObjectKeyFromObject(object), object, &argov1.Rollout{})
	}
}

// takeOverWorkload is the same of the workload whose template a Rollout has: by one of long ago a release would begin to what
// was there before. It is asked at writes of the Rollout itself as well, whose version says nothing of the workload.
func (r *Reconciler) takeOverWorkload(s *seen, check ownwrites.Check) ownwrites.Check {
	if s.workload == nil || s.workload.object == nil || s.workload.object.GroupVersionKind() == replicaSetKind { // which is read anew in each pass
		return check
	}
	object := s.workload.object
	return func(ctx context.Context, written client.Object) error {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(object.GroupVersionKind())
		if err := r.lenders.TakeOver(ctx, s.key(), object, live); err != nil {
			return err
		}
		return check(ctx, written)
	}
}

// takeOverSets is the same of its ReplicaSets, all of which are read once, at the first write for a Rollout: in an old list one
// of them may be missing, be gone by now, or have pods that it has lost, and what follows from that are ReplicaSets and pods too
// many, or users without pods.
func (r *Reconciler) takeOverSets(s *seen, check ownwrites.Check) ownwrites.Check {
	return func(ctx context.Context, written client.Object) error {
		if err := check(ctx, written); err != nil || r.memory.Own(s.key()).compared {
			return err
		}
		selector, err := metav1.LabelSelectorAsSelector(s.spec.Selector)
		if err != nil || selector.Empty() {
			return nil //nolint:nilerr // it is told that the selector is none, and nothing is scaled
		}
		var live appsv1.ReplicaSetList
		if err := r.Reader.List(ctx, &live, client.InNamespace(s.object.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return fmt.Errorf("read the ReplicaSets of Rollout %s from the API server: %w", s.key(), err)
		}
		gone := maps.Clone(s.sets)
		for i := range live.Items {
			rs := &live.Items[i]
			if metav1.IsControlledBy(rs, s.object) && older(s.sets[rs.Name], rs) {
				return behind(rs)
			}
			delete(gone, rs.Name)
		}
		for _, rs := range gone {
			if rs.DeletionTimestamp == nil {
				return behind(rs)
			}
		}
		r.memory.Do(s.key(), func(e *remembered) { e.compared = true })
		return nil
	}
}

// older is true of what a cache has of a ReplicaSet of which more was asked since, or that has lost pods.
func older(cached, live *appsv1.ReplicaSet) bool {
	return cached == nil || cached.UID != live.UID || cached.Generation < live.Generation ||
		cached.Status.AvailableReplicas > live.Status.AvailableReplicas
}

func behind(rs *appsv1.ReplicaSet) error {
	return fmt.Errorf("look at ReplicaSet %s.%s: %w", rs.Name, rs.Namespace, ownwrites.ErrBehind)
}
