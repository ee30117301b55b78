package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// maxPods limits the pods that are examined; usually all fail for the same reason.
const maxPods = 100

// PodProblem returns why the first failing pod of the target (or the primary) is not ready, with the reason that Kubernetes
// reports (ImagePullBackOff, CrashLoopBackOff, Unschedulable, …); empty means that none fails. It sends one live LIST.
func (d targetPair) PodProblem(ctx context.Context, c *flaggerv1.Canary, primary bool) (string, error) {
	target, copied, err := d.targetAndPrimary(ctx, c)
	if err != nil {
		return "", err
	}
	obj := target
	if primary {
		obj = copied
	}
	if obj == nil {
		return "", nil
	}
	selector, err := podSelector(obj)
	if err != nil {
		return "", err
	}
	var pods corev1.PodList
	if err := d.Reader.List(ctx, &pods, client.InNamespace(c.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(maxPods)); err != nil {
		return "", fmt.Errorf("list pods of %s %s.%s: %w", d.kind().Kind, obj.GetName(), c.Namespace, err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range pods.Items {
		if problem := podProblem(&pods.Items[i]); problem != "" {
			return fmt.Sprintf("pod %s: %s", pods.Items[i].Name, problem), nil
		}
	}
	return "", nil
}

// podProblem returns why a pod is not ready, if the reason does not resolve itself.
func podProblem(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return ""
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, status := range statuses {
			if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" &&
				waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
				return formatReason("container "+status.Name+": "+waiting.Reason, waiting.Message)
			}
			if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 {
				return formatReason(fmt.Sprintf("container %s: %s, exit code %d", status.Name, ended.Reason, ended.ExitCode), ended.Message)
			}
			// A container that runs briefly between two crashes still counts as crashing.
			if ended := status.LastTerminationState.Terminated; ended != nil && ended.ExitCode != 0 && !status.Ready {
				return formatReason(fmt.Sprintf("container %s: started again %d times, last ended with %s, exit code %d",
					status.Name, status.RestartCount, ended.Reason, ended.ExitCode), ended.Message)
			}
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Status == corev1.ConditionFalse && condition.Type == corev1.PodScheduled {
			return formatReason(condition.Reason, condition.Message)
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return formatReason(pod.Status.Reason, pod.Status.Message)
	}
	return ""
}

// formatReason formats reason and message, with a limited length.
func formatReason(reason, message string) string {
	const maxMessageLength = 200
	if message == "" {
		return reason
	}
	if runes := []rune(message); len(runes) > maxMessageLength {
		message = string(runes[:maxMessageLength]) + "…"
	}
	return reason + ": " + message
}
