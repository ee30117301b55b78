package metric_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// TestRequestsThatMayStartSomethingAreNotShared: the server answers both requests only when it has received both.
func TestRequestsThatMayStartSomethingAreNotShared(t *testing.T) {
	both, received := make(chan struct{}), atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if received.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			if _, err := metric.Fetch(t.Context(), client, outbound.Request{Method: http.MethodPost, URL: server.URL}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
}
