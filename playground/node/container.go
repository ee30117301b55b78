//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/playground/network"
	"github.com/serin-dev/serin/playground/podroot"
)

// container runs one program and restarts it according to the restart policy.
type container struct {
	worker *worker
	spec   corev1.Container

	mu        sync.Mutex
	state     corev1.ContainerState
	lastState corev1.ContainerState
	restarts  int32
	started   bool
	ready     bool
}

func newContainer(w *worker, spec corev1.Container) *container {
	c := &container{worker: w, spec: spec}
	c.state.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if len(w.pod.Spec.InitContainers) > 0 {
		c.state.Waiting.Reason = "PodInitializing"
	}
	return c
}

// update changes the state under the lock and requests a write of the pod's status.
func (c *container) update(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	c.worker.requestWrite()
}

func (c *container) status() corev1.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image,
		State: *c.state.DeepCopy(), LastTerminationState: *c.lastState.DeepCopy(),
		RestartCount: c.restarts, Started: new(c.started), Ready: c.ready,
	}
	if c.state.Running != nil || c.lastState.Terminated != nil {
		s.ContainerID = fmt.Sprintf("process://%s/%s", c.worker.pod.UID, c.spec.Name)
	}
	return s
}

func (c *container) setWaiting(reason, message string) {
	c.update(func() {
		c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		c.ready, c.started = false, false
	})
}

// Delays between a crash and the next start. They are a tenth of a kubelet's, because users and tests wait for them.
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// backoffResetAfter is the running time after which the next crash counts as the first.
	backoffResetAfter = time.Minute
)

// run starts the program and restarts it until the restart policy permits no further start. It reports whether the program
// ended with exit code 0. Closing stop terminates the program, the end of ctx kills it; run returns false then.
func (c *container) run(ctx context.Context, stop <-chan struct{}, policy corev1.RestartPolicy) bool {
	clk := c.worker.node.Clock
	var backoff time.Duration
	for {
		if isClosed(stop) {
			return false
		}
		command, reason, err := c.start(ctx, c.spec.Command, c.spec.Args)
		if err != nil {
			c.setWaiting(reason, err.Error())
			wait := retryInterval
			if reason == "ImagePullBackOff" {
				wait = maxBackoff // the list of images does not change
			}
			if !c.waitBackoff(ctx, stop, wait) {
				return false
			}
			continue
		}
		startedAt := clk.Now()
		code := c.waitForExit(ctx, stop, command)
		terminated := corev1.ContainerStateTerminated{
			ExitCode: int32(code), Reason: "Completed", StartedAt: metav1.NewTime(startedAt), FinishedAt: metav1.NewTime(clk.Now()),
			ContainerID: fmt.Sprintf("process://%s/%s", c.worker.pod.UID, c.spec.Name),
		}
		if code != 0 {
			terminated.Reason = "Error"
		}
		c.update(func() {
			c.state, c.ready, c.started = corev1.ContainerState{Terminated: &terminated}, false, false
		})
		if isClosed(stop) || ctx.Err() != nil {
			return false
		}
		if policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && code == 0 {
			return code == 0
		}
		if clk.Since(startedAt) > backoffResetAfter {
			backoff = 0
		}
		if backoff > 0 {
			c.update(func() { c.lastState.Terminated = &terminated })
			c.setWaiting("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", backoff, c.spec.Name, c.worker.pod.Name))
			if !c.waitBackoff(ctx, stop, backoff) {
				return false
			}
		}
		backoff = min(max(2*backoff, minBackoff), maxBackoff)
		c.update(func() { c.lastState.Terminated, c.restarts = &terminated, c.restarts+1 })
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (c *container) waitBackoff(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	case <-c.worker.node.Clock.After(d):
		return true
	}
}

// start starts the program with a command and arguments. If it cannot, it returns a reason that a kubelet uses.
func (c *container) start(ctx context.Context, commandLine, arguments []string) (command *exec.Cmd, reason string, err error) {
	w := c.worker
	image, tag, found := w.node.findImage(c.spec.Image)
	if !found {
		return nil, "ImagePullBackOff", fmt.Errorf("back-off pulling image %q: the playground has no such program", c.spec.Image)
	}
	env, err := w.resolveEnvironment(ctx, c.spec, image, tag)
	if err != nil {
		return nil, "CreateContainerConfigError", err
	}
	mounts, err := w.writeMounts(ctx, c.spec, env)
	if err != nil {
		return nil, "CreateContainerConfigError", err
	}
	root := filepath.Join(w.folder(), "root", c.spec.Name)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, "CreateContainerError", fmt.Errorf("create the container's folder: %w", err)
	}
	args := append([]string(nil), image.Args...)
	switch {
	case len(commandLine) > 0 && len(image.Commands) > 0:
		if !slices.Contains(image.Commands, commandLine[0]) {
			return nil, "RunContainerError", fmt.Errorf("start %s: no such file in image %s", commandLine[0], c.spec.Image)
		}
		args = append(args, commandLine...)
	case len(commandLine) > 1:
		args = append(args, commandLine[1:]...)
	}
	args = append(args, arguments...)
	for i := range args {
		args[i] = expandVariables(args[i], env)
	}
	hostname := w.pod.Spec.Hostname
	if hostname == "" {
		hostname = w.pod.Name
	}
	command, err = podroot.Command(ctx, podroot.Spec{
		Folder: root, Program: image.Program, Args: args, Env: env.list(), WorkDir: c.spec.WorkingDir, Hostname: hostname,
		Files: map[string]string{
			"/etc/resolv.conf": network.ResolvConf(w.pod.Namespace),
			"/etc/hosts":       fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", w.address, hostname),
		},
		Mounts: mounts,
	})
	if err != nil {
		return nil, "CreateContainerError", err
	}
	log, err := os.OpenFile(w.node.logFile(w.pod.Namespace, w.pod.Name, c.spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, "CreateContainerError", fmt.Errorf("open the container's log: %w", err)
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	start := command.Start
	if w.namespace != nil {
		start = func() error { return w.namespace.Start(command) }
	}
	if err := start(); err != nil {
		return nil, "RunContainerError", fmt.Errorf("start %s: %w", image.Program, err)
	}
	return command, "", nil
}

// runHook runs the command of a lifecycle hook while the program runs, and waits for its end.
func (c *container) runHook(ctx context.Context, handler *corev1.LifecycleHandler) {
	if handler == nil || handler.Exec == nil {
		return
	}
	command, _, err := c.start(ctx, handler.Exec.Command, nil)
	if err == nil {
		err = command.Wait()
	}
	if err != nil && ctx.Err() == nil {
		c.worker.node.Log.Warn("A hook failed", "container", c.spec.Name, "err", err)
	}
}

// waitForExit watches over one lifetime of the program and returns its exit code, 128+n after signal n.
func (c *container) waitForExit(ctx context.Context, stop <-chan struct{}, command *exec.Cmd) int {
	lifetime, end := context.WithCancel(ctx)
	defer end()
	var hooks corev1.Lifecycle
	if c.spec.Lifecycle != nil {
		hooks = *c.spec.Lifecycle
	}
	markStarted := func() {
		c.started = c.spec.StartupProbe == nil
		c.ready = c.started && c.spec.ReadinessProbe == nil
	}
	c.update(func() {
		c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.worker.node.Clock.Now())}}
		if c.started, c.ready = false, false; hooks.PostStart == nil {
			markStarted()
		}
	})
	signal := func(s syscall.Signal) {
		// The signal is sent to the process group, so that child processes receive it too. The group exists until Wait returns.
		if err := syscall.Kill(-command.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			c.worker.node.Log.Warn("Could not signal a container", "container", c.spec.Name, "signal", s.String(), "err", err)
		}
	}
	var watchers sync.WaitGroup
	watchers.Go(func() {
		if hooks.PostStart != nil {
			c.runHook(lifetime, hooks.PostStart)
			c.update(markStarted)
		}
		c.runProbes(lifetime, func() { signal(syscall.SIGTERM) })
	})
	exited := make(chan struct{})
	watchers.Go(func() {
		select {
		case <-exited:
			return
		case <-ctx.Done():
		case <-stop:
			c.runHook(ctx, hooks.PreStop)
			signal(syscall.SIGTERM)
			select {
			case <-exited:
				return
			case <-ctx.Done():
			}
		}
		signal(syscall.SIGKILL)
	})
	err := command.Wait()
	close(exited)
	end()
	watchers.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
