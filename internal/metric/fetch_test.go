package metric_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// roundTripper is a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTimeoutOfAUserIsLimited: a request with any timeout would occupy a connection for years.
func TestTimeoutOfAUserIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := outbound.NewThrough(roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		began := time.Now() // the clock of the test is virtual
		_, err := metric.Fetch(t.Context(), client, outbound.Request{URL: "https://prometheus.test", Timeout: 1_000_000 * time.Second}, nil)
		if took := time.Since(began); took != metric.MaxTimeout || err == nil {
			t.Errorf("error %v after %s", err, took)
		}
	})
}

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
