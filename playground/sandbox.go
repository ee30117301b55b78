//go:build linux

// Package playground moves a program into a sandbox: a private set of network,
// mount and process namespaces that holds a whole cluster and that no request
// leaves.
//
// It must not know what runs in the sandbox; package cluster does.
package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serin-dev/serin/playground/network"
	"github.com/serin-dev/serin/playground/podroot"
)

// forwardListenersVariable contains the number of inherited listeners. A process in whose environment it is set is the inner one.
const forwardListenersVariable = "SERIN_PLAYGROUND_DOORS"

// forwardListenerCount bounds how many addresses of the sandbox can be exposed outside. Listeners belong to the network namespace
// in which they were created, so all of them are created before their targets are known.
const forwardListenerCount = 8

// firstListenerFD is the descriptor of the first inherited listener; 0 to 2 are the standard ones.
const firstListenerFD = 3

// expiredDeadline is a deadline in the past, which ends an Accept in progress.
var expiredDeadline = time.Unix(1, 0)

// Sandbox is the set of namespaces in which the program runs after Enter.
type Sandbox struct {
	mu        sync.Mutex
	listeners []*net.TCPListener
}

// Enter restarts the program inside a sandbox and returns only there. It must come first in main or TestMain, before any
// goroutine is started, any file is opened or the environment is read. Outside, it runs prepare (which may be nil) while the
// network of the machine is still reachable, waits for the inner program and exits with its exit code. If the outer program
// ends, even by SIGKILL, all processes inside are killed.
//
// If the machine does not permit namespaces, Enter prints an error message and exits with 1.
func Enter(prepare func(context.Context) error) *Sandbox {
	ctx := context.Background() //nolint:forbidigo // Enter is the first half of main, where contexts come from
	podroot.BecomePod()
	if inside := os.Getenv(forwardListenersVariable); inside != "" {
		sandbox, err := initializeNamespaces(inside)
		if err != nil {
			exit(explainNamespaceError(err))
		}
		return sandbox
	}

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if prepare != nil {
		preparing, cancel := context.WithCancel(ctx)
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			err = prepare(preparing)
		}()
		select {
		case <-done:
		case <-signals:
			cancel()
			<-done
			os.Exit(130)
		}
		cancel()
		if err != nil {
			exit(err)
		}
	}
	code, err := runInside(ctx, signals)
	if err != nil {
		exit(explainNamespaceError(err))
	}
	os.Exit(code)
	return nil
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// explainNamespaceError adds to an error of the kernel what the user can do about it.
func explainNamespaceError(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return fmt.Errorf("this machine does not permit user %d to create network, mount and process namespaces (%w): run the playground "+
		"as root, or allow user namespaces (sysctl -w user.max_user_namespaces=10000, on Ubuntu also "+
		"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0), or, in a container, start that with --privileged",
		os.Getuid(), err)
}

// runInside is the outer half: it starts the inner program and waits for its end.
func runInside(ctx context.Context, signals <-chan os.Signal) (int, error) {
	// The kernel kills the child when the thread that created it ends (Pdeathsig), so this goroutine is locked to its thread.
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find the executable: %w", err)
	}
	var files []*os.File
	for range forwardListenerCount {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("listen on 127.0.0.1: %w", err)
		}
		file, err := listener.(*net.TCPListener).File()
		if err != nil {
			return 0, fmt.Errorf("pass on a listener: %w", err)
		}
		listener.Close()
		defer file.Close()
		files = append(files, file)
	}

	start := func(flags uintptr) (*exec.Cmd, error) {
		command := exec.CommandContext(ctx, self, os.Args[1:]...)
		command.Env = append(os.Environ(), forwardListenersVariable+"="+strconv.Itoa(forwardListenerCount))
		command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
		command.ExtraFiles = files
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: unix.SIGKILL}
		if flags&unix.CLONE_NEWUSER != 0 {
			command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		return command, command.Start()
	}
	const namespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	command, err := start(namespaces)
	if errors.Is(err, unix.EPERM) {
		command, err = start(namespaces | unix.CLONE_NEWUSER)
	}
	if err != nil {
		return 0, err
	}

	go func() {
		for s := range signals {
			_ = command.Process.Signal(s) // the process may just have ended
		}
	}()
	err = command.Wait()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return ended.ExitCode(), nil
	}
	return 0, err
}

// initializeNamespaces is the inner half: it sets up mounts, the loopback interface and name resolution in the new namespaces.
func initializeNamespaces(listenerCount string) (*Sandbox, error) {
	count, err := strconv.Atoi(listenerCount)
	if err != nil {
		return nil, fmt.Errorf("%s is %q: unset it", forwardListenersVariable, listenerCount)
	}
	// Programs started from here must not act as inner halves, and the proxies of the machine are not reachable.
	for _, name := range []string{
		forwardListenersVariable, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy",
	} {
		os.Unsetenv(name)
	}
	sandbox := &Sandbox{}
	for i := range count {
		file := os.NewFile(uintptr(firstListenerFD+i), "listener")
		listener, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("inherit a listener: %w", err)
		}
		sandbox.listeners = append(sandbox.listeners, listener.(*net.TCPListener))
	}
	// Otherwise mounts created here would appear outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	// The inherited /proc shows the process IDs of the outer namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	if err := network.StartLoopback(); err != nil {
		return nil, err
	}
	if err := useOwnResolver(); err != nil {
		return nil, err
	}
	return sandbox, nil
}

// useOwnResolver points the programs in the sandbox to its DNS server. Pods have a resolv.conf of their own.
func useOwnResolver() error {
	file, err := os.CreateTemp("", "resolv.conf-")
	if err != nil {
		return fmt.Errorf("write resolv.conf: %w", err)
	}
	defer os.Remove(file.Name()) // the mount keeps the file alive
	defer file.Close()
	if _, err := file.WriteString(network.ResolvConf("")); err != nil {
		return fmt.Errorf("write resolv.conf: %w", err)
	}
	err = unix.Mount(file.Name(), "/etc/resolv.conf", "", unix.MS_BIND, "")
	if errors.Is(err, unix.ENOENT) {
		return nil // without the file, resolvers query 127.0.0.1, where the DNS server listens too
	}
	if err != nil {
		return fmt.Errorf("replace /etc/resolv.conf: %w", err)
	}
	return nil
}

// Expose forwards an address on 127.0.0.1 of the machine to a TCP address in the sandbox, until ctx ends, and returns the address
// on the machine. It returns an error when all listeners are in use.
func (s *Sandbox) Expose(ctx context.Context, address string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners) == 0 {
		return "", fmt.Errorf("expose %s: all %d addresses are in use", address, forwardListenerCount)
	}
	listener := s.listeners[0]
	s.listeners = s.listeners[1:]
	stop := context.AfterFunc(ctx, func() { _ = listener.SetDeadline(expiredDeadline) })
	go func() {
		defer stop()
		for {
			outside, err := listener.Accept()
			if err != nil {
				break
			}
			go copyBothWays(ctx, outside, address)
		}
		_ = listener.SetDeadline(time.Time{}) // the next use must not end at once
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listeners = append(s.listeners, listener) // for the next cluster of this process
	}()
	return listener.Addr().String(), nil
}

// copyBothWays copies bytes in both directions until one side closes its connection.
func copyBothWays(ctx context.Context, outside net.Conn, address string) {
	defer outside.Close()
	var dialer net.Dialer
	inside, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return // the client outside sees a closed connection, as with a server that is down
	}
	defer inside.Close()
	stop := context.AfterFunc(ctx, func() { outside.Close(); inside.Close() })
	defer stop()
	back := make(chan struct{})
	go func() {
		defer close(back)
		// An error means that one side has closed its connection; closing the other passes that on.
		_, _ = io.Copy(outside, inside)
		_ = outside.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(inside, outside)
	_ = inside.(*net.TCPConn).CloseWrite()
	<-back
}
