package loadtester

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// terminationGracePeriod is the time between SIGTERM and SIGKILL, and the time that the output may take to end after the process.
const terminationGracePeriod = 5 * time.Second

// runProcess runs a program in its own process group and writes the group's output to out. When the program ends, or the
// context does, it kills the rest of the group before it returns, so that no child process survives.
func runProcess(ctx context.Context, argv, env []string, out io.Writer) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("create a pipe: %w", err)
	}
	defer reader.Close()
	// With a pipe of exec.Cmd, Wait would wait for children of the program that have it open.
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // a load tester runs the commands of webhooks
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, writer, writer, terminationGracePeriod
	leadProcessGroup(cmd)
	err = cmd.Start()
	_ = writer.Close()
	if err != nil {
		return err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(out, reader) // ends when all writers have closed the pipe, or the reader is closed
	}()
	err = cmd.Wait()
	killGroup(cmd)
	timer := time.AfterFunc(terminationGracePeriod, func() { _ = reader.Close() }) //nolint:forbidigo // a process that left its group runs on the real clock
	<-read
	timer.Stop()
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	return err
}
