//go:build !linux

package plugin

import (
	"errors"
	"syscall"
)

// errNotLinux is the error on platforms without the means to limit a plugin.
var errNotLinux = errors.New("plugins can be called on Linux only, because other systems lack the limits for their processes")

// Launch would become a plugin; see the implementation for Linux.
func Launch([]string) error { return errNotLinux }

func newAttributes() (*syscall.SysProcAttr, error) { return nil, errNotLinux }
