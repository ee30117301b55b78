// Package waittest lets tests wait for conditions that other goroutines, processes and clusters fulfil.
//
// Every wait has a deadline, pauses between two evaluations, and reports the last state when it fails. The deadline only
// ends a wait that would never end: it is far longer than any condition needs on a busy machine, and no test may depend
// on its length. The package must not know the conditions of a test.
package waittest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Timeout is the deadline of a wait. It is shorter than the time after which go test ends a package, so that the
// failure names the condition and the last state.
const Timeout = 3 * time.Minute

// pollInterval is the pause between two evaluations of a condition.
const pollInterval = 5 * time.Millisecond

// Until evaluates a condition until it returns nil. what completes the sentence "wait until …". When the deadline
// passes, or the test's context ends, the test fails with the condition's last error.
func Until(tb testing.TB, what string, condition func() error) {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(tb.Context(), Timeout, fmt.Errorf("it took more than %s", Timeout))
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		last := condition()
		if last == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			tb.Fatalf("wait until %s: %v; last state: %v", what, context.Cause(ctx), last)
		}
	}
}

// UntilContains waits until a text, such as the output of a program, contains a part.
func UntilContains(tb testing.TB, text func() string, part string) {
	tb.Helper()
	Until(tb, fmt.Sprintf("%q appears", part), func() error {
		if current := text(); !strings.Contains(current, part) {
			return fmt.Errorf("%q", current)
		}
		return nil
	})
}

// Receive returns the next value of a channel. It returns the zero value when the channel is closed, so that it also
// waits for the end that a closed channel announces. what completes the sentence "wait until …".
func Receive[T any](tb testing.TB, what string, from <-chan T) T {
	tb.Helper()
	deadline := time.NewTimer(Timeout)
	defer deadline.Stop()
	select {
	case value := <-from:
		return value
	case <-deadline.C:
		tb.Fatalf("wait until %s: it took more than %s", what, Timeout)
		panic("unreachable: Fatalf ended the goroutine")
	}
}
