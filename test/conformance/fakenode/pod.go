package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// manager owns one worker per pod bound to the node.
type manager struct {
	ctx    context.Context
	client kubernetes.Interface
	cfg    config

	mu      sync.Mutex
	workers map[string]*podWorker
	nextIP  int
}

func (m *manager) observe(p *corev1.Pod) {
	m.mu.Lock()
	w := m.workers[podKey(p)]
	if w == nil {
		m.nextIP++
		ctx, cancel := context.WithCancel(m.ctx)
		w = &podWorker{
			m: m, ctx: ctx, cancel: cancel, pod: p, dirty: make(chan struct{}, 1), updated: make(chan struct{}),
			ip:      fmt.Sprintf("%s.%d.%d", m.cfg.podSubnet, m.nextIP/250, m.nextIP%250+2),
			started: metav1.Now(),
		}
		if p.Spec.HostNetwork {
			w.ip = m.cfg.nodeIP
		}
		if p.Status.StartTime != nil {
			w.started = *p.Status.StartTime
		}
		m.workers[podKey(p)] = w
		m.mu.Unlock()
		go w.live()
		return
	}
	m.mu.Unlock()
	w.mu.Lock()
	w.pod = p
	close(w.updated)
	w.updated = make(chan struct{})
	w.mu.Unlock()
	w.touch()
}

func (m *manager) forget(p *corev1.Pod) {
	m.mu.Lock()
	w := m.workers[podKey(p)]
	delete(m.workers, podKey(p))
	m.mu.Unlock()
	if w != nil {
		w.cancel()
	}
}

// podWorker simulates one pod. Its goroutines change the containers and call touch; publish writes the whole state as one
// status patch.
type podWorker struct {
	m       *manager
	ctx     context.Context
	cancel  context.CancelFunc
	dirty   chan struct{}
	ip      string
	started metav1.Time

	mu      sync.Mutex
	pod     *corev1.Pod
	updated chan struct{} // closed and replaced when pod changes
	admit   bool
	inits   []*container
	cons    []*container
	phase   corev1.PodPhase // never changes once it is terminal
	last    string
}

type container struct {
	spec      corev1.Container
	state     corev1.ContainerState
	lastState corev1.ContainerState
	restarts  int32
	ready     bool
	proc      process
	id        int
}

func (w *podWorker) touch() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

func (w *podWorker) logf(format string, a ...any) {
	if w.m.cfg.verbose {
		log.Printf("%s: %s", podKey(w.pod), fmt.Sprintf(format, a...))
	}
}

func (w *podWorker) set(f func()) {
	w.mu.Lock()
	f()
	w.mu.Unlock()
	w.touch()
}

// current returns the newest pod object and a channel that is closed when it changes.
func (w *podWorker) current() (*corev1.Pod, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.updated
}

func (w *podWorker) live() {
	p, _ := w.current()
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		w.awaitDeletion()
		w.remove()
		return
	}
	waiting := func(spec corev1.Container, reason string) *container {
		return &container{spec: spec, state: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	first := "ContainerCreating"
	if len(p.Spec.InitContainers) > 0 {
		first = "PodInitializing"
	}
	for _, c := range p.Spec.InitContainers {
		w.inits = append(w.inits, waiting(c, "PodInitializing"))
	}
	for _, c := range p.Spec.Containers {
		w.cons = append(w.cons, waiting(c, first))
	}
	go w.publishLoop()

	stop, stopped := context.WithCancel(w.ctx) // done when the containers must stop
	defer stopped()
	done := make(chan struct{})
	go func() { w.play(stop); close(done) }()

	w.awaitDeletion()
	if w.ctx.Err() != nil {
		return
	}
	w.terminate(stopped, done)
	w.remove()
}

// play starts the containers and restarts them according to the restart policy, until all have ended or ctx is done.
func (w *podWorker) play(ctx context.Context) {
	p, _ := w.current()
	w.set(func() { w.admit = true })
	if !sleep(ctx, w.m.cfg.startDelay) || !w.awaitVolumes(ctx, p) {
		return
	}
	var sidecars sync.WaitGroup
	defer sidecars.Wait()
	for _, c := range w.inits {
		if c.spec.RestartPolicy != nil && *c.spec.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars.Go(func() { w.runContainer(ctx, c, corev1.RestartPolicyAlways) })
			continue
		}
		policy := p.Spec.RestartPolicy
		if policy == corev1.RestartPolicyAlways {
			policy = corev1.RestartPolicyOnFailure
		}
		if !w.runContainer(ctx, c, policy) {
			if ctx.Err() == nil {
				w.set(func() { w.phase = corev1.PodFailed })
			}
			return
		}
	}
	var wg sync.WaitGroup
	ok := make([]bool, len(w.cons))
	for i, c := range w.cons {
		wg.Go(func() { ok[i] = w.runContainer(ctx, c, p.Spec.RestartPolicy) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return
	}
	phase := corev1.PodSucceeded
	for _, o := range ok {
		if !o {
			phase = corev1.PodFailed
		}
	}
	w.logf("ended: %s", phase)
	w.set(func() { w.phase = phase })
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

// awaitVolumes waits until every ConfigMap and Secret that the pod mounts exists.
func (w *podWorker) awaitVolumes(ctx context.Context, p *corev1.Pod) bool {
	for {
		missing := false
		for _, v := range p.Spec.Volumes {
			var err error
			switch {
			case v.ConfigMap != nil && (v.ConfigMap.Optional == nil || !*v.ConfigMap.Optional):
				_, err = w.m.client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
			case v.Secret != nil && (v.Secret.Optional == nil || !*v.Secret.Optional):
				_, err = w.m.client.CoreV1().Secrets(p.Namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
			}
			missing = missing || err != nil
		}
		if !missing {
			return ctx.Err() == nil
		}
		if !sleep(ctx, time.Second) {
			return false
		}
	}
}

func (w *podWorker) awaitDeletion() {
	for {
		p, changed := w.current()
		if p.DeletionTimestamp != nil {
			return
		}
		select {
		case <-w.ctx.Done():
			return
		case <-changed:
		}
	}
}

// terminate stops the running containers within the pod's grace period.
func (w *podWorker) terminate(stop func(), done <-chan struct{}) {
	p, _ := w.current()
	grace := 30 * time.Second
	if p.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
	}
	w.logf("terminating within %s", grace)
	kill, cancel := context.WithTimeout(w.ctx, grace)
	defer cancel()
	var wg sync.WaitGroup
	for _, c := range w.cons {
		w.mu.Lock()
		running, proc := c.state.Running, c.proc
		w.mu.Unlock()
		if running == nil {
			continue
		}
		wg.Go(func() {
			code := int32(0)
			hooked := true
			if c.spec.Lifecycle != nil {
				hooked = w.hook(kill, c.spec.Lifecycle.PreStop)
			}
			if hooked && proc.ignoresTerm {
				w.awaitEnd(kill, c)
			} else if hooked {
				sleep(kill, w.m.cfg.stopDelay)
			}
			if kill.Err() != nil {
				code = 137
			}
			w.mu.Lock()
			if c.state.Running != nil {
				w.terminated(c, code, running.StartedAt)
			}
			w.mu.Unlock()
		})
	}
	wg.Wait()
	stop()
	<-done
	w.set(func() {
		if w.phase != "" {
			return
		}
		w.phase = corev1.PodSucceeded
		for _, c := range w.cons {
			c.ready = false
			if c.state.Terminated == nil {
				c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated",
				}}
			}
			if c.state.Terminated.ExitCode != 0 {
				w.phase = corev1.PodFailed
			}
		}
	})
}

// awaitEnd waits until c ends or ctx is done.
func (w *podWorker) awaitEnd(ctx context.Context, c *container) {
	for running := true; running && sleep(ctx, 100*time.Millisecond); {
		w.mu.Lock()
		running = c.state.Running != nil
		w.mu.Unlock()
	}
}

// remove deletes the pod object once its final status is written.
func (w *podWorker) remove() {
	p, _ := w.current()
	if w.ctx.Err() != nil {
		return
	}
	w.publish()
	zero := int64(0)
	for w.ctx.Err() == nil {
		err := w.m.client.CoreV1().Pods(p.Namespace).Delete(w.ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		log.Printf("%s: delete: %v", podKey(p), err)
		sleep(w.ctx, time.Second)
	}
}

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

// sleep waits for d; false if ctx was done first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
