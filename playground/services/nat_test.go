//go:build linux

package services_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/serin-dev/serin/internal/waittest"
	playground "github.com/serin-dev/serin/playground"
	"github.com/serin-dev/serin/playground/network"
	"github.com/serin-dev/serin/playground/services"
)

// roleVariable makes this program a server or client that a test runs in a pod's network namespace.
const roleVariable = "SERVICES_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := runRole(strings.Fields(role)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	playground.Enter(nil)
	os.Exit(m.Run())
}

// runRole runs one of two roles: "serve NAME" answers every connection to port 8080 with NAME; "dial ADDRESS TEXT" dials once
// for each character of TEXT and prints each answer in a line.
func runRole(role []string) error {
	if role[0] == "serve" {
		listener, err := net.Listen("tcp4", ":8080")
		if err != nil {
			return err
		}
		fmt.Println("listening")
		return serve(listener, role[1])
	}
	for range len(role[2]) {
		answer, err := dial(context.Background(), role[1])
		if err != nil {
			return err
		}
		fmt.Println(answer)
	}
	return nil
}

func serve(listener net.Listener, name string) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		if _, err := io.WriteString(conn, name); err != nil {
			return err
		}
		conn.Close()
	}
}

func dial(ctx context.Context, address string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func commandWithRole(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), roleVariable+"="+role)
	command.Stderr = os.Stderr
	return command
}

// startPod starts a server in a new network namespace.
func startPod(t *testing.T, n *network.Network, name string) *network.Namespace {
	t.Helper()
	ns, err := n.Namespace()
	if err != nil {
		t.Fatal(err)
	}
	command := commandWithRole(t, "serve "+name)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Start(command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	line := make([]byte, len("listening\n"))
	if _, err := io.ReadFull(output, line); err != nil {
		t.Fatalf("pod %s does not listen: %v", name, err)
	}
	return ns
}

func TestConnectionsToAServiceReachItsPods(t *testing.T) {
	n, err := network.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(services.Remove(), n.Close()); err != nil {
			t.Error(err)
		}
	})
	one, two := startPod(t, n, "one"), startPod(t, n, "two")
	const port = 8080
	backend := func(ns *network.Namespace) netip.AddrPort { return netip.AddrPortFrom(ns.Address, port) }
	address := netip.MustParseAddrPort("10.96.0.7:80")
	forward := func(backends ...netip.AddrPort) {
		t.Helper()
		err := services.Replace([]services.Forward{{Service: address, Protocol: services.TCP, Backends: backends}})
		if err != nil {
			t.Fatal(err)
		}
	}
	forward(backend(one), backend(two))

	// From the node. Fewer than 40 of 200 for one of two pods happen once in 10^18 times by chance.
	got := map[string]int{}
	for range 200 {
		answer, err := dial(t.Context(), address.String())
		if err != nil {
			t.Fatal(err)
		}
		got[answer]++
	}
	if got["one"]+got["two"] != 200 || got["one"] < 40 || got["two"] < 40 {
		t.Errorf("200 connections to two pods were answered by %v", got)
	}

	// From a pod, including connections that are forwarded to the same pod.
	client := commandWithRole(t, "dial "+address.String()+" "+strings.Repeat("x", 40))
	output, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Start(client); err != nil {
		t.Fatal(err)
	}
	answers, err := io.ReadAll(output)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Wait(); err != nil {
		t.Fatalf("%v: %s", err, answers)
	}
	if lines := strings.Fields(string(answers)); len(lines) != 40 || !strings.Contains(string(answers), "one") || !strings.Contains(string(answers), "two") {
		t.Errorf("connections from a pod were answered by %q", answers)
	}

	// One backend receives all connections; without backends they are refused.
	forward(backend(two))
	for range 20 {
		if answer, err := dial(t.Context(), address.String()); answer != "two" {
			t.Fatalf("got %q, %v, want two", answer, err)
		}
	}
	forward()
	for _, unserved := range []string{address.String(), "10.96.200.1:9"} {
		if answer, err := dial(t.Context(), unserved); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %q, %v, want ECONNREFUSED", unserved, answer, err)
		}
	}
}

// TestManyServicesAreForwarded covers a cluster with hundreds of releases: the kernel acknowledges thousands of rules at once.
func TestManyServicesAreForwarded(t *testing.T) {
	t.Cleanup(func() {
		if err := services.Remove(); err != nil {
			t.Error(err)
		}
	})
	var forwards []services.Forward
	for i := range 3000 {
		forwards = append(forwards, services.Forward{
			Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i / 250), byte(i%250 + 1)}), 80), Protocol: services.TCP,
			Backends: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i / 250), byte(i%250 + 1)}), 8080)},
		})
	}
	if err := services.Replace(forwards); err != nil {
		t.Fatal(err)
	}
}

// TestReplacingForwardsLosesNoConnection covers an unrelated change: the rules of all Services are replaced whenever an
// endpoint of any Service changes.
func TestReplacingForwardsLosesNoConnection(t *testing.T) {
	n, err := network.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(services.Remove(), n.Close()); err != nil {
			t.Error(err)
		}
	})
	server := startPod(t, n, "server")
	forward := services.Forward{
		Service: netip.MustParseAddrPort("10.96.0.7:80"), Protocol: services.TCP,
		Backends: []netip.AddrPort{netip.AddrPortFrom(server.Address, 8080)},
	}
	if err := services.Replace([]services.Forward{forward}); err != nil {
		t.Fatal(err)
	}
	finished := make(chan struct{})
	replaced := make(chan error, 1)
	go func() {
		for {
			select {
			case <-finished:
				replaced <- nil
				return
			default: // no busy loop: Replace waits for the kernel
			}
			if err := services.Replace([]services.Forward{forward}); err != nil {
				replaced <- err
				return
			}
		}
	}()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 500 {
				if answer, err := dial(t.Context(), forward.Service.String()); answer != "server" {
					t.Errorf("got %q, %v while rules were replaced by equal ones", answer, err)
					return
				}
			}
		})
	}
	clients.Wait()
	close(finished)
	if err := waittest.Receive(t, "the rules are no longer replaced", replaced); err != nil {
		t.Fatal(err)
	}
}
