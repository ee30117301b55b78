//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// timeNamespace is the first argument with which the executable enters a time namespace and becomes another program.
const timeNamespace = "serin-chaos-time-namespace"

// inTimeNamespace returns the command that runs a program in a time namespace, whose monotonic clock and time since boot differ by
// the offset. The wall clock cannot differ: a time namespace does not contain it.
func inTimeNamespace(offset time.Duration, argv []string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the executable: %w", err)
	}
	return append([]string{self, timeNamespace, strconv.Itoa(int(offset.Seconds()))}, argv...), nil
}

// becomeProgram continues as the program of inTimeNamespace, if the process was started for that.
func becomeProgram() {
	if len(os.Args) < 4 || os.Args[1] != timeNamespace {
		return
	}
	fmt.Fprintf(os.Stderr, "enter a time namespace: %v\n", enterTimeNamespace(os.Args[2], os.Args[3:]))
	os.Exit(1)
}

// enterTimeNamespace returns only errors.
func enterTimeNamespace(offset string, argv []string) error {
	runtime.LockOSThread() // the namespace is that of a thread until it executes a program
	if err := unix.Unshare(unix.CLONE_NEWTIME); err != nil {
		return err
	}
	offsets := fmt.Sprintf("monotonic %s 0\nboottime %s 0\n", offset, offset)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/timens_offsets", unix.Gettid()), []byte(offsets), 0); err != nil {
		return err
	}
	return unix.Exec(argv[0], argv, os.Environ())
}
