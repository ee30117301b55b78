package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// container is one container of a simulated pod.
type container struct {
	spec      corev1.Container
	state     corev1.ContainerState
	lastState corev1.ContainerState
	restarts  int32
	ready     bool
	proc      process
	id        int
}

// runContainer runs c under policy, and reports whether its last run ended with code 0.
func (w *podWorker) runContainer(ctx context.Context, c *container, policy corev1.RestartPolicy) bool {
	backoff := 10 * time.Second
	for {
		for w.m.cfg.badImage.MatchString(c.spec.Image) {
			if !sleep(ctx, w.m.cfg.pullDelay) {
				return false
			}
			msg := fmt.Sprintf("failed to pull and unpack image %q: not found", c.spec.Image)
			w.set(func() {
				c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: msg}}
			})
			if !sleep(ctx, 5*time.Second) {
				return false
			}
			w.set(func() {
				c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image"}}
			})
			if !sleep(ctx, backoff) {
				return false
			}
			backoff = min(backoff*2, 5*time.Minute)
		}
		code, ended := w.runOnce(ctx, c)
		if !ended {
			return false
		}
		if policy == corev1.RestartPolicyNever || (policy == corev1.RestartPolicyOnFailure && code == 0) {
			return code == 0
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return false
		}
		w.set(func() {
			c.lastState, c.ready = c.state, false
			c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off restarting failed container"}}
		})
		if !sleep(ctx, backoff) {
			return false
		}
		backoff = min(backoff*2, 5*time.Minute)
		w.set(func() { c.restarts++ })
	}
}

// runOnce starts c once and waits for its end; ended is false if ctx was done first.
func (w *podWorker) runOnce(ctx context.Context, c *container) (code int32, ended bool) {
	proc := plan(c.spec.Image, c.spec.Command, c.spec.Args)
	begin := metav1.Now()
	if proc.startError != "" {
		w.set(func() {
			c.id++
			c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 128, Reason: "StartError", Message: proc.startError, StartedAt: begin, FinishedAt: begin,
			}}
		})
		return 128, true
	}
	w.mu.Lock()
	c.proc = proc
	c.id++
	w.mu.Unlock()
	exit := make(<-chan time.Time)
	if !proc.forever {
		exit = time.After(proc.runFor)
	}
	// postStart runs concurrently with the process, but the status does not show the container as running before the hook
	// has ended.
	if h := c.spec.Lifecycle; h != nil && !w.hook(ctx, h.PostStart) {
		return 0, false
	}
	w.set(func() { c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: begin}} })
	probing, stopProbe := context.WithCancel(ctx)
	defer stopProbe()
	go w.probe(probing, c)
	select {
	case <-ctx.Done():
		return 0, false
	case <-exit:
	}
	stopProbe()
	w.set(func() { w.terminated(c, proc.exitCode, begin) })
	return proc.exitCode, true
}

func (w *podWorker) terminated(c *container, code int32, begin metav1.Time) {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	c.ready = false
	c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, StartedAt: begin, FinishedAt: metav1.Now(),
	}}
}

// hook waits for a lifecycle hook; false if ctx was done first.
func (w *podWorker) hook(ctx context.Context, h *corev1.LifecycleHandler) bool {
	switch {
	case h == nil:
		return true
	case h.Sleep != nil:
		return sleep(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
	case h.Exec != nil && len(h.Exec.Command) > 0:
		pr := plan("", h.Exec.Command, nil)
		if pr.forever {
			<-ctx.Done()
			return false
		}
		return sleep(ctx, pr.runFor)
	}
	return true
}

// probe sets c ready when its startup and readiness probes pass.
func (w *podWorker) probe(ctx context.Context, c *container) {
	for _, pr := range []*corev1.Probe{c.spec.StartupProbe, c.spec.ReadinessProbe} {
		if pr == nil {
			continue
		}
		if !sleep(ctx, time.Duration(pr.InitialDelaySeconds)*time.Second) {
			return
		}
		for !passes(c.spec, pr) {
			if !sleep(ctx, time.Duration(max(pr.PeriodSeconds, 1))*time.Second) {
				return
			}
		}
		for n := int32(1); n < pr.SuccessThreshold; n++ {
			if !sleep(ctx, time.Duration(max(pr.PeriodSeconds, 1))*time.Second) {
				return
			}
		}
	}
	w.set(func() {
		if ctx.Err() == nil {
			c.ready = true
		}
	})
}

// passes reports whether a probe succeeds: a server responds on its declared ports (on every port if it declares none), and
// an exec probe succeeds if its command exits with 0.
func passes(c corev1.Container, p *corev1.Probe) bool {
	var port intstr.IntOrString
	switch {
	case p.Exec != nil:
		pr := plan("", p.Exec.Command, nil)
		return pr.startError == "" && !pr.forever && pr.exitCode == 0 &&
			pr.runFor <= time.Duration(max(p.TimeoutSeconds, 1))*time.Second
	case p.HTTPGet != nil:
		port = p.HTTPGet.Port
	case p.TCPSocket != nil:
		port = p.TCPSocket.Port
	case p.GRPC != nil:
		port = intstr.FromInt32(p.GRPC.Port)
	default:
		return true
	}
	if len(c.Ports) == 0 {
		return port.Type == intstr.Int
	}
	for _, d := range c.Ports {
		if (port.Type == intstr.String && d.Name == port.StrVal) || (port.Type == intstr.Int && d.ContainerPort == port.IntVal) {
			return true
		}
	}
	return false
}

// awaitEnd waits until c ends or ctx is done.
func (w *podWorker) awaitEnd(ctx context.Context, c *container) {
	for running := true; running && sleep(ctx, 100*time.Millisecond); {
		w.mu.Lock()
		running = c.state.Running != nil
		w.mu.Unlock()
	}
}
