package waittest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failureRecorder records the failure of a test instead of failing it.
type failureRecorder struct {
	testing.TB
	message string
}

func (f *failureRecorder) Helper()                  {}
func (f *failureRecorder) Context() context.Context { return f.TB.Context() }
func (f *failureRecorder) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs a wait and returns the message with which it failed.
func failure(t *testing.T, wait func(tb testing.TB)) string {
	t.Helper()
	f := &failureRecorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait(f)
	}()
	<-done
	return f.message
}

func TestUntilReturnsWhenTheConditionIsMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, evaluations := time.Now(), 0
		Until(t, "the third evaluation", func() error {
			if evaluations++; evaluations < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if took := time.Since(began); evaluations != 3 || took != 2*pollInterval {
			t.Errorf("%d evaluations in %s, want 3 with a pause between them", evaluations, took)
		}
	})
}

func TestAWaitThatFailsReportsTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evaluations := 0
		got := failure(t, func(tb testing.TB) {
			Until(tb, "the pod is ready", func() error {
				evaluations++
				return fmt.Errorf("evaluation %d", evaluations)
			})
		})
		want := fmt.Sprintf("wait until the pod is ready: it took more than 3m0s; last state: evaluation %d", evaluations)
		if got != want {
			t.Errorf("failed with %q, want %q", got, want)
		}
		got = failure(t, func(tb testing.TB) { UntilContains(tb, func() string { return "half" }, "whole") })
		if !strings.HasSuffix(got, `last state: "half"`) {
			t.Errorf("failed with %q", got)
		}
		got = failure(t, func(tb testing.TB) { _ = Receive(tb, "the server ends", make(chan error)) })
		if want := "wait until the server ends: it took more than 3m0s"; got != want {
			t.Errorf("failed with %q, want %q", got, want)
		}
	})
}

func TestReceiveReturnsTheValueOrTheEnd(t *testing.T) {
	from := make(chan int, 1)
	from <- 7
	if got := Receive(t, "a value is sent", from); got != 7 {
		t.Errorf("got %d", got)
	}
	close(from)
	if got := Receive(t, "the channel is closed", from); got != 0 {
		t.Errorf("got %d", got)
	}
}
