package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/time/rate"
)

const (
	// outputRate and outputBurst limit what is read from a plugin, in bytes per second and in bytes: answers and output. A plugin
	// that writes more is slowed down, so that an answer of any size occupies little memory until its call times out.
	outputRate  = 256 << 10
	outputBurst = 4 << 20
)

// LaunchArgument is the first argument of a process that becomes a plugin; see Launch.
const LaunchArgument = "plugin-process"

// niceness of plugins: if processor time is scarce, each of their threads gets about a tenth of the share of a thread of Serin. A limit of
// the total time (RLIMIT_CPU) would end a plugin that has worked for long, and a cgroup would require permission to write cgroups, which a
// container does not have.
const niceness = 10

// limitedRunner runs the process of a plugin within its limits, for package go-plugin.
type limitedRunner struct {
	cmd            *exec.Cmd
	stdout, stderr io.ReadCloser
	// exited is closed when the process has ended.
	exited chan struct{}
}

// newLimitedRunner prepares the process. The directory of its socket belongs to the user of the process.
func newLimitedRunner(ctx context.Context, cmd *exec.Cmd, o Options, socketDir string) (*limitedRunner, error) {
	attributes, err := newAttributes()
	if err != nil {
		return nil, err
	}
	if o.UID > 0 {
		attributes.Credential = &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.UID)} //nolint:gosec // validated by the flags
		if err := os.Chown(socketDir, o.UID, o.UID); err != nil {
			return nil, fmt.Errorf("give the directory of the socket to the user %d: %w: run Serin as root with the capabilities that docs/plugins.md lists, or omit -plugin-uid", o.UID, err)
		}
	}
	cmd.SysProcAttr, cmd.Dir = attributes, "/"
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	return &limitedRunner{cmd: cmd, exited: make(chan struct{}), stdout: stdout, stderr: newThrottledReader(ctx, stderr)}, nil
}

// Start implements runner.Runner.
func (r *limitedRunner) Start(context.Context) error { return r.cmd.Start() }

// Wait implements runner.Runner.
func (r *limitedRunner) Wait(context.Context) error {
	defer close(r.exited)
	return r.cmd.Wait()
}

// Kill implements runner.Runner: it ends the process and its children.
func (r *limitedRunner) Kill(context.Context) error {
	if r.cmd.Process == nil {
		return nil
	}
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Diagnose implements runner.Runner.
func (r *limitedRunner) Diagnose(context.Context) string {
	return "the program is not a plugin for Argo Rollouts, is built for another platform, or exceeded its limit of memory"
}

// Stdout implements runner.Runner.
func (r *limitedRunner) Stdout() io.ReadCloser { return r.stdout }

// Stderr implements runner.Runner.
func (r *limitedRunner) Stderr() io.ReadCloser { return r.stderr }

// Name implements runner.Runner.
func (r *limitedRunner) Name() string { return "plugin" }

// ID implements runner.Runner.
func (r *limitedRunner) ID() string {
	if r.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(r.cmd.Process.Pid)
}

// PluginToHost implements runner.Runner. A plugin must not choose a host that Serin connects to.
func (r *limitedRunner) PluginToHost(network, address string) (hostNetwork, hostAddress string, err error) {
	if network != "unix" {
		return "", "", fmt.Errorf("the plugin announces the address %s:%s, and only unix sockets are accepted", network, address)
	}
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (r *limitedRunner) HostToPlugin(network, address string) (pluginNetwork, pluginAddress string, err error) {
	return network, address, nil
}

// throttledReader reads at most outputRate bytes per second, after a burst.
type throttledReader struct {
	ctx context.Context //nolint:containedctx // it ends with the process
	io.ReadCloser
	limiter *rate.Limiter
}

func newThrottledReader(ctx context.Context, r io.ReadCloser) throttledReader {
	return throttledReader{ctx, r, rate.NewLimiter(outputRate, outputBurst)}
}

// Read implements io.Reader.
func (t throttledReader) Read(into []byte) (int, error) {
	n, err := t.ReadCloser.Read(into[:min(len(into), outputBurst)])
	if waitErr := t.limiter.WaitN(t.ctx, n); waitErr != nil && err == nil {
		err = waitErr
	}
	return n, err
}
