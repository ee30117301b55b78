package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// maxPods limits the pods that are examined; usually all fail for the same reason.
const maxPods = 100

// Pods are pods of one revision, as far as they were listed.
type Pods struct {
	// Selector selects the pods; nil: there is no workload.
	Selector labels.Selector
	Items    []corev1.Pod
}

// PodProblem describes what prevents a pod from running. The zero value means that nothing does.
type PodProblem struct {
	Pod string
	// Container and Image are those of the failing container; empty: the pod as a whole fails.
	Container, Image string
	// Reason is the reason that Kubernetes reports (ImagePullBackOff, CrashLoopBackOff, Unschedulable, …), with the exit code of a
	// container that ended.
	Reason string
	// Message is the complete message of the kubelet, the image registry or the scheduler.
	Message string
}

// Pods returns the pods of the target (or the primary). It sends one live LIST.
func (d targetPair) Pods(ctx context.Context, c *flaggerv1.Canary, primary bool) (Pods, error) {
	target, copied, err := d.targetAndPrimary(ctx, c)
	if err != nil {
		return Pods{}, err
	}
	obj := target
	if primary {
		obj = copied
	}
	if obj == nil {
		return Pods{}, nil
	}
	selector, err := podSelector(obj)
	if err != nil {
		return Pods{}, err
	}
	pods, err := ListPods(ctx, d.APIReader, c.Namespace, selector)
	if err != nil {
		return Pods{}, fmt.Errorf("list pods of %s %s.%s: %w", d.kind().Kind, obj.GetName(), c.Namespace, err)
	}
	return pods, nil
}

// ListPods lists the pods that a selector selects.
func ListPods(ctx context.Context, reader client.Reader, namespace string, selector labels.Selector) (Pods, error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(maxPods)); err != nil {
		return Pods{}, err
	}
	return Pods{Selector: selector, Items: pods.Items}, nil
}

// Problem returns why the first failing pod is not ready, if the reason does not resolve itself.
func (p Pods) Problem() PodProblem {
	sorted := slices.SortedFunc(slices.Values(p.Items), func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range sorted {
		if problem := podProblem(&sorted[i]); problem != (PodProblem{}) {
			return problem
		}
	}
	return PodProblem{}
}

// String returns the problem in one line, with a limited length; empty: there is none.
func (p PodProblem) String() string {
	if p.Pod == "" {
		return ""
	}
	text := "pod " + p.Pod + ": "
	if p.Container != "" {
		text += "container " + p.Container + ": "
	}
	return text + formatReason(p.Reason, p.Message)
}

// podProblem returns why a pod is not ready.
func podProblem(pod *corev1.Pod) PodProblem {
	if pod.DeletionTimestamp != nil {
		return PodProblem{}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			status := &statuses[i]
			problem := PodProblem{Pod: pod.Name, Container: status.Name, Image: status.Image}
			if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" &&
				waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
				problem.Reason, problem.Message = waiting.Reason, waiting.Message
				return problem
			}
			if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 {
				problem.Reason, problem.Message = fmt.Sprintf("%s, exit code %d", ended.Reason, ended.ExitCode), ended.Message
				return problem
			}
			// A container that runs briefly between two crashes still counts as crashing.
			if ended := status.LastTerminationState.Terminated; ended != nil && ended.ExitCode != 0 && !status.Ready {
				problem.Reason = fmt.Sprintf("started again %d times, last ended with %s, exit code %d", status.RestartCount, ended.Reason, ended.ExitCode)
				problem.Message = ended.Message
				return problem
			}
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Status == corev1.ConditionFalse && condition.Type == corev1.PodScheduled {
			return PodProblem{Pod: pod.Name, Reason: condition.Reason, Message: condition.Message}
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return PodProblem{Pod: pod.Name, Reason: pod.Status.Reason, Message: pod.Status.Message}
	}
	return PodProblem{}
}

// formatReason formats reason and message, with a limited length. A long message is cut between two words.
func formatReason(reason, message string) string {
	const maxMessageLength = 200
	if message == "" {
		return reason
	}
	if runes := []rune(message); len(runes) > maxMessageLength {
		message = string(runes[:maxMessageLength])
		if end := strings.LastIndex(message, " "); end > 0 && runes[maxMessageLength] != ' ' {
			message = message[:end]
		}
		message += " …"
	}
	return reason + ": " + message
}
