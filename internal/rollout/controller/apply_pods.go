package controller

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
)

// podApplier writes the pods of Rollouts.
type podApplier struct {
	client client.Client
	// apiReader reads from the API server: pods are not watched.
	apiReader   client.Reader
	replicaSets replicaSetApplier
	memory      *memory
}

// evict evicts a pod, unless a disruption budget refuses that, which is recorded for the next decisions. The client of a process does
// not wait for the time that a refusal may contain; see evictionTransport in package operator.
func (a podApplier) evict(ctx context.Context, s *observation, e rollout.PodEvicted) (bool, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.object.Namespace, Name: e.Name}}
	if err := readyourwrites.CheckWrite(ctx, pod); err != nil {
		return false, err
	}
	err := a.client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsTooManyRequests(err):
		a.memory.recordEvictionRefusal(s.key(), e.Name, rollout.EvictionRefusal{At: s.snapshot.Now, ReadyPods: s.countReadyPods()})
		return false, nil
	case err != nil:
		return false, fmt.Errorf("evict pod %s.%s: %w", pod.Name, pod.Namespace, err)
	default:
		s.evictedPods = append(s.evictedPods, e.Name)
		return true, nil
	}
}

// countReadyPods returns how many observed pods are ready and were not evicted in this reconciliation.
func (s *observation) countReadyPods() int {
	return rollout.CountReadyPods(slices.DeleteFunc(slices.Clone(s.snapshot.Pods), func(pod rollout.Pod) bool {
		return slices.Contains(s.evictedPods, pod.Name)
	}))
}

// maxLabelledPods is the maximum number of pods that one reconciliation labels, whose worker sends one request after the other.
const maxLabelledPods = 200

// setEphemeralMetadata sets the metadata of a role on the pods of a ReplicaSet: first in the template, for new pods, then on
// existing pods. Only when all pods have it does the ReplicaSet record it, so that a restart in between visits the pods again, as
// does the next reconciliation if there are too many for one.
func (a podApplier) setEphemeralMetadata(ctx context.Context, s *observation, e rollout.EphemeralMetadataSet) (bool, error) {
	rs, err := s.replicaSet(e.Name)
	if err != nil {
		return false, err
	}
	withMetadata := func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return replicaset.SetEphemeralMetadata(rs, e.Metadata) }
	if reconciler.SemanticEqual(withMetadata(rs), rs) {
		return false, nil
	}
	if *rs.Spec.Replicas > 0 || rs.Status.Replicas > 0 {
		_, err := a.replicaSets.update(ctx, s, e.Name, func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
			return replicaset.BeginEphemeralMetadata(rs, e.Metadata)
		})
		if err != nil {
			return false, err
		}
		complete, err := a.labelPods(ctx, rs, e.Metadata)
		if err != nil {
			return false, err
		}
		if !complete {
			s.retryAt = reconciler.Earliest(s.retryAt, s.snapshot.Now)
			return true, nil
		}
	}
	return a.replicaSets.update(ctx, s, e.Name, withMetadata)
}

// labelPods sets the metadata of a role on existing pods. It reports whether all of them have it.
func (a podApplier) labelPods(ctx context.Context, rs *appsv1.ReplicaSet, metadata *argov1.PodTemplateMetadata) (complete bool, err error) {
	pods, err := listPods(ctx, a.apiReader, rs)
	if err != nil {
		return false, err
	}
	written := 0
	for i := range pods {
		if written == maxLabelledPods {
			return false, nil
		}
		after := pods[i].DeepCopy()
		after.ObjectMeta = replicaset.ReplaceMetadata(after.ObjectMeta, replicaset.AppliedEphemeralMetadata(rs), metadata)
		// Without the option, the library would start to watch pods, to know when its cache has the change.
		changed, err := writeChanges(ctx, a.client, &pods[i], after, client.DisableReadYourWritesConsistency)
		if client.IgnoreNotFound(err) != nil {
			return false, err
		}
		if changed {
			written++
		}
	}
	return true, nil
}
