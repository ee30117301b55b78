package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate runs a command in separate network and process namespaces, in which only 127.0.0.1 can be reached, and exits with
// its status. All processes of the command end with it, and with this process.
func isolate(argv []string) {
	// The kernel ends the child when the thread that started it ends (Pdeathsig).
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		die(fmt.Errorf("find the player's own program: %w", err))
	}
	command := exec.Command(self, append([]string{"isolated"}, argv...)...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		command.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	err = command.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &ended):
		os.Exit(max(ended.ExitCode(), 1))
	default:
		die(fmt.Errorf("start a lab: %w: run the player as root, or allow user namespaces (sysctl -w user.max_user_namespaces=10000, "+
			"on Ubuntu also sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)", err))
	}
}

// isolated is the program that isolate starts inside the namespaces.
func isolated(argv []string) {
	if err := startLoopback(); err != nil {
		die(fmt.Errorf("start the loopback device: %w", err))
	}
	die(fmt.Errorf("start %s: %w", argv[0], syscall.Exec(argv[0], argv, os.Environ())))
}

// startLoopback enables 127.0.0.1 in a new network namespace.
func startLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}
