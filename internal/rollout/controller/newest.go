package controller

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/traffic"
)

// newestVersions prevents a process from acting on old versions of a Rollout, of its workload and of its ReplicaSets.
type newestVersions struct {
	// rollouts are Rollouts, and workloads the workloads whose templates they have.
	rollouts, workloads *readyourwrites.NewestVersions
	// apiReader reads from the API server.
	apiReader client.Reader
	routes    *traffic.Applier
	memory    *memory
}

func newNewestVersions(apiReader client.Reader, routes *traffic.Applier, memory *memory) newestVersions {
	return newestVersions{
		rollouts:  readyourwrites.NewNewestVersions(argov1.RolloutKind, apiReader),
		workloads: readyourwrites.NewNewestVersions("the workload of Rollout", apiReader),
		apiReader: apiReader, routes: routes, memory: memory,
	}
}

// requireAll checks an observed Rollout, its workload, its ReplicaSets and its route.
func (n newestVersions) requireAll(s *observation, object *argov1.Rollout) readyourwrites.WriteCheck {
	return n.requireNewestRoute(s, n.requireNewestReplicaSets(s, n.requireNewestWorkload(s, n.requireNewest(object))))
}

func (n newestVersions) forget(key types.NamespacedName) {
	n.rollouts.Forget(key)
	n.workloads.Forget(key)
}

// requireNewest prevents a process from acting on an old version of a Rollout: see readyourwrites.NewestVersions. Writes of the
// Rollout itself contain the version that they are based on, which proves that it is the newest.
func (n newestVersions) requireNewest(object *argov1.Rollout) readyourwrites.WriteCheck {
	return func(ctx context.Context, written client.Object) error {
		if _, itself := written.(*argov1.Rollout); itself {
			return nil
		}
		return n.rollouts.VerifyTakeover(ctx, client.ObjectKeyFromObject(object), object, &argov1.Rollout{})
	}
}

// requireNewestWorkload rejects an outdated version of the workload whose template a Rollout has: with it, a release of a previous
// template would start. It is checked at writes of the Rollout itself as well, because their version does not cover the workload.
func (n newestVersions) requireNewestWorkload(s *observation, check readyourwrites.WriteCheck) readyourwrites.WriteCheck {
	if s.workload == nil || s.workload.object == nil || s.workload.object.GroupVersionKind() == replicaSetKind { // which is read in each reconciliation
		return check
	}
	object := s.workload.object
	return func(ctx context.Context, written client.Object) error {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(object.GroupVersionKind())
		if err := n.workloads.VerifyTakeover(ctx, s.key(), object, live); err != nil {
			return err
		}
		return check(ctx, written)
	}
}

// requireNewestReplicaSets rejects an outdated list of its ReplicaSets, all of which are read once, at the first write for a
// Rollout: in an old list, one of them may be missing, be deleted by now, or have pods that it has lost. This would lead to surplus
// ReplicaSets and pods, or to users without pods.
func (n newestVersions) requireNewestReplicaSets(s *observation, check readyourwrites.WriteCheck) readyourwrites.WriteCheck {
	return func(ctx context.Context, written client.Object) error {
		if err := check(ctx, written); err != nil || n.memory.Own(s.key()).replicaSetsCompared {
			return err
		}
		selector, err := metav1.LabelSelectorAsSelector(s.spec.Selector)
		if err != nil || selector.Empty() {
			return nil //nolint:nilerr // validation reports the selector, and nothing is scaled
		}
		var live appsv1.ReplicaSetList
		if err := n.apiReader.List(ctx, &live, client.InNamespace(s.object.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return fmt.Errorf("read the ReplicaSets of Rollout %s from the API server: %w", s.key(), err)
		}
		missing := maps.Clone(s.replicaSets)
		for i := range live.Items {
			rs := &live.Items[i]
			if metav1.IsControlledBy(rs, s.object) && isOlder(s.replicaSets[rs.Name], rs) {
				return staleError(rs)
			}
			delete(missing, rs.Name)
		}
		for _, rs := range missing {
			if rs.DeletionTimestamp == nil {
				return staleError(rs)
			}
		}
		n.memory.Do(s.key(), func(e *rolloutMemory) { e.replicaSetsCompared = true })
		return nil
	}
}

// requireNewestRoute rejects outdated objects of the route, also once: in an old list, a revision that still has traffic may
// seem to have none, and a Service or subset would select other pods.
func (n newestVersions) requireNewestRoute(s *observation, check readyourwrites.WriteCheck) readyourwrites.WriteCheck {
	return func(ctx context.Context, written client.Object) error {
		if err := check(ctx, written); err != nil || n.memory.Own(s.key()).routeCompared {
			return err
		}
		for _, read := range s.versions {
			if err := n.routes.VerifyNewest(ctx, n.apiReader, read); err != nil {
				return err
			}
		}
		n.memory.Do(s.key(), func(e *rolloutMemory) { e.routeCompared = true })
		return nil
	}
}

// isOlder reports whether the cache has an old version of a ReplicaSet: its spec was changed since, or it has lost pods.
func isOlder(cached, live *appsv1.ReplicaSet) bool {
	return cached == nil || cached.UID != live.UID || cached.Generation < live.Generation ||
		cached.Status.AvailableReplicas > live.Status.AvailableReplicas
}

func staleError(rs *appsv1.ReplicaSet) error {
	return fmt.Errorf("compare ReplicaSet %s.%s with the API server: %w", rs.Name, rs.Namespace, readyourwrites.ErrStale)
}
