package main

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
