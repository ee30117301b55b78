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

// lookAtPods lists the pods where a restart is due. They are not watched: nothing else needs them.
func (r *Reconciler) lookAtPods(ctx context.Context, s *seen) error {
	if !rollout.IsRestartDue(s.spec, s.object.Status, s.snapshot.Now) {
		return nil
	}
	for _, rs := range s.snapshot.ReplicaSets {
		pods, err := r.podsOf(ctx, s.sets[rs.Name])
		if err != nil {
			return err
		}
		for i := range pods {
			s.snapshot.Pods = append(s.snapshot.Pods, podValue(&pods[i], rs.Name))
		}
	}
	return nil
}

func podValue(pod *corev1.Pod, set string) rollout.Pod {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return rollout.Pod{Name: pod.Name, ReplicaSet: set, Created: pod.CreationTimestamp.Time, Ready: ready, Deleting: pod.DeletionTimestamp != nil}
}

// podsOf lists the pods of a ReplicaSet.
func (r *Reconciler) podsOf(ctx context.Context, rs *appsv1.ReplicaSet) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of ReplicaSet %s.%s: %w", rs.Name, rs.Namespace, err)
	}
	var all corev1.PodList
	if err := r.Reader.List(ctx, &all, client.InNamespace(rs.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the pods of ReplicaSet %s.%s: %w", rs.Name, rs.Namespace, err)
	}
	var own []corev1.Pod
	for i := range all.Items {
		if metav1.IsControlledBy(&all.Items[i], rs) {
			own = append(own, all.Items[i])
		}
	}
	return own, nil
}

// evict takes a pod away. A disruption budget may refuse that for now; the next look tries again.
func (r *Reconciler) evict(ctx context.Context, s *seen, e rollout.PodEvicted) (bool, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.object.Namespace, Name: e.Name}}
	if err := readyourwrites.CheckWrite(ctx, pod); err != nil {
		return false, err
	}
	err := r.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsTooManyRequests(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("evict pod %s.%s: %w", pod.Name, pod.Namespace, err)
	default:
		return true, nil
	}
}

// labelled puts the metadata of a role on the pods of a ReplicaSet, those to come first. What was put there is noted when
// all pods have it: after a crash in between, the pods are gone through once more.
func (r *Reconciler) labelled(ctx context.Context, s *seen, e rollout.EphemeralMetadataSet) (bool, error) {
	rs, err := s.set(e.Name)
	if err != nil {
		return false, err
	}
	noted := func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return replicaset.SetEphemeralMetadata(rs, e.Metadata) }
	if reconciler.Same(noted(rs), rs) {
		return false, nil
	}
	if *rs.Spec.Replicas > 0 || rs.Status.Replicas > 0 {
		_, err := r.changeSet(ctx, s, e.Name, func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
			return replicaset.BeginEphemeralMetadata(rs, e.Metadata)
		})
		if err != nil {
			return false, err
		}
		if err := r.labelPods(ctx, rs, e.Metadata); err != nil {
			return false, err
		}
	}
	return r.changeSet(ctx, s, e.Name, noted)
}

// labelPods puts the metadata of a role on pods that are there.
func (r *Reconciler) labelPods(ctx context.Context, rs *appsv1.ReplicaSet, metadata *argov1.PodTemplateMetadata) error {
	pods, err := r.podsOf(ctx, rs)
	if err != nil {
		return err
	}
	for i := range pods {
		after := pods[i].DeepCopy()
		after.ObjectMeta = replicaset.ReplaceMetadata(after.ObjectMeta, replicaset.AppliedEphemeralMetadata(rs), metadata)
		// Pods are not watched. Without the option the library would begin to, to know when its cache has the change.
		if _, err := r.change(ctx, &pods[i], after, client.DisableReadYourWritesConsistency); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
