package cli

import (
	"context"
	"errors"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

// The exit codes. They never change: scripts rely on them.
const (
	ExitDone        = 0 // success
	ExitFailed      = 1 // the release failed or was rolled back
	ExitUsage       = 2 // usage error
	ExitUserAction  = 3 // the release waits for user action
	ExitTimeout     = 4 // timeout while the release was in progress
	ExitNotFound    = 5 // there is no such release
	ExitUnreachable = 6 // the cluster is unreachable or denied access
	ExitCheck       = 7 // a check reported findings
)

// exitCodesHelp is the part of the help that lists the exit codes.
const exitCodesHelp = `Exit codes: 0 success, 1 the release failed or was rolled back, 2 usage error, 3 waits for user action,
4 timeout while in progress, 5 not found, 6 cluster unreachable or access denied, 7 a check reported findings.`

// ExitError is an error with its exit code.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the message for the user.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

func withExitCode(code int, err error) error { return &ExitError{Code: code, Err: err} }

// ExitCode returns the exit code of the process for an error. Errors from outside this package are usage errors.
func ExitCode(err error) int {
	var exitError *ExitError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &exitError):
		return exitError.Code
	case errors.Is(err, cluster.ErrNotFound):
		return ExitNotFound
	case errors.Is(err, cluster.ErrAmbiguous), errors.Is(err, cluster.ErrNoEffect), errors.Is(err, cluster.ErrRefused):
		return ExitUsage
	case errors.Is(err, cluster.ErrUnreachable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ExitUnreachable
	default:
		return ExitUsage
	}
}
