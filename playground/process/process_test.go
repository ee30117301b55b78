//go:build linux

package process_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/serin-dev/serin/internal/waittest"
	"github.com/serin-dev/serin/playground/process"
)

// roleVariable makes this program one that the tests start.
const roleVariable = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "terminable": // ends on SIGTERM
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		fmt.Println("ready")
		<-terminated
		fmt.Println("bye")
	case "unterminable": // ends on SIGKILL only
		// Not select {}: the runtime ends a program whose only goroutine is blocked indefinitely.
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		fmt.Println("ready")
		for range terminated {
			continue
		}
	case "failing":
		fmt.Println("failed")
		os.Exit(3)
	}
}

func start(t *testing.T, g *process.Group, role string) *process.Process {
	t.Helper()
	p, err := g.Start(process.Spec{Name: role, Argv: []string{os.Args[0]}, Env: []string{roleVariable + "=" + role}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// waitForReadyLines waits until the program has printed the given total number of lines "ready".
func waitForReadyLines(t *testing.T, g *process.Group, name string, times int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%s has printed %d times that it is ready", name, times), func() error {
		if printed := g.Tail(name, 100); strings.Count(printed, "ready") != times {
			return fmt.Errorf("it printed %q", printed)
		}
		return nil
	})
}

func newGroup(t *testing.T) *process.Group {
	g := process.NewGroup(t.TempDir())
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestProgramThatEndsOnSIGTERMIsNotKilled(t *testing.T) {
	g := newGroup(t)
	p := start(t, g, "terminable")
	waitForReadyLines(t, g, "terminable", 1)
	if err := g.Terminate(t.Context(), "terminable"); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Err() != nil || g.Tail("terminable", 1) != "bye" {
		t.Errorf("ended with %v, the last line of its log is %q", p.Err(), g.Tail("terminable", 1))
	}
}

func TestProgramThatIgnoresSIGTERMIsKilled(t *testing.T) {
	g := newGroup(t)
	p := start(t, g, "unterminable")
	waitForReadyLines(t, g, "unterminable", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Terminate(ctx, "unterminable"); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Err() == nil {
		t.Error("Err() is nil, want the signal that killed it")
	}
}

func TestRestartStartsANewProcessWithTheSameLog(t *testing.T) {
	g := newGroup(t)
	first := start(t, g, "unterminable")
	waitForReadyLines(t, g, "unterminable", 1)
	if _, err := g.Start(first.Spec); err == nil {
		t.Error("the same program could be started twice")
	}
	second, err := g.Restart("unterminable")
	if err != nil {
		t.Fatal(err)
	}
	waitForReadyLines(t, g, "unterminable", 2)
	if first.Pid() == second.Pid() {
		t.Error("it is the same process")
	}
}

func TestExitStatusAndOutputOfAProgramAreReported(t *testing.T) {
	g := newGroup(t)
	p := start(t, g, "failing")
	<-p.Done()
	if p.Err() == nil || p.Err().Error() != "exit status 3" || g.Tail("failing", 5) != "failed" {
		t.Errorf("got %v, log %q", p.Err(), g.Tail("failing", 5))
	}
	if err := g.Kill("failing"); err != nil {
		t.Errorf("kill a program that has ended: %v", err)
	}
	if err := g.Kill("missing"); err == nil {
		t.Error("killed a program that was never started")
	}
}

func TestUsage(t *testing.T) {
	g := newGroup(t)
	start(t, g, "unterminable")
	waitForReadyLines(t, g, "unterminable", 1)
	u, err := g.Usage("unterminable")
	if err != nil || u.ResidentBytes < 1<<20 || u.FileBytes < 1<<18 || u.FileBytes >= u.ResidentBytes || u.CPUSeconds < 0 {
		t.Errorf("got %+v, %v", u, err)
	}
}
