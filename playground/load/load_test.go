package load_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/playground/load"
)

// sendAtLeast sends at least n requests to handler and returns all of them.
func sendAtLeast(t *testing.T, n int, o load.Options, handler http.HandlerFunc) []load.Sample {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	o.URL, o.Rate = server.URL, 2000
	l, err := load.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.WaitFor(t.Context(), func(c load.Counts) bool { return c.Requests >= n }); err != nil {
		t.Fatal(err)
	}
	l.Stop()
	return l.Samples()
}

func TestRequestsAreCountedByVersion(t *testing.T) {
	var n atomic.Int64
	samples := sendAtLeast(t, 100, load.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		i := n.Add(1)
		w.Header().Set("X-Version", fmt.Sprintf("v%d", 1+i%2))
		if i%10 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	got := load.CountSamples(samples)
	all := int(n.Load())
	if got.Requests != all || got.Lost != 0 || got.Errors != all/10 || got.Failed() != all/10 {
		t.Errorf("got %+v after %d requests", got, all)
	}
	if got.ByVersion["v1"].Requests != all/2 || got.ByVersion["v1"].Errors != all/10 || got.ByVersion["v2"].Errors != 0 {
		t.Errorf("by version %+v after %d requests, of which each tenth failed in v1", got.ByVersion, all)
	}
}

func TestAbortedRequestIsLostAndNotRetried(t *testing.T) {
	var n atomic.Int64
	samples := sendAtLeast(t, 50, load.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%5 == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Version", "v1")
	})
	got := load.CountSamples(samples)
	if all := int(n.Load()); got.Requests != all || got.Lost != all/5 {
		t.Errorf("the server received %d requests and aborted each fifth, but the counts are %s", all, got)
	}
}

func TestProtocolOfTheRequests(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var major atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			major.Store(int64(r.ProtoMajor))
			w.Header().Set("X-Version", "v1")
		}))
		server.Config.Protocols = &http.Protocols{}
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		defer server.Close()
		l, err := load.Start(t.Context(), load.Options{URL: server.URL, Rate: 2000, HTTP2: http2})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.WaitFor(t.Context(), func(c load.Counts) bool { return c.Requests >= 10 }); err != nil {
			t.Fatal(err)
		}
		l.Stop()
		if counts := l.Counts(); counts.Failed() != 0 || (major.Load() == 2) != http2 {
			t.Errorf("with HTTP2 %t, the server received HTTP/%d: %s", http2, major.Load(), counts)
		}
	}
}

func TestAnswerOfTheGatewayCountsAsLost(t *testing.T) {
	got := load.CountSamples(sendAtLeast(t, 10, load.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	if got.Lost != got.Requests || got.Reasons["the gateway answered 502"] != got.Requests {
		t.Errorf("got %s", got)
	}
}

func TestEachUserHasItsOwnCookies(t *testing.T) {
	var n atomic.Int64
	samples := sendAtLeast(t, 100, load.Options{Users: 4, Header: http.Header{"X-Kind": {"insider"}}, Host: "cart.test"},
		func(w http.ResponseWriter, r *http.Request) {
			if r.Host != "cart.test" || r.Header.Get("X-Kind") != "insider" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			cookie, err := r.Cookie("id")
			if err != nil {
				cookie = &http.Cookie{Name: "id", Value: fmt.Sprint(n.Add(1))}
				http.SetCookie(w, cookie)
			}
			w.Header().Set("X-Version", cookie.Value)
		})
	last := map[int]string{}
	for _, s := range samples {
		last[s.User] = s.Version
	}
	owner := map[string]int{}
	for user, id := range last {
		if other, taken := owner[id]; taken || id == "" {
			t.Errorf("users %d and %d share the cookie %q", user, other, id)
		}
		owner[id] = user
	}
	if len(last) != 4 {
		t.Errorf("%d users sent requests, want 4", len(last))
	}
}

func TestCountsSinceAreTheDifference(t *testing.T) {
	at := func(second int, version string, status int) load.Sample {
		return load.Sample{StartedAt: time.Unix(int64(second), 0), Version: version, Status: status, Duration: time.Second}
	}
	early := []load.Sample{at(1, "v1", 200), at(2, "", 0)}
	all := append(early, at(3, "v1", 500), at(4, "v2", 200))
	want := load.Counts{
		Requests: 2, Errors: 1, Reasons: map[string]int{},
		ByVersion: map[string]load.VersionCounts{
			"v1": {Requests: 1, Errors: 1, Slowest: time.Second}, "v2": {Requests: 1, Slowest: time.Second},
		},
	}
	if diff := cmp.Diff(want, load.CountSamples(all).Since(load.CountSamples(early))); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
}

func TestWaitForReturnsAnErrorWhenItsContextEnds(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	l, err := load.Start(t.Context(), load.Options{URL: server.URL, Rate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	err = l.WaitFor(ctx, func(c load.Counts) bool {
		if c.Requests > 0 {
			cancel()
		}
		return false
	})
	if err == nil {
		t.Error("WaitFor() = nil, want an error")
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	for _, o := range []load.Options{{URL: "http://x"}, {URL: "http://x", Rate: -1}, {URL: "http://x", Rate: 1, Users: -1}, {URL: ":", Rate: 1}} {
		if err := o.Validate(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// slowBounds computes the bounds from a full row of the binomial distribution, as a second implementation.
func slowBounds(n int, p, tail float64) (low, high int) {
	row := []float64{1}
	for range n {
		next := make([]float64, len(row)+1)
		for k, v := range row {
			next[k] += v * (1 - p)
			next[k+1] += v * p
		}
		row = next
	}
	sum := 0.0
	for low = 0; low < n; low++ {
		if sum += row[low]; sum > tail {
			break
		}
	}
	sum = 0
	for high = n; high > 0; high-- {
		if sum += row[high]; sum > tail {
			break
		}
	}
	return low, high
}

func TestBoundsAreExact(t *testing.T) {
	for _, n := range []int{0, 1, 2, 10, 137, 400} {
		for _, p := range []float64{0, 0.01, 0.2, 0.5, 0.97, 1} {
			for _, tail := range []float64{1e-9, 1e-3, 0.1} {
				low, high := load.BinomialBounds(n, p, tail)
				wantLow, wantHigh := slowBounds(n, p, tail)
				if low != wantLow || high != wantHigh {
					t.Errorf("BinomialBounds(%d, %v, %v) = %d, %d, want %d, %d", n, p, tail, low, high, wantLow, wantHigh)
				}
			}
		}
	}
	low, high := load.BinomialBounds(100_000, 0.2, 1e-9)
	if spread := math.Sqrt(100_000 * 0.2 * 0.8); float64(high-low) > 14*spread || low >= 20_000 || high <= 20_000 {
		t.Errorf("bounds of 100000 at 0.2 are %d and %d", low, high)
	}
}
