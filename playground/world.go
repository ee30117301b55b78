//go:build linux

// Package playground moves a program into a world of its own: one private set
// of network, mount and process namespaces in which a whole cluster fits and
// which nothing leaves.
//
// It must not know what runs in that world; package cluster does.
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

// forwardListenersVariable carries the number of inherited listeners and marks a process as the inner one.
const forwardListenersVariable = "SERIN_PLAYGROUND_DOORS"

// forwardListenerCount bounds how many addresses of the world can be shown outside. Listeners belong to the network namespace in
// which they were made, so all are made before anybody knows what they are for.
const forwardListenerCount = 8

// firstListenerFD is the descriptor of the first inherited listener; 0 to 2 are the standard ones.
const firstListenerFD = 3

// stageVariable is a deadline that ends an Accept under way.
var stageVariable = time.Unix(1, 0)

// World is where the program runs after Enter.
type World struct {
	mu        sync.Mutex
	listeners []*net.TCPListener
}

// Enter restarts the program inside a world of its own and returns only there. It must come first in main or TestMain,
// before any goroutine, file or look at the environment. Outside, it runs prepare (nil is none) while the network of the machine can still
// be reached, waits for the inner program and exits with its code; the death of the outer program, however violent,
// kills everything inside.
//
// Where the machine allows no namespaces it says so in one sentence and exits with 1.
func Enter(prepare func(context.Context) error) *World {
	ctx := context.Background() //nolint:forbidigo // Enter is the first half of main, where contexts come from
	podroot.BecomePod()
	if inside := os.Getenv(forwardListenersVariable); inside != "" {
		world, err := initializeNamespaces(inside)
		if err != nil {
			exit(explainNamespaceError(err))
		}
		return world
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
			<-done // it was interrupted
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

// explainNamespaceError turns the kernel's answer into what a person can do about it.
func explainNamespaceError(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return fmt.Errorf("this machine does not let user %d make network, mount and process namespaces (%w): run the playground "+
		"as root, or allow user namespaces (sysctl -w user.max_user_namespaces=10000, on Ubuntu also "+
		"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0), or, in a container, start that with --privileged",
		os.Getuid(), err)
}

// runInside is the outer half: it starts the inner program and waits for its end.
func runInside(ctx context.Context, signals <-chan os.Signal) (int, error) {
	// The kernel ends the child when the thread that made it ends (Pdeathsig), so this goroutine keeps its thread.
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find the own program: %w", err)
	}
	var files []*os.File
	for range forwardListenerCount {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("listen on 127.0.0.1: %w", err)
		}
		file, err := listener.(*net.TCPListener).File()
		if err != nil {
			return 0, fmt.Errorf("hand on a listener: %w", err)
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
	const own = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	command, err := start(own)
	if errors.Is(err, unix.EPERM) {
		command, err = start(own | unix.CLONE_NEWUSER)
	}
	if err != nil {
		return 0, err
	}

	go func() {
		for s := range signals {
			_ = command.Process.Signal(s) // a process that has just ended needs no signal
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

// initializeNamespaces is the inner half: it makes the new namespaces fit to live in.
func initializeNamespaces(doors string) (*World, error) {
	count, err := strconv.Atoi(doors)
	if err != nil {
		return nil, fmt.Errorf("%s is %q: unset it", forwardListenersVariable, doors)
	}
	// Programs started from here are no inner halves, and no proxy of the machine can be reached.
	for _, name := range []string{
		forwardListenersVariable, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy",
	} {
		os.Unsetenv(name)
	}
	world := &World{}
	for i := range count {
		file := os.NewFile(uintptr(firstListenerFD+i), "door")
		listener, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("take over a listener: %w", err)
		}
		world.listeners = append(world.listeners, listener.(*net.TCPListener))
	}
	// Without this, mounts made here would appear outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	// The numbers in the old /proc are those of the outer process namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	if err := network.StartLoopback(); err != nil {
		return nil, err
	}
	if err := useOwnResolver(); err != nil {
		return nil, err
	}
	return world, nil
}

// useOwnResolver points the programs of this world, but for pods, which have a file of their own, to its DNS server.
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
		return nil // without the file resolvers ask 127.0.0.1, where the DNS server listens too
	}
	if err != nil {
		return fmt.Errorf("replace /etc/resolv.conf: %w", err)
	}
	return nil
}

// Expose shows a TCP address of this world on 127.0.0.1 of the machine and returns that address. The way stays open
// until ctx ends. There is an error when all doors are in use.
func (w *World) Expose(ctx context.Context, address string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.listeners) == 0 {
		return "", fmt.Errorf("show %s outside: all %d addresses are in use", address, forwardListenerCount)
	}
	door := w.listeners[0]
	w.listeners = w.listeners[1:]
	stop := context.AfterFunc(ctx, func() { _ = door.SetDeadline(stageVariable) })
	go func() {
		defer stop()
		for {
			outside, err := door.Accept()
			if err != nil {
				break
			}
			go copyBothWays(ctx, outside, address)
		}
		_ = door.SetDeadline(time.Time{}) // none; the door cannot be closed
		w.mu.Lock()
		defer w.mu.Unlock()
		w.listeners = append(w.listeners, door) // the next cluster of this process may use it
	}()
	return door.Addr().String(), nil
}

// copyBothWays carries bytes both ways until one side ends.
func copyBothWays(ctx context.Context, outside net.Conn, address string) {
	defer outside.Close()
	var dialer net.Dialer
	inside, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return // the caller outside sees a closed connection, as of a server that is down
	}
	defer inside.Close()
	stop := context.AfterFunc(ctx, func() { outside.Close(); inside.Close() })
	defer stop()
	back := make(chan struct{})
	go func() {
		defer close(back)
		// An error here is the end of one side, and the other is told just that.
		_, _ = io.Copy(outside, inside)
		_ = outside.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(inside, outside)
	_ = inside.(*net.TCPConn).CloseWrite()
	<-back
}
