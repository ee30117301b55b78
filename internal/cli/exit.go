package cli

import (
	"context"
	"errors"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

// The exit codes. They are fixed for ever: scripts are written against them.
const (
	ExitDone        = 0 // done as asked
	ExitFailed      = 1 // the release failed or was rolled back
	ExitUsage       = 2 // the command line cannot be understood
	ExitPerson      = 3 // the release waits for a person
	ExitTimeout     = 4 // time was over while the release moved
	ExitNotFound    = 5 // there is no such release
	ExitUnreachable = 6 // the cluster is unreachable, or forbids it
	ExitCheck       = 7 // a check found something
)

// codes is the part of the help that says them.
const codes = `Exit codes: 0 done as asked, 1 the release failed or was rolled back, 2 wrong usage, 3 waits for a person,
4 timed out while moving, 5 not found, 6 cluster unreachable or forbidden, 7 a check found something.`

// ExitError is an error with the exit code that it means.
type ExitError struct {
	Code int
	Err  error
}

// Error is the sentence for a person.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *ExitError) Unwrap() error { return e.Err }

func exit(code int, err error) error { return &ExitError{Code: code, Err: err} }

// ExitCode is what a process ends with after that error. Errors that no command of this package made are those of the
// command line.
func ExitCode(err error) int {
	var coded *ExitError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &coded):
		return coded.Code
	case errors.Is(err, cluster.ErrNotFound):
		return ExitNotFound
	case errors.Is(err, cluster.ErrAmbiguous), errors.Is(err, cluster.ErrPointless):
		return ExitUsage
	case errors.Is(err, cluster.ErrUnreachable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ExitUnreachable
	default:
		return ExitUsage
	}
}
