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

// roleVariable makes this program the one that tests start.
const roleVariable = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "polite": // ends when asked
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		fmt.Println("ready")
		<-terminated
		fmt.Println("bye")
	case "deaf": // ends only when killed
		// Not select {}: a program whose only goroutine waits for nothing is ended by its runtime.
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		fmt.Println("ready")
		for range terminated {
			continue
		}
	case "broken":
		fmt.Println("broken as asked")
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

// ready waits until the program has said the given number of times in all that it is ready.
func ready(t *testing.T, g *process.Group, name string, times int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%s has printed %d times that it is ready", name, times), func() error {
		if printed := g.Tail(name, 100); strings.Count(printed, "ready") != times {
			return fmt.Errorf("it printed %q", printed)
		}
		return nil
	})
}

func group(t *testing.T) *process.Group {
	g := process.NewGroup(t.TempDir())
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestProgramThatEndsWhenAskedIsNotKilled(t *testing.T) {
	g := group(t)
	p := start(t, g, "polite")
	ready(t, g, "polite", 1)
	if err := g.Terminate(t.Context(), "polite"); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Err() != nil || g.Tail("polite", 1) != "bye" {
		t.Errorf("ended with %v, its last word was %q", p.Err(), g.Tail("polite", 1))
	}
}

func TestProgramThatDoesNotEndIsKilled(t *testing.T) {
	g := group(t)
	p := start(t, g, "deaf")
	ready(t, g, "deaf", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Terminate(ctx, "deaf"); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Err() == nil {
		t.Error("ended by itself")
	}
}

func TestRestartIsANewLifeInTheSameLog(t *testing.T) {
	g := group(t)
	first := start(t, g, "deaf")
	ready(t, g, "deaf", 1)
	if _, err := g.Start(first.Spec); err == nil {
		t.Error("the same program could be started twice")
	}
	second, err := g.Restart("deaf")
	if err != nil {
		t.Fatal(err)
	}
	ready(t, g, "deaf", 2)
	if first.Pid() == second.Pid() {
		t.Error("it is the same process")
	}
}

func TestEndOfAProgramIsTold(t *testing.T) {
	g := group(t)
	p := start(t, g, "broken")
	<-p.Done()
	if p.Err() == nil || p.Err().Error() != "exit status 3" || g.Tail("broken", 5) != "broken as asked" {
		t.Errorf("got %v, log %q", p.Err(), g.Tail("broken", 5))
	}
	if err := g.Kill("broken"); err != nil {
		t.Errorf("killing what has ended: %v", err)
	}
	if err := g.Kill("nobody"); err == nil {
		t.Error("killed a program that was never started")
	}
}

func TestUsage(t *testing.T) {
	g := group(t)
	start(t, g, "deaf")
	ready(t, g, "deaf", 1)
	u, err := g.Usage("deaf")
	if err != nil || u.ResidentBytes < 1<<20 || u.FileBytes < 1<<18 || u.FileBytes >= u.ResidentBytes || u.CPUSeconds < 0 {
		t.Errorf("got %+v, %v", u, err)
	}
}
