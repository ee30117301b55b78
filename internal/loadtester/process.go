package loadtester

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// grace is how long a process has to end by itself when it is asked to, and its output to come to an end after it.
const grace = 5 * time.Second

// runProcess runs a program in a process group of its own and returns when nothing of that group is left: neither at
// the end of the context, nor at its own end, does a program leave others behind. What they write goes to out.
func runProcess(ctx context.Context, argv, env []string, out io.Writer) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer reader.Close()
	// The pipe is ours and not exec's, whose Wait would wait for children of the program that hold it open.
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // to run commands is what this is for
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, writer, writer, grace
	lead(cmd)
	err = cmd.Start()
	_ = writer.Close()
	if err != nil {
		return err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(out, reader) // ends when nobody can write any more, or the reader is closed
	}()
	err = cmd.Wait()
	killGroup(cmd)
	timer := time.AfterFunc(grace, func() { _ = reader.Close() }) //nolint:forbidigo // a process that left its group lives by the real clock
	<-read
	timer.Stop()
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	return err
}
