//go:build unix

package loadtester

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/serin-dev/serin/internal/waittest"
)

// isRunning reports whether a process is running; a zombie is not.
func isRunning(t *testing.T, pid int) bool {
	t.Helper()
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// waitForExit waits until a killed process has ended, because the kernel delivers the signal asynchronously.
func waitForExit(t *testing.T, pid int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("process %d has ended", pid), func() error {
		if isRunning(t, pid) {
			return errors.New("it is running")
		}
		return nil
	})
}

func parsePIDs(t *testing.T, text string) []int {
	t.Helper()
	var all []int
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatalf("%q is not a process ID", field)
		}
		all = append(all, n)
	}
	return all
}

func TestChildProcessesEndWithTheCommand(t *testing.T) {
	var out output
	err := runProcess(t.Context(), []string{"sh", "-c", "sleep 1000 & echo $!; exit 3"}, os.Environ(), &out)
	if err == nil || err.Error() != "exit status 3" {
		t.Errorf("got %v", err)
	}
	for _, pid := range parsePIDs(t, out.String()) {
		waitForExit(t, pid)
	}
}

// lineSignaller closes written after the first line of output.
type lineSignaller struct {
	output
	written chan struct{}
}

func (s *lineSignaller) Write(p []byte) (int, error) {
	n, err := s.output.Write(p)
	if strings.Contains(string(p), "\n") {
		close(s.written)
	}
	return n, err
}

func TestStoppedCommandEndsWithItsGroup(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	out := &lineSignaller{written: make(chan struct{})}
	ended := make(chan error)
	go func() {
		ended <- runProcess(ctx, []string{"sh", "-c", "sleep 1000 & a=$!; (trap '' TERM; sleep 1000) & echo $$ $a $!; wait"}, os.Environ(), out)
	}()
	waittest.Receive(t, "the command has written its process IDs", out.written)
	cause := errors.New("time is over")
	cancel(cause)
	if err := waittest.Receive(t, "the command has ended", ended); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	pids := parsePIDs(t, out.String())
	if len(pids) != 3 {
		t.Fatalf("got %v", pids)
	}
	for _, pid := range pids {
		waitForExit(t, pid)
	}
}

func TestMissingProgramIsAnError(t *testing.T) {
	var out output
	if err := runProcess(t.Context(), []string{"/nowhere"}, nil, &out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
