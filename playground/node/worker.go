//go:build linux

package node

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/playground/network"
)

// worker runs one pod from its first observation to its end. Only its own goroutine changes it, except for the newest state
// of the pod's object and the states of the containers, which are protected by locks.
type worker struct {
	node    *Node
	changed chan struct{} // has a capacity of one: several changes need one write

	mu        sync.Mutex
	newest    *corev1.Pod
	isDeleted bool

	pod           *corev1.Pod // as first observed: its name and spec do not change
	address       netip.Addr
	namespace     *network.Namespace
	initial       []*container
	containers    []*container
	written       corev1.PodStatus
	problem       string // the reason why no container can start
	objectDeleted bool   // isDeleted, as last read by the goroutine of the worker
}

func newWorker(n *Node, pod *corev1.Pod) *worker {
	w := &worker{node: n, pod: pod, newest: pod, changed: make(chan struct{}, 1)}
	for _, spec := range pod.Spec.InitContainers {
		w.initial = append(w.initial, newContainer(w, spec))
	}
	for _, spec := range pod.Spec.Containers {
		w.containers = append(w.containers, newContainer(w, spec))
	}
	return w
}

// notify passes the newest state of the object; nil means that it was deleted.
func (w *worker) notify(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if pod == nil {
		w.isDeleted = true
	} else {
		w.newest = pod
	}
	w.requestWrite()
}

func (w *worker) requestWrite() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// folder returns the folder of the pod's files.
func (w *worker) folder() string { return filepath.Join(w.node.Folder, "pods", string(w.pod.UID)) }

// retryInterval is the interval at which a failed operation is retried.
const retryInterval = 500 * time.Millisecond

// run runs the pod until its object is deleted or ctx ends.
func (w *worker) run(ctx context.Context) {
	log := w.node.Log.With("pod", w.pod.Namespace+"/"+w.pod.Name)
	if isTerminated(w.pod.Status.Phase) {
		w.waitForDeletion(ctx)
		return
	}
	running, kill := context.WithCancel(ctx)
	defer kill()
	stop := make(chan struct{})
	finished := make(chan struct{})
	go func() { defer close(finished); w.runContainers(running, stop) }()
	defer func() {
		kill()
		<-finished
		if w.namespace != nil {
			if err := w.namespace.Close(); err != nil {
				log.Warn("Could not remove the network of a pod", "err", err)
			}
		}
		if err := os.RemoveAll(w.folder()); err != nil {
			log.Warn("Could not remove the files of a pod", "err", err)
		}
	}()

	stopping, done := false, false
	var deadline, retry <-chan time.Time
	waitFor := finished
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		case <-retry:
		case <-deadline:
			kill()
		case <-waitFor:
			done, waitFor = true, nil
		}
		w.mu.Lock()
		newest := w.newest
		w.objectDeleted = w.isDeleted
		w.mu.Unlock()
		if w.objectDeleted {
			return
		}
		if newest.DeletionTimestamp != nil && !stopping {
			stopping = true
			close(stop)
			var grace int64
			if newest.DeletionGracePeriodSeconds != nil {
				grace = *newest.DeletionGracePeriodSeconds
			}
			deadline = w.node.Clock.After(time.Duration(grace) * time.Second)
		}
		retry = nil
		err := w.writeStatus(ctx)
		if err == nil && stopping && done {
			err = w.node.deletePodObject(ctx, w.pod)
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("Could not write a pod, retrying", "err", err)
			retry = w.node.Clock.After(retryInterval)
		}
	}
}

// waitForDeletion deletes the object of a pod that has ended once its deletion is requested.
func (w *worker) waitForDeletion(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		w.mu.Lock()
		newest := w.newest
		w.objectDeleted = w.isDeleted
		w.mu.Unlock()
		if w.objectDeleted {
			return
		}
		if newest.DeletionTimestamp != nil {
			if err := w.node.deletePodObject(ctx, w.pod); err != nil {
				w.node.Log.Warn("Could not delete a pod that has ended", "pod", w.pod.Name, "err", err)
			}
		}
	}
}

func isTerminated(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// runContainers runs the containers until all have ended and the restart policy permits no restart.
func (w *worker) runContainers(ctx context.Context, stop <-chan struct{}) {
	for {
		namespace, address, err := w.node.setUpNetwork(w.pod)
		w.mu.Lock()
		w.namespace, w.address, w.problem = namespace, address, ""
		if err != nil {
			w.problem = err.Error()
		}
		w.mu.Unlock()
		w.requestWrite()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-w.node.Clock.After(retryInterval):
		}
	}
	policy := w.pod.Spec.RestartPolicy
	initialPolicy := corev1.RestartPolicyOnFailure
	if policy == corev1.RestartPolicyNever {
		initialPolicy = policy
	}
	for _, c := range w.initial {
		if !c.run(ctx, stop, initialPolicy) {
			return
		}
	}
	var all sync.WaitGroup
	for _, c := range w.containers {
		all.Go(func() { c.run(ctx, stop, policy) })
	}
	all.Wait()
}

// writeStatus writes the status of the object if it has changed.
func (w *worker) writeStatus(ctx context.Context) error {
	status := w.podStatus()
	if equality.Semantic.DeepEqual(status, w.written) {
		return nil
	}
	if err := w.node.patchStatus(ctx, w.pod, status); err != nil {
		return err
	}
	w.written = status
	return nil
}

// podStatus returns the fields of the status that a kubelet owns.
func (w *worker) podStatus() corev1.PodStatus {
	w.mu.Lock()
	address, problem := w.address, w.problem
	w.mu.Unlock()
	now := metav1.NewTime(w.node.Clock.Now()).Rfc3339Copy()
	status := corev1.PodStatus{HostIP: network.NodeAddress.String(), QOSClass: w.pod.Status.QOSClass, StartTime: w.written.StartTime, Message: problem}
	if status.StartTime == nil {
		status.StartTime = &now
	}
	status.HostIPs = []corev1.HostIP{{IP: status.HostIP}}
	if address.IsValid() {
		status.PodIP = address.String()
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
	initialized := true
	for _, c := range w.initial {
		s := c.status()
		initialized = initialized && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		status.InitContainerStatuses = append(status.InitContainerStatuses, s)
	}
	for _, c := range w.containers {
		status.ContainerStatuses = append(status.ContainerStatuses, c.status())
	}
	status.Phase = podPhase(w.pod.Spec.RestartPolicy, status)

	var unready strings.Builder
	for _, s := range status.ContainerStatuses {
		if !s.Ready {
			unready.WriteString(" " + s.Name)
		}
	}
	ready, reason, message := corev1.ConditionTrue, "", ""
	switch {
	case status.Phase == corev1.PodSucceeded:
		ready, reason = corev1.ConditionFalse, "PodCompleted"
	case status.Phase == corev1.PodFailed:
		ready, reason = corev1.ConditionFalse, "PodFailed"
	case unready.String() != "":
		ready, reason, message = corev1.ConditionFalse, "ContainersNotReady", "containers with unready status: ["+unready.String()[1:]+"]"
	}
	condition := func(kind corev1.PodConditionType, value corev1.ConditionStatus, reason, message string) {
		c := corev1.PodCondition{Type: kind, Status: value, Reason: reason, Message: message, LastTransitionTime: now}
		for _, old := range w.written.Conditions {
			if old.Type == kind && old.Status == value {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		status.Conditions = append(status.Conditions, c)
	}
	condition(corev1.PodReadyToStartContainers, conditionStatus(address.IsValid()), "", "")
	condition(corev1.PodInitialized, conditionStatus(initialized), "", "")
	condition(corev1.ContainersReady, ready, reason, message)
	if unmet := w.unmetReadinessGates(); ready == corev1.ConditionTrue && len(unmet) > 0 {
		ready, reason, message = corev1.ConditionFalse, "ReadinessGatesNotReady", "conditions that are not True: "+strings.Join(unmet, ", ")
	}
	condition(corev1.PodReady, ready, reason, message)
	condition(corev1.PodScheduled, corev1.ConditionTrue, "", "")
	return status
}

// unmetReadinessGates returns the conditions of readiness gates that other controllers have not set to True yet.
func (w *worker) unmetReadinessGates() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var unmet []string
	for _, gate := range w.pod.Spec.ReadinessGates {
		met := slices.ContainsFunc(w.newest.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		})
		if !met {
			unmet = append(unmet, string(gate.ConditionType))
		}
	}
	return unmet
}

func conditionStatus(value bool) corev1.ConditionStatus {
	if value {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// podPhase returns the phase that the API specifies: Pending until every container has started once, Succeeded or Failed when no
// container will be started again.
func podPhase(policy corev1.RestartPolicy, status corev1.PodStatus) corev1.PodPhase {
	for _, s := range status.InitContainerStatuses {
		if s.State.Terminated == nil {
			return corev1.PodPending
		}
		if s.State.Terminated.ExitCode != 0 {
			if policy == corev1.RestartPolicyNever {
				return corev1.PodFailed
			}
			return corev1.PodPending
		}
	}
	terminated, failed, waiting := 0, 0, 0
	for _, s := range status.ContainerStatuses {
		switch {
		case s.State.Terminated != nil:
			terminated++
			if s.State.Terminated.ExitCode != 0 {
				failed++
			}
		case s.State.Waiting != nil && s.LastTerminationState.Terminated == nil:
			waiting++
		}
	}
	switch {
	case waiting > 0:
		return corev1.PodPending
	case terminated < len(status.ContainerStatuses) || policy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	default:
		return corev1.PodSucceeded
	}
}
