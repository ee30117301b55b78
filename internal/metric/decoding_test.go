package metric_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// newDocumentServer returns a client whose requests are answered at once.
func newDocumentServer() *outbound.Client {
	return outbound.NewThrough(roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
	}))
}

// TestResponsesAreDecodedInSlots: a hostile response needs forty times its length, and one namespace may receive 192 at once.
func TestResponsesAreDecodedInSlots(t *testing.T) {
	for _, c := range []struct {
		limit               func(context.Context, string) (context.Context, func())
		alone, concurrently int32
	}{{metric.LimitAnalysis, 3, 4}, {metric.LimitCanary, 1, 2}} {
		synctest.Test(t, func(t *testing.T) {
			client, decoded := newDocumentServer(), make(chan struct{})
			var inSlots atomic.Int32
			measure := func(ctx context.Context, namespace string) error {
				ctx, end := c.limit(ctx, namespace)
				defer end()
				for range 2 { // the slot is released before the second request
					if _, err := metric.Fetch(ctx, client, outbound.Request{URL: "https://metrics.test"}, nil); err != nil {
						return err
					}
				}
				inSlots.Add(1)
				defer inSlots.Add(-1)
				<-decoded
				return nil
			}
			errs := make(chan error, 30)
			start := func(ctx context.Context, namespace string) {
				go func() { errs <- measure(ctx, namespace) }()
				synctest.Wait()
			}
			for range 10 {
				start(t.Context(), "hostile")
			}
			if got := inSlots.Load(); got != c.alone {
				t.Errorf("one namespace decodes %d responses, want %d", got, c.alone)
			}
			start(t.Context(), "shop")
			if got := inSlots.Load(); got != c.alone+1 {
				t.Errorf("another namespace waits: %d responses are decoded, want %d", got, c.alone+1)
			}
			for i := range 10 {
				start(t.Context(), fmt.Sprint(i))
			}
			if got := inSlots.Load(); got != c.concurrently {
				t.Errorf("%d responses are decoded, want %d", got, c.concurrently)
			}
			timeout := errors.New("no time left")
			ctx, cancel := context.WithCancelCause(t.Context())
			start(ctx, "late")
			cancel(timeout)
			if err := <-errs; !errors.Is(err, timeout) {
				t.Errorf("a measurement whose time is over returned %v", err)
			}
			close(decoded)
			for range 21 {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestTheResponsesOfLibrariesAreDecodedInSlots: the library decodes the response after the request.
func TestTheResponsesOfLibrariesAreDecodedInSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := metric.LibraryClient(newDocumentServer(), metric.MaxAnswer, metric.DefaultTimeout)
		received := make(chan func(), 3)
		for i := range cap(received) {
			go func() {
				ctx, end := metric.LimitCanary(t.Context(), fmt.Sprint(i))
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://metrics.test", http.NoBody)
				if err != nil {
					t.Error(err)
				}
				response, err := client.Do(request)
				if err != nil {
					t.Error(err)
				} else {
					_ = response.Body.Close()
				}
				received <- end
			}()
		}
		synctest.Wait()
		if len(received) != 2 {
			t.Errorf("%d libraries decode a response, want 2", len(received))
		}
		for range cap(received) {
			(<-received)()
		}
	})
}
