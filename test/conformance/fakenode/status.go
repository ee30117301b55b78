package main

import (
	"encoding/json"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (w *podWorker) publishLoop() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.dirty:
			if !w.publish() {
				sleep(w.ctx, 300*time.Millisecond)
				w.touch()
			}
		}
	}
}

// publish writes the pod's status; conditions of other controllers are unchanged.
func (w *podWorker) publish() bool {
	w.mu.Lock()
	p := w.pod
	if !w.admit {
		w.mu.Unlock()
		return true
	}
	st := w.status()
	w.mu.Unlock()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": st})
	if err != nil {
		log.Fatal(err)
	}
	if string(body) == w.lastBody() {
		return true
	}
	_, err = w.m.client.CoreV1().Pods(p.Namespace).Patch(w.ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	switch {
	case err == nil:
		w.mu.Lock()
		w.last = string(body)
		w.mu.Unlock()
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), w.ctx.Err() != nil:
	default:
		log.Printf("%s: status: %v", podKey(p), err)
		return false
	}
	return true
}

func (w *podWorker) lastBody() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// status builds the status. The caller holds mu.
func (w *podWorker) status() corev1.PodStatus {
	p := w.pod
	allReady, allStarted, initialized := true, true, true
	statuses := func(cs []*container, init bool) []corev1.ContainerStatus {
		var out []corev1.ContainerStatus
		for _, c := range cs {
			started := c.state.Running != nil
			ready := c.ready && started
			if init {
				done := c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
				sidecar := c.spec.RestartPolicy != nil
				if !done && (!sidecar || !started) {
					initialized = false
				}
				ready = done || ready
			} else {
				allReady = allReady && ready
				allStarted = allStarted && c.state.Waiting == nil
			}
			s := corev1.ContainerStatus{
				Name: c.spec.Name, Image: c.spec.Image, State: c.state, LastTerminationState: c.lastState,
				Ready: ready, Started: &started, RestartCount: c.restarts,
			}
			if c.id > 0 {
				s.ContainerID = fmt.Sprintf("fake://%s-%s-%d", p.UID, c.spec.Name, c.id)
				s.ImageID = "fake://" + c.spec.Image
			}
			out = append(out, s)
		}
		return out
	}
	st := corev1.PodStatus{
		InitContainerStatuses: statuses(w.inits, true),
		ContainerStatuses:     statuses(w.cons, false),
		HostIP:                w.m.cfg.nodeIP,
		HostIPs:               []corev1.HostIP{{IP: w.m.cfg.nodeIP}},
		StartTime:             &w.started,
		Phase:                 w.phase,
	}
	if st.Phase == "" {
		st.Phase = corev1.PodPending
		if initialized && allStarted {
			st.Phase = corev1.PodRunning
		}
		for _, c := range w.cons {
			if c.restarts > 0 || c.lastState.Terminated != nil || c.state.Running != nil {
				st.Phase = corev1.PodRunning
			}
		}
	}
	for _, c := range w.cons {
		if c.id > 0 && len(st.PodIPs) == 0 {
			st.PodIP, st.PodIPs = w.ip, []corev1.PodIP{{IP: w.ip}}
		}
	}
	ready, readyReason, readyMsg := allReady, "", ""
	if !allReady {
		readyReason, readyMsg = "ContainersNotReady", "containers with unready status"
	}
	containersReason := readyReason
	if allReady {
		for _, g := range p.Spec.ReadinessGates {
			met := false
			for _, c := range p.Status.Conditions {
				met = met || (c.Type == g.ConditionType && c.Status == corev1.ConditionTrue)
			}
			if !met {
				ready, readyReason = false, "ReadinessGatesNotReady"
				readyMsg = fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist or is not True.", g.ConditionType)
			}
		}
	}
	if w.phase == corev1.PodSucceeded || w.phase == corev1.PodFailed {
		ready, allReady = false, false
		if w.phase == corev1.PodSucceeded {
			readyReason, containersReason, readyMsg = "PodCompleted", "PodCompleted", ""
		} else {
			readyReason, containersReason, readyMsg = "PodFailed", "PodFailed", ""
		}
	}
	cond := func(t corev1.PodConditionType, v bool, reason, msg string) {
		s := corev1.ConditionFalse
		if v {
			s = corev1.ConditionTrue
		}
		at := metav1.Now()
		for _, o := range p.Status.Conditions {
			if o.Type == t && o.Status == s && !o.LastTransitionTime.IsZero() {
				at = o.LastTransitionTime
			}
		}
		st.Conditions = append(st.Conditions, corev1.PodCondition{Type: t, Status: s, Reason: reason, Message: msg, LastTransitionTime: at})
	}
	cond(corev1.PodInitialized, initialized, "", "")
	cond(corev1.PodReady, ready, readyReason, readyMsg)
	cond(corev1.ContainersReady, allReady, containersReason, "")
	cond(corev1.PodScheduled, true, "", "")
	return st
}
