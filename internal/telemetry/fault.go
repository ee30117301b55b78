package telemetry

import (
	"errors"
	"fmt"
	"runtime"
)

var errInternal = errors.New("a panic whose text is not shown")

// PanicError is a recovered panic as it may be logged and shown. Only the runtime's own words are safe; any other value may
// carry what was being sent.
func PanicError(cause any) error {
	if fault, ok := cause.(runtime.Error); ok {
		return fmt.Errorf("panic: %w", fault)
	}
	return errInternal
}
