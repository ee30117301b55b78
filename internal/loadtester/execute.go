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

// executor does tasks.
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

// do does one task and says what came of it.
func (e *executor) do(ctx context.Context, t task) result {
	ctx, cancel := context.WithTimeoutCause(ctx, e.timeout, fmt.Errorf("stopped after %s, the -timeout of the load tester", e.timeout))
	defer cancel()
	log := e.log.WithValues("canary", t.canary, "type", t.kind, "task", t.id(), "program", t.name())
	log.Info("Started task")
	began := e.clock.Now()
	var came result
	switch {
	case t.command != nil:
		came = e.runCommand(ctx, t)
	case t.concord != nil:
		came.err = e.runConcord(ctx, t.concord)
	case t.ngrinder != nil:
		came.err = e.runNGrinder(ctx, t.ngrinder)
	}
	values := []any{"duration", e.clock.Since(began).String(), "ok", came.err == nil}
	if t.logOutput {
		values = append(values, "output", came.output)
	}
	if came.err != nil && !t.logOutput {
		// The output may hold anything; whoever asked for it is told, and the log only where that was wanted.
		values = append(values, "why", why(came.err))
	}
	log.Info("Ended task", values...)
	return came
}

// failure is a command that failed.
type failure struct {
	program, output string
	cause           error
}

func (f *failure) Error() string {
	return fmt.Sprintf("command %s failed: %s: %v", f.program, f.output, f.cause)
}

func (f *failure) Unwrap() error { return f.cause }

// why is an error without the output of a command.
func why(err error) string {
	if failed, ok := errors.AsType[*failure](err); ok {
		return outbound.RedactError(failed.cause).Error()
	}
	return err.Error()
}

func (e *executor) runCommand(ctx context.Context, t task) result {
	var out output
	argv, builtIn, err := resolve(t.command, onPath)
	switch {
	case err != nil:
	case builtIn:
		err = load.Run(ctx, load.Options{Out: &out, Clock: e.clock, Policy: e.policy}, argv)
	default:
		err = runProcess(ctx, argv, e.env, &out)
	}
	text := out.String()
	if err != nil {
		return result{output: text, err: &failure{program: t.name(), output: text, cause: err}}
	}
	return result{output: text}
}

// resolve decides what is run for a command on an image with these programs: the program itself, what is built in under
// its name, or a shell.
func resolve(c *command, found func(program string) bool) (argv []string, builtIn bool, err error) {
	switch {
	case len(c.argv) > 0 && found(c.argv[0]):
		return c.argv, false, nil
	case len(c.argv) > 0 && load.Has(c.argv[0]):
		return c.argv, true, nil
	case c.shell != "" && found(c.shell):
		return []string{c.shell, "-c", c.line}, false, nil // it knows commands that are no programs, or says that this is none
	case len(c.argv) > 0:
		return nil, false, fmt.Errorf("this image has no program %.64q: use an image that has it", c.argv[0])
	default:
		return nil, false, fmt.Errorf("this image has no program %q: use an image that has it", c.shell)
	}
}

func onPath(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// environment is that of the load tester without its own secrets, and with the built-in programs at the end of the
// path: those of the image come first.
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

// linkPrograms makes a folder with the built-in programs, so that scripts can call them too. They are links to the
// program self, which does what the name says that it is called by.
func linkPrograms(self string) (folder string, err error) {
	folder, err = os.MkdirTemp("", "serin-programs-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the built-in programs: %w", err)
	}
	for _, name := range load.Programs() {
		if err := os.Symlink(self, filepath.Join(folder, name)); err != nil {
			_ = os.RemoveAll(folder)
			return "", fmt.Errorf("link the built-in programs: %w", err)
		}
	}
	return folder, nil
}
