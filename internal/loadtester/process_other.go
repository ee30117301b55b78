//go:build !unix

package loadtester

import "os/exec"

// leadProcessGroup does nothing: without process groups, only the program itself is killed when the context ends.
func leadProcessGroup(*exec.Cmd) {}

// killGroup does nothing, because this platform has no process groups.
func killGroup(*exec.Cmd) {}
