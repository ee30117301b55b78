package outbound

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func newTestClient(t *testing.T) *Client {
	t.Helper()
	client := New(Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	return client
}

func get(address string) Request {
	return Request{URL: address, Limit: 1 << 10, Timeout: time.Minute}
}

func TestDoReturnsStatusHeaderAndBody(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Seen", r.Method+" "+r.Header.Get("X-Test"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("hello"))
	})
	request := get(address)
	request.Header = http.Header{"X-Test": {"one"}}
	got, err := newTestClient(t).Do(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if got.Code != 418 || string(got.Body) != "hello" || got.Header.Get("X-Seen") != "GET one" || got.IsSuccess() {
		t.Errorf("got %+v", got)
	}
}

func TestDoRefusesLoopbackUnlessAllowed(t *testing.T) {
	called := false
	address := serve(t, func(http.ResponseWriter, *http.Request) { called = true })
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	client := New(Policy{})
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		_, err := client.Do(t.Context(), get("http://"+host+":"+u.Port()+"/?key=hunter2"))
		var refused *RefusedError
		if !errors.As(err, &refused) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want a RefusedError without the query", host, err)
		}
	}
	if called {
		t.Error("the server was called")
	}
}

func TestDialerChecksResolvedAddresses(t *testing.T) {
	// The check of names accepts this name; only the address to which it resolves is refused.
	client := newHTTPClient(newPath(Policy{}), false)
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the client has another type of transport")
	}
	_, err := transport.DialContext(t.Context(), "tcp", "localhost:80")
	if _, ok := errors.AsType[*RefusedError](err); !ok {
		t.Errorf("got %v, want a RefusedError", err)
	}
}

func TestDoRefusesInvalidAddresses(t *testing.T) {
	for _, address := range []string{"", "host/path", "file:///etc/passwd", "gopher://host", "http://", "http://u:hunter2", "http://u:hun ter2@h/"} {
		_, err := newTestClient(t).Do(t.Context(), get(address))
		var gone *UnreachableError
		if err == nil || errors.As(err, &gone) || strings.Contains(err.Error(), "hun") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestDoReadsNoMoreThanTheLimit(t *testing.T) {
	endless := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
				return
			}
		}
	})
	bomb := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(make([]byte, 16<<20))
		_ = z.Close()
	})
	for name, address := range map[string]string{"endless": endless, "bomb": bomb} {
		got, err := newTestClient(t).Do(t.Context(), get(address))
		if err != nil || len(got.Body) != 1<<10 || !got.Truncated {
			t.Errorf("%s: %d bytes, truncated %t, %v", name, len(got.Body), got.Truncated, err)
		}
	}
}

func TestDoEndsAfterTheTimeout(t *testing.T) {
	hang := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	drip := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("x"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	for name, address := range map[string]string{"hang": hang, "drip": drip} {
		request := get(address + "/?key=hunter2")
		request.Timeout = 20 * time.Millisecond
		_, err := newTestClient(t).Do(t.Context(), request)
		var gone *UnreachableError
		if !errors.As(err, &gone) || err.Error() != "no answer within 20ms" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnreachableErrorsContainNoSecret(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	address := server.URL
	server.Close()
	_, err := newTestClient(t).Do(t.Context(), get(address+"/x?key=hunter2"))
	var gone *UnreachableError
	if !errors.As(err, &gone) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

func TestRedirectsStayWithTheHostAndCarryNoBody(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	note := func(who string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, who+" "+r.Method+" "+r.URL.Path+" "+r.Header.Get("DD-API-KEY"))
	}
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { note("other", r) })
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("secure", r)
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	t.Cleanup(secure.Close)
	here := serve(t, func(w http.ResponseWriter, r *http.Request) {
		note("here", r)
		if n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/hop/")); err == nil && n > 0 {
			http.Redirect(w, r, "/hop/"+strconv.Itoa(n-1), http.StatusTemporaryRedirect)
		}
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}
	})
	for _, c := range []struct {
		name, method, address string
		code, calls           int
	}{
		{"three hops are followed", "GET", here + "/hop/3", 200, 4},
		{"a fourth is not", "GET", here + "/hop/4", 307, 4},
		{"another host is not", "GET", here + "/?to=" + url.QueryEscape(other), 307, 1},
		{"up to https is", "GET", here + "/?to=" + url.QueryEscape(secure.URL), 200, 2},
		{"down to http is not", "GET", secure.URL + "/?to=" + url.QueryEscape(here), 302, 1},
		{"a POST is not repeated", "POST", here + "/hop/1", 307, 1},
	} {
		seen = nil
		request := get(c.address)
		request.Method, request.SkipVerify = c.method, true
		request.Header = http.Header{"Dd-Api-Key": {"hunter2"}}
		if c.method == "POST" {
			request.Body = []byte("{}")
		}
		got, err := newTestClient(t).Do(t.Context(), request)
		if err != nil || got.Code != c.code || len(seen) != c.calls {
			t.Errorf("%s: status %d after %v (%v), want %d after %d calls", c.name, got.Code, seen, err, c.code, c.calls)
		}
	}
}

func TestCertificatesAreVerifiedUnlessAskedNotTo(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the server logs that the client closed the connection
	server.StartTLS()
	t.Cleanup(server.Close)
	client := newTestClient(t)
	request := get(server.URL)
	var gone *UnreachableError
	if _, err := client.Do(t.Context(), request); !errors.As(err, &gone) {
		t.Errorf("unknown certificate: got %v", err)
	}
	request.SkipVerify = true
	if _, err := client.Do(t.Context(), request); err != nil {
		t.Error(err)
	}
}

func TestProxyIsUsedAndChecked(t *testing.T) {
	var asked string
	proxy := serve(t, func(_ http.ResponseWriter, r *http.Request) { asked = r.RequestURI })
	request := get("http://chat.example/hook")
	request.Proxy = proxy
	through := New(Policy{AllowLoopback: true, ProxyResolves: true})
	t.Cleanup(through.Close)
	if got, err := through.Do(t.Context(), request); err != nil || got.Code != 200 || asked != "http://chat.example/hook" {
		t.Errorf("through the proxy: %+v, %v; it received %q", got, err, asked)
	}
	var refused *RefusedError
	if _, err := New(Policy{ProxyResolves: true}).Do(t.Context(), request); !errors.As(err, &refused) {
		t.Errorf("proxy on loopback: got %v", err)
	}
	request.URL = "http://169.254.169.254/latest"
	if _, err := newTestClient(t).Do(t.Context(), request); !errors.As(err, &refused) {
		t.Errorf("metadata service through a proxy: got %v", err)
	}
	request.Proxy = "http://u:hunter2"
	if _, err := newTestClient(t).Do(t.Context(), request); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("invalid proxy address: got %v", err)
	}
}

// impatientClock records the waits and does not wait.
type impatientClock struct {
	clock.Clock
	waits []time.Duration
}

func newImpatientClock() *impatientClock {
	return &impatientClock{Clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
}

func (c *impatientClock) NewTimer(d time.Duration) clock.Timer {
	c.waits = append(c.waits, d)
	fake := clocktesting.NewFakeClock(time.Time{})
	timer := fake.NewTimer(time.Nanosecond)
	fake.Step(time.Second)
	return timer
}

func TestRetries(t *testing.T) {
	s := time.Second
	for _, c := range []struct {
		name    string
		codes   []int // the last one is repeated
		header  string
		retries int
		waits   []time.Duration
		code    int
	}{
		{"accepted at once", []int{200}, "", 3, nil, 200},
		{"no retries", []int{500}, "", 0, nil, 500},
		{"recovers", []int{500, 503, 200}, "", 3, []time.Duration{s, 2 * s}, 200},
		{"waits double up to 30s", []int{502}, "", 7, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s}, 502},
		{"4xx is final", []int{403}, "", 3, nil, 403},
		{"501 is final", []int{501}, "", 3, nil, 501},
		{"3xx is final", []int{304}, "", 3, nil, 304},
		{"429 with a delay", []int{429, 200}, "7", 1, []time.Duration{7 * s}, 200},
		{"never more than 30s", []int{503, 200}, "999999999999", 1, []time.Duration{30 * s}, 200},
		{"an invalid delay", []int{503, 200}, "soon", 1, []time.Duration{s}, 200},
		{"3600s is too long", []int{503, 200}, "3600", 1, []time.Duration{30 * s}, 200},
		{"a date", []int{503, 200}, "Fri, 02 Jan 2026 03:04:17 GMT", 1, []time.Duration{12 * s}, 200},
		{"a date that is past", []int{503, 200}, "Fri, 02 Jan 2025 03:04:17 GMT", 1, []time.Duration{0}, 200},
		{"the delay of 500 is ignored", []int{500, 200}, "7", 1, []time.Duration{s}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", c.header)
				w.WriteHeader(c.codes[min(calls, len(c.codes)-1)])
				calls++
			})
			clk := newImpatientClock()
			got, attempts, err := newTestClient(t).DoWithRetries(t.Context(), clk, get(address), c.retries)
			if err != nil || got.Code != c.code || attempts != len(c.waits)+1 || calls != attempts {
				t.Errorf("status %d after %d attempts (%d calls), %v", got.Code, attempts, calls, err)
			}
			if diff := cmp.Diff(c.waits, clk.waits); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRetriesEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	waiting := &cancellingClock{Clock: clocktesting.NewFakeClock(time.Time{}), cancel: cancel}
	got, attempts, err := newTestClient(t).DoWithRetries(ctx, waiting, get(address), 5)
	if err != nil || attempts != 1 || got.Code != 503 {
		t.Errorf("got %d after %d attempts, %v", got.Code, attempts, err)
	}
}

// cancellingClock calls cancel when a wait begins.
type cancellingClock struct {
	clock.Clock
	cancel func()
}

func (c *cancellingClock) NewTimer(d time.Duration) clock.Timer {
	c.cancel()
	return c.Clock.NewTimer(d)
}

func TestRefusedDestinationIsNotRetried(t *testing.T) {
	clk := newImpatientClock()
	_, attempts, err := New(Policy{}).DoWithRetries(t.Context(), clk, get("http://127.0.0.1/"), 3)
	var refused *RefusedError
	if attempts != 1 || !errors.As(err, &refused) {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}
