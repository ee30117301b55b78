package loadtester

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/loadtester/load"
	"github.com/serin-dev/serin/internal/outbound"
)

// executor runs tasks.
type executor struct {
	clock  clock.Clock
	log    logr.Logger
	client *outbound.Client
	policy outbound.Policy
	// timeout bounds each task.
	timeout time.Duration
	// env is the environment of programs.
	env []string
}

// runTask runs one task and returns its result.
func (e *executor) runTask(ctx context.Context, t task) result {
	ctx, cancel := context.WithTimeoutCause(ctx, e.timeout, fmt.Errorf("stopped after %s, the -timeout of the load tester", e.timeout))
	defer cancel()
	log := e.log.WithValues("canary", t.canary, "type", t.kind, "task", t.id(), "program", t.name())
	log.Info("Started task")
	began := e.clock.Now()
	var taskResult result
	switch {
	case t.command != nil:
		taskResult = e.runCommand(ctx, t)
	case t.concord != nil:
		taskResult.err = e.runConcord(ctx, t.concord)
	case t.ngrinder != nil:
		taskResult.err = e.runNGrinder(ctx, t.ngrinder)
	}
	values := []any{"duration", e.clock.Since(began).String(), "ok", taskResult.err == nil}
	if t.logOutput {
		values = append(values, "output", taskResult.output)
	}
	if taskResult.err != nil && !t.logOutput {
		// The output may contain credentials: the client receives it, but it is logged only with logCmdOutput.
		values = append(values, "err", causeWithoutOutput(taskResult.err))
	}
	log.Info("Ended task", values...)
	return taskResult
}

// commandError is the error of a command that failed.
type commandError struct {
	program, output string
	cause           error
}

func (f *commandError) Error() string {
	return fmt.Sprintf("command %s failed: %s: %v", f.program, f.output, f.cause)
}

func (f *commandError) Unwrap() error { return f.cause }

// causeWithoutOutput returns the text of an error without the output of the command.
func causeWithoutOutput(err error) string {
	if failed, ok := errors.AsType[*commandError](err); ok {
		return outbound.RedactError(failed.cause).Error()
	}
	return err.Error()
}

func (e *executor) runCommand(ctx context.Context, t task) result {
	var out output
	argv, builtIn, err := resolveCommand(t.command, isOnPath)
	switch {
	case err != nil:
	case builtIn:
		err = load.Run(ctx, load.Options{Out: &out, Clock: e.clock, Policy: e.policy}, argv)
	default:
		err = runProcess(ctx, argv, e.env, &out)
	}
	text := out.String()
	if err != nil {
		return result{output: text, err: &commandError{program: t.name(), output: text, cause: err}}
	}
	return result{output: text}
}

// resolveCommand decides what a command runs: the image's program of that name, the built-in program, or a shell.
// hasProgram reports whether the image has a program.
func resolveCommand(c *command, hasProgram func(program string) bool) (argv []string, builtIn bool, err error) {
	switch {
	case len(c.argv) > 0 && hasProgram(c.argv[0]):
		return c.argv, false, nil
	case len(c.argv) > 0 && load.HasProgram(c.argv[0]):
		return c.argv, true, nil
	case c.shell != "" && hasProgram(c.shell):
		return []string{c.shell, "-c", c.line}, false, nil // it has commands of its own, and reports those that do not exist
	case len(c.argv) > 0:
		return nil, false, fmt.Errorf("this image has no program %.64q: use an image that has it", c.argv[0])
	default:
		return nil, false, fmt.Errorf("this image has no program %q: use an image that has it", c.shell)
	}
}

func isOnPath(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// environment returns the variables for programs: those of the load tester without its token, and with the built-in
// programs at the end of PATH, so that the image's programs have precedence.
func environment(own []string, programs string) []string {
	var env []string
	path := programs
	for _, variable := range own {
		name, value, _ := strings.Cut(variable, "=")
		switch name {
		case TokenVariable:
		case "PATH":
			path = strings.Trim(value+string(os.PathListSeparator)+programs, string(os.PathListSeparator))
		default:
			env = append(env, variable)
		}
	}
	return append(env, "PATH="+path)
}

// linkPrograms creates a folder with the built-in programs, so that scripts can call them too. They are symbolic links
// to the executable self, which runs the program whose name it is called by.
func linkPrograms(self string) (folder string, err error) {
	folder, err = os.MkdirTemp("", "serin-programs-")
	if err != nil {
		return "", fmt.Errorf("create a folder for the built-in programs: %w", err)
	}
	for _, name := range load.Programs() {
		if err := os.Symlink(self, filepath.Join(folder, name)); err != nil {
			_ = os.RemoveAll(folder)
			return "", fmt.Errorf("link the built-in programs: %w", err)
		}
	}
	return folder, nil
}
