package plugin

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Launch lowers the priority of this process, limits its memory, and replaces it with a plugin. The arguments are the limit in bytes, 0 for none, the
// path of the plugin and its arguments. A limit must be set before the plugin starts, by the user that it runs as: otherwise, Serin
// would need a capability to limit processes of others. It returns only if it fails.
func Launch(args []string) error {
	if len(args) < 2 {
		return errors.New("Serin starts this command itself: the arguments are a limit of memory and the path of a plugin") //nolint:staticcheck // a name
	}
	limit, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return fmt.Errorf("the limit of memory is not a number: %w", err)
	}
	// The attributes below are those of a thread, and the program inherits them from the thread that executes it. The signal at the end of
	// Serin was set for the first thread of this process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end the plugin with Serin: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up privileges: %w", err)
	}
	if err := lowerPriority(); err != nil {
		return fmt.Errorf("lower the priority of the plugin: %w", err)
	}
	limits := map[int]uint64{unix.RLIMIT_CORE: 0}
	if limit > 0 {
		limits[unix.RLIMIT_DATA] = limit
	}
	for resource, limit := range limits {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limit the memory of the plugin: %w", err)
		}
	}
	return fmt.Errorf("execute %s: %w", args[1], syscall.Exec(args[1], args[1:], os.Environ())) //nolint:gosec // the administrator configures it
}

// lowerPriority sets the nice value, unless that of Serin is higher already.
func lowerPriority() error {
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil || 20-priority >= niceness { // the system call returns 20 - nice
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
}

// newAttributes returns the attributes of a process that ends with Serin.
func newAttributes() (*syscall.SysProcAttr, error) {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}, nil
}
