package controller

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/rollout"
)

// observePods lists the pods if a restart is due. They are not watched, because nothing else needs them.
func (o *Observer) observePods(ctx context.Context, s *observation) error {
	if o.memory != nil { // a command has none
		defer func() { o.memory.addEvictionRefusals(s.key(), s.snapshot.Pods) }()
	}
	if !rollout.IsRestartDue(s.spec, s.object.Status, s.snapshot.Now) {
		return nil
	}
	for _, rs := range s.snapshot.ReplicaSets {
		pods, err := listPods(ctx, o.APIReader, s.replicaSets[rs.Name])
		if err != nil {
			return err
		}
		for i := range pods {
			s.snapshot.Pods = append(s.snapshot.Pods, podOf(&pods[i], rs.Name))
		}
	}
	return nil
}

func podOf(pod *corev1.Pod, set string) rollout.Pod {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return rollout.Pod{Name: pod.Name, ReplicaSet: set, Created: pod.CreationTimestamp.Time, Ready: ready, Deleting: pod.DeletionTimestamp != nil}
}

// listPods lists the pods of a ReplicaSet.
func listPods(ctx context.Context, apiReader client.Reader, rs *appsv1.ReplicaSet) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of ReplicaSet %s.%s: %w", rs.Name, rs.Namespace, err)
	}
	var all corev1.PodList
	if err := apiReader.List(ctx, &all, client.InNamespace(rs.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
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
