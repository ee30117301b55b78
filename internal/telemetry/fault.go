package telemetry

import (
	"errors"
	"fmt"
	"runtime"
)

var errFault = errors.New("a panic whose text is not shown")

// Fault is a recovered panic as it may be logged and shown. Only the runtime's own words are safe; any other value may
// carry what was being sent.
func Fault(cause any) error {
	if fault, ok := cause.(runtime.Error); ok {
		return fmt.Errorf("panic: %w", fault)
	}
	return errFault
}
