//go:build linux

// Package process keeps the programs beside the pods: it starts them, writes
// what they say to a file each, and ends them.
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

// Spec says how a program runs.
type Spec struct {
	// Name identifies the program and names its log.
	Name string
	// Argv is the program's file and its arguments.
	Argv []string
	// Env is added to the environment, as NAME=value.
	Env []string
}

// Process is one life of a program.
type Process struct {
	Spec
	command *exec.Cmd
	done    chan struct{}
	err     error
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the program ended, nil for exit code 0. It may be called once Done is closed.
func (p *Process) Err() error { return p.err }

// Pid is the program's number in the playground's process namespace.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Usage is what a program cost so far.
type Usage struct {
	// ResidentBytes is the memory it holds now.
	ResidentBytes int64
	// FileBytes of it are mapped from files: the program itself, as far as the kernel has it mapped.
	FileBytes int64
	// CPUSeconds is the processor time it used, in user and kernel mode.
	CPUSeconds float64
}

// Group is a set of programs whose logs stand in one folder.
type Group struct {
	logs string

	mu        sync.Mutex
	processes map[string]*Process
}

// NewGroup makes a group that logs to an existing folder.
func NewGroup(logs string) *Group {
	return &Group{logs: logs, processes: map[string]*Process{}}
}

// LogPath is the file with the output of the named program, all its lives together.
func (g *Group) LogPath(name string) string { return filepath.Join(g.logs, name+".log") }

// Start starts a program. A program of that name must not be running.
func (g *Group) Start(spec Spec) (*Process, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.processes[spec.Name]; p != nil {
		select {
		case <-p.done:
		default:
			return nil, fmt.Errorf("start %s: it runs already", spec.Name)
		}
	}
	log, err := os.OpenFile(g.LogPath(spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	defer log.Close()
	p := &Process{Spec: spec, command: exec.Command(spec.Argv[0], spec.Argv[1:]...), done: make(chan struct{})} //nolint:noctx // it ends with the group, not with a call
	p.command.Env = append(os.Environ(), spec.Env...)
	p.command.Stdout, p.command.Stderr = log, log
	// Ctrl-C in a terminal reaches the whole foreground group; who ends first is for the cluster to say.
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

// Kill ends a program at once, without a chance to clean up, and waits until it is gone.
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

// Terminate asks a program to end and waits for it; when ctx ends first, it is killed.
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

// Restart kills a program and starts it again as it was.
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

// Usage reads what a running program cost so far.
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

// Ended says that a program ended, how, and what it wrote last. It may be called once Done is closed.
func (g *Group) Ended(p *Process) error {
	how := p.err
	if how == nil {
		how = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended (%w); the end of its log %s:\n%s", p.Name, how, g.LogPath(p.Name), g.Tail(p.Name, 10))
}

// Tail returns the last lines of a program's log, for messages about its end.
func (g *Group) Tail(name string, lines int) string {
	file, err := os.Open(g.LogPath(name))
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	const enough = 64 << 10
	if info, err := file.Stat(); err == nil && info.Size() > enough {
		if _, err := file.Seek(-enough, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(io.LimitReader(file, enough))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
