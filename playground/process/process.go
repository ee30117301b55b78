//go:build linux

// Package process manages the programs that run outside pods: it starts them,
// writes the output of each to a file, and stops them.
//
// It must not know what the programs are for.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Spec describes how to start a program.
type Spec struct {
	// Name identifies the program and names its log.
	Name string
	// Argv is the program's file and its arguments.
	Argv []string
	// Env is added to the environment, as NAME=value.
	Env []string
}

// Process is a started program. A restart creates a new Process.
type Process struct {
	Spec
	command *exec.Cmd
	done    chan struct{}
	err     error
}

// Done returns a channel that is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the error with which the program ended, nil for exit code 0. It may be called once Done is closed.
func (p *Process) Err() error { return p.err }

// Pid is the program's process ID in the playground's process namespace.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Usage is the resource usage of a program.
type Usage struct {
	// ResidentBytes is its current resident memory.
	ResidentBytes int64
	// FileBytes is the part of ResidentBytes that is mapped from files: the pages of the executable that are in memory.
	FileBytes int64
	// CPUSeconds is the processor time since its start, in user and kernel mode.
	CPUSeconds float64
}

// Group is a set of programs whose logs are in one folder.
type Group struct {
	logs string

	mu        sync.Mutex
	processes map[string]*Process
}

// NewGroup returns a group that logs to an existing folder.
func NewGroup(logs string) *Group {
	return &Group{logs: logs, processes: map[string]*Process{}}
}

// LogPath returns the file with the output of the named program. A restart appends to it.
func (g *Group) LogPath(name string) string { return filepath.Join(g.logs, name+".log") }

// Start starts a program. A program of that name must not be running.
func (g *Group) Start(spec Spec) (*Process, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.processes[spec.Name]; p != nil {
		select {
		case <-p.done:
		default:
			return nil, fmt.Errorf("start %s: it is already running", spec.Name)
		}
	}
	log, err := os.OpenFile(g.LogPath(spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	defer log.Close()
	p := &Process{Spec: spec, command: exec.Command(spec.Argv[0], spec.Argv[1:]...), done: make(chan struct{})} //nolint:noctx // Close ends it, not a context
	p.command.Env = append(os.Environ(), spec.Env...)
	p.command.Stdout, p.command.Stderr = log, log
	// Ctrl-C in a terminal signals the whole foreground process group, but the cluster must choose the order in which
	// programs stop.
	p.command.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	g.processes[spec.Name] = p
	go func() {
		p.err = p.command.Wait()
		close(p.done)
	}()
	return p, nil
}

func (g *Group) find(name string) (*Process, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.processes[name]
	if p == nil {
		return nil, fmt.Errorf("find program %s: it was never started", name)
	}
	return p, nil
}

// Kill sends SIGKILL to a program and waits until it has ended.
func (g *Group) Kill(name string) error {
	p, err := g.find(name)
	if err != nil {
		return err
	}
	return p.kill()
}

func (p *Process) kill() error {
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.done
	return nil
}

// Terminate sends SIGTERM to a program and waits until it has ended; if ctx ends first, the program is killed.
func (g *Group) Terminate(ctx context.Context, name string) error {
	p, err := g.find(name)
	if err != nil {
		return err
	}
	if err := p.command.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("terminate %s: %w", name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return p.kill()
	}
}

// Signal sends a signal to a running program.
func (g *Group) Signal(name string, signal unix.Signal) error {
	p, err := g.find(name)
	if err != nil {
		return err
	}
	if err := p.command.Process.Signal(signal); err != nil {
		return fmt.Errorf("send %s to %s: %w", unix.SignalName(signal), name, err)
	}
	return nil
}

// Restart kills a program and starts it again with the same Spec.
func (g *Group) Restart(name string) (*Process, error) {
	p, err := g.find(name)
	if err != nil {
		return nil, err
	}
	if err := p.kill(); err != nil {
		return nil, err
	}
	return g.Start(p.Spec)
}

// Usage returns the resource usage of a running program.
func (g *Group) Usage(name string) (Usage, error) {
	p, err := g.find(name)
	if err != nil {
		return Usage{}, err
	}
	return readUsage(p.Pid())
}

// Close kills all programs and waits for them.
func (g *Group) Close() error {
	g.mu.Lock()
	all := make([]*Process, 0, len(g.processes))
	for _, p := range g.processes {
		all = append(all, p)
	}
	g.mu.Unlock()
	var errs []error
	for _, p := range all {
		errs = append(errs, p.kill())
	}
	return errors.Join(errs...)
}

// Ended returns an error with the exit status of a program and the end of its log. It may be called once Done is closed.
func (g *Group) Ended(p *Process) error {
	cause := p.err
	if cause == nil {
		cause = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended (%w); the end of its log %s:\n%s", p.Name, cause, g.LogPath(p.Name), g.Tail(p.Name, 10))
}

// Tail returns the last lines of a program's log, of at most 64 KiB.
func (g *Group) Tail(name string, lines int) string {
	file, err := os.Open(g.LogPath(name))
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	const limit = 64 << 10
	if info, err := file.Stat(); err == nil && info.Size() > limit {
		if _, err := file.Seek(-limit, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
