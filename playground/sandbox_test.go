//go:build linux

package playground_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	playground "github.com/serin-dev/serin/playground"
)

// roleVariable makes this program one that enters a sandbox.
const roleVariable = "WORLD_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	prepare := func(context.Context) error {
		if role == "unprepared" {
			return errors.New("build failed")
		}
		fmt.Println("prepared in process", os.Getpid() > 1)
		return nil
	}
	sandbox := playground.Enter(prepare)
	switch role {
	case "exit":
		os.Exit(7)
	case "alone":
		interfaces, err := net.Interfaces()
		fmt.Println(len(interfaces), err, "process", os.Getpid())
	case "serve":
		listener, err := net.Listen("tcp4", "127.0.0.1:80")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		address, err := sandbox.Expose(context.Background(), "127.0.0.1:80")
		fmt.Println(address, err)
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "from inside") }))
	}
}

func commandWithRole(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), roleVariable+"="+role)
	command.Stderr = os.Stderr
	return command
}

func TestOuterProgramExitsWithTheExitCodeOfTheInnerProgram(t *testing.T) {
	err := commandWithRole(t, "exit").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("Run() = %v, want exit code 7", err)
	}
}

func TestSandboxHasOneProcessAndLoopbackOnly(t *testing.T) {
	output, err := commandWithRole(t, "alone").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "prepared in process true\n1 <nil> process 1\n"; string(output) != want {
		t.Errorf("got %q, want %q", output, want)
	}
}

func TestFailedPreparationPreventsTheStart(t *testing.T) {
	command := commandWithRole(t, "unprepared")
	command.Stderr = nil
	_, err := command.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || string(exit.Stderr) != "build failed\n" {
		t.Errorf("Output() = %v, want exit code 1 and the error of prepare on stderr", err)
	}
}

func TestExposedAddressIsReachedFromOutsideUntilTheOuterProcessDies(t *testing.T) {
	command := commandWithRole(t, "serve")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	if _, err := lines.ReadString('\n'); err != nil { // prepared
		t.Fatal(err)
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(line, " ")
	response, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "from inside" {
		t.Errorf("got %q, %v", body, err)
	}
	if err := command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The inner process holds the other end of the pipe, so the pipe ends with it.
	if output, err := io.ReadAll(lines); err != nil || len(output) > 0 {
		t.Errorf("output after SIGKILL: %q, %v", output, err)
	}
	_ = command.Wait() // it was killed
	if _, err := net.Dial("tcp4", address); err == nil {
		t.Errorf("%s still accepts connections", address)
	}
}
