package telemetry

import (
	"errors"
	"fmt"
	"runtime"
)

var errInternal = errors.New("a panic whose text is not shown")

// PanicError returns a recovered panic as an error that may be logged and shown to users. Only texts of the Go runtime are
// safe; any other value may contain the data that was being sent.
func PanicError(cause any) error {
	if runtimeErr, ok := cause.(runtime.Error); ok {
		return fmt.Errorf("panic: %w", runtimeErr)
	}
	return errInternal
}
