//go:build !unix

package loadtester

import "os/exec"

// lead does nothing: without process groups the program alone is killed at the end of the context.
func lead(*exec.Cmd) {}

// killGroup does nothing, because there are no groups.
func killGroup(*exec.Cmd) {}
