package hook_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// impatientClock records the waits and does not wait.
type impatientClock struct {
	clock.Clock
	waits []time.Duration
}

func (c *impatientClock) NewTimer(d time.Duration) clock.Timer {
	c.waits = append(c.waits, d)
	fake := clocktesting.NewFakeClock(time.Time{})
	timer := fake.NewTimer(time.Nanosecond)
	fake.Step(time.Second)
	return timer
}

func newCaller(t *testing.T, policy outbound.Policy) (*hook.Client, *impatientClock) {
	t.Helper()
	client := outbound.New(policy)
	t.Cleanup(client.Close)
	clk := &impatientClock{Clock: clocktesting.NewFakeClock(time.Time{})}
	return hook.New(client, clk), clk
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func TestOutcomesOfResponses(t *testing.T) {
	s := time.Second
	for _, c := range []struct {
		name    string
		codes   []int // the last one is repeated
		body    string
		retries int
		outcome release.Outcome
		text    string // URL is replaced by the address
		waits   []time.Duration
	}{
		{"200", []int{200}, "OK", 0, release.Yes, "", nil},
		{"202", []int{202}, "", 0, release.Yes, "", nil},
		{"204", []int{204}, "", 0, release.Yes, "", nil},
		{"299", []int{299}, "", 0, release.Yes, "", nil},
		{"403 with a reason", []int{403}, "closed until Monday\n", 3, release.No, "closed until Monday", nil},
		{"403 without a reason", []int{403}, "", 0, release.No, "answered 403 Forbidden", nil},
		{"304", []int{304}, "", 0, release.No, "answered 304 Not Modified", nil},
		{"501 is final", []int{501}, "no such task", 3, release.No, "no such task", nil},
		{"500", []int{500}, "", 0, release.No, "POST URL/gate giving up after 1 attempt(s)", nil},
		{"500 with a reason", []int{500}, "no disk", 2, release.No, "POST URL/gate giving up after 3 attempt(s): no disk", []time.Duration{s, 2 * s}},
		{"429", []int{429}, "", 1, release.No, "POST URL/gate giving up after 2 attempt(s)", []time.Duration{s}},
		{"recovers", []int{502, 200}, "", 3, release.Yes, "", []time.Duration{s}},
		{"then refuses", []int{502, 403}, "no", 3, release.No, "no", []time.Duration{s}},
		{"a long answer", []int{403}, strings.Repeat("x", 100_000), 0, release.No, strings.Repeat("x", 256), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.codes[min(calls, len(c.codes)-1)])
				calls++
				_, _ = io.WriteString(w, c.body)
			})
			caller, clk := newCaller(t, outbound.Policy{AllowLoopback: true})
			got, text := caller.Send(t.Context(), hook.Request{URL: address + "/gate?key=hunter2", Timeout: time.Minute, Retries: c.retries})
			if want := strings.ReplaceAll(c.text, "URL", address); got != c.outcome || text != want {
				t.Errorf("got %s %q, want %s %q", got, text, c.outcome, want)
			}
			if diff := cmp.Diff(c.waits, clk.waits); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCallIsAPostOfItsBody(t *testing.T) {
	var seen *http.Request
	var body []byte
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ = io.ReadAll(r.Body)
	})
	caller, _ := newCaller(t, outbound.Policy{AllowLoopback: true})
	if got, text := caller.Send(t.Context(), hook.Request{URL: address, Body: []byte(`{"name":"cart"}`), Timeout: time.Minute, Key: "k1"}); got != release.Yes {
		t.Fatal(text)
	}
	if seen.Method != "POST" || seen.Header.Get("Content-Type") != "application/json" || seen.Header.Get("Serin-Key") != "k1" || string(body) != `{"name":"cart"}` {
		t.Errorf("got %s %v %s", seen.Method, seen.Header, body)
	}
	caller.Send(t.Context(), hook.Request{URL: address, Timeout: time.Minute})
	if _, ok := seen.Header["Serin-Key"]; ok {
		t.Error("an empty key was sent")
	}
}

func TestUnreachableServers(t *testing.T) {
	hang := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server notices a closed connection only after the body
		<-r.Context().Done()
	})
	server := httptest.NewServer(http.NotFoundHandler())
	gone := server.URL
	server.Close()
	for _, c := range []struct {
		name, url, want string
		policy          outbound.Policy
		attempts        int
	}{
		{"hangs", hang + "/?key=hunter2", `^POST http://127\.0\.0\.1:\d+/ giving up after 2 attempt\(s\): no answer within 20ms$`, outbound.Policy{AllowLoopback: true}, 2},
		{"connection refused", gone + "/x?key=hunter2", `^POST http://127\.0\.0\.1:\d+/x giving up after 2 attempt\(s\): dial tcp .* connection refused$`, outbound.Policy{AllowLoopback: true}, 2},
		{"may not be called", "http://169.254.169.254/latest", `^POST http://169\.254\.169\.254/latest giving up after 1 attempt\(s\): .*link-local.*$`, outbound.Policy{}, 1},
		{"no URL", "gate?key=hunter2", `^POST \(not a URL\) giving up after 1 attempt\(s\): the address must begin with http`, outbound.Policy{}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			caller, clk := newCaller(t, c.policy)
			got, text := caller.Send(t.Context(), hook.Request{URL: c.url, Timeout: 20 * time.Millisecond, Retries: 1})
			if got != release.Unreachable || !regexp.MustCompile(c.want).MatchString(text) || strings.Contains(text, "hunter2") {
				t.Errorf("got %s %q, want %s", got, text, c.want)
			}
			if len(clk.waits) != c.attempts-1 {
				t.Errorf("waited %v", clk.waits)
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	followed := false
	other := serve(t, func(http.ResponseWriter, *http.Request) { followed = true })
	for _, code := range []int{301, 302, 303, 307, 308} {
		address := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, code) })
		caller, _ := newCaller(t, outbound.Policy{AllowLoopback: true})
		if got, text := caller.Send(t.Context(), hook.Request{URL: address, Body: []byte(`{"token":"x"}`), Timeout: time.Minute}); got != release.No || followed {
			t.Errorf("%d: got %s, followed %t: %s", code, got, followed, text)
		}
	}
}

func TestDisableTLSSkipsVerification(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the server logs that the client closed the connection
	server.StartTLS()
	t.Cleanup(server.Close)
	caller, _ := newCaller(t, outbound.Policy{AllowLoopback: true})
	for _, skip := range []bool{true, false} {
		if got, text := caller.Send(t.Context(), hook.Request{URL: server.URL, Timeout: time.Minute, DisableTLS: skip}); (got == release.Yes) != skip {
			t.Errorf("disableTLS %t: got %s %s", skip, got, text)
		}
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	caller, clk := newCaller(t, outbound.Policy{AllowLoopback: true})
	if got, _ := caller.Send(ctx, hook.Request{URL: address, Timeout: time.Hour, Retries: 9}); got != release.Unreachable || len(clk.waits) > 0 {
		t.Errorf("got %s after waiting %v", got, clk.waits)
	}
}
