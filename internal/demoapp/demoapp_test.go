package demoapp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/serin-dev/serin/internal/demoapp"
	"github.com/serin-dev/serin/internal/waittest"
)

func get(t *testing.T, s http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder
}

func TestErrorsAreSpreadEvenly(t *testing.T) {
	for _, c := range []struct {
		percent float64
		want    string // of 20 answers, x is an error
	}{
		{0, "...................."},
		{10, ".........x.........x"},
		{25, "...x...x...x...x...x"},
		{50, ".x.x.x.x.x.x.x.x.x.x"},
		{100, "xxxxxxxxxxxxxxxxxxxx"},
	} {
		s := demoapp.New(demoapp.Config{Version: "v1", ErrorPercent: c.percent}, clock.RealClock{})
		got := ""
		for range 20 {
			switch status := get(t, s, "/").Code; status {
			case http.StatusOK:
				got += "."
			case http.StatusInternalServerError:
				got += "x"
			default:
				t.Fatalf("status %d", status)
			}
		}
		if got != c.want {
			t.Errorf("%v percent: got %s, want %s", c.percent, got, c.want)
		}
	}
}

func TestAnswerNamesVersionPodAndMessage(t *testing.T) {
	s := demoapp.New(demoapp.Config{Version: "v7", Pod: "cart-1", Message: "hello"}, clock.RealClock{})
	response := get(t, s, "/anything")
	got := [3]string{response.Header().Get("X-Version"), response.Header().Get("X-Pod"), response.Header().Get("X-Message")}
	if want := [3]string{"v7", "cart-1", "hello"}; got != want {
		t.Errorf("headers are %v, want %v", got, want)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(body), "version v7\n") {
		t.Errorf("the body does not name the version: %s", body)
	}
}

func TestMetricsCountAnswersByStatusAndNothingElse(t *testing.T) {
	s := demoapp.New(demoapp.Config{Version: "v1", ErrorPercent: 50}, clock.RealClock{})
	for range 4 {
		get(t, s, "/")
	}
	get(t, s, "/readyz")
	get(t, s, "/metrics")
	body, err := io.ReadAll(get(t, s, "/metrics").Body)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.SplitSeq(string(body), "\n") {
		if strings.HasPrefix(line, "http_request_duration_seconds_count") {
			got = append(got, line)
		}
	}
	want := []string{`http_request_duration_seconds_count{status="200"} 2`, `http_request_duration_seconds_count{status="500"} 2`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestReadyAfterTheDelay(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := demoapp.New(demoapp.Config{ReadyAfter: time.Minute}, c)
	if got := get(t, s, "/readyz").Code; got != http.StatusServiceUnavailable {
		t.Errorf("before the delay: %d", got)
	}
	c.Step(time.Minute)
	if got := get(t, s, "/readyz").Code; got != http.StatusOK {
		t.Errorf("after the delay: %d", got)
	}
}

func TestDrainAnswersWhileNotReady(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := demoapp.New(demoapp.Config{Version: "v1", Drain: time.Minute, CrashAfter: -1}, c)
	ctx, terminate := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	status := func(path string) (int, bool) {
		response, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode, response.Close
	}
	if got, _ := status("/readyz"); got != http.StatusOK {
		t.Errorf("before: %d", got)
	}
	terminate()
	waitForClockUse(t, c)
	if got, _ := status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("readiness while draining: %d", got)
	}
	if got, closes := status("/"); got != http.StatusOK || !closes {
		t.Errorf("answer while draining: %d, closes the connection: %v", got, closes)
	}
	c.Step(time.Minute)
	if err := waittest.Receive(t, "the server ends", ended); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// waitForClockUse returns when the server waits for its clock.
func waitForClockUse(t *testing.T, c *clocktesting.FakeClock) {
	t.Helper()
	waittest.Until(t, "the server waits for its clock", func() error {
		if !c.HasWaiters() {
			return errors.New("the clock has no waiters")
		}
		return nil
	})
}

// TestDrainLastsWhileRequestsArrive covers a busy machine, where a Service routes clients to a terminating pod for seconds.
func TestDrainLastsWhileRequestsArrive(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := demoapp.New(demoapp.Config{Version: "v1", Drain: 3 * time.Second, CrashAfter: -1}, c)
	ctx, terminate := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	get := func(path string) {
		t.Helper()
		response, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatalf("%s after SIGTERM: %v", c.Since(time.Unix(0, 0)), err)
		}
		response.Body.Close()
	}
	get("/")
	terminate()
	waitForClockUse(t, c)
	for range 8 {
		c.Step(time.Second)
		waitForClockUse(t, c)
		get("/")
	}
	for range 2 {
		c.Step(time.Second)
		waitForClockUse(t, c)
		get("/readyz") // probes and scrapes continue until the pod is deleted
		get("/metrics")
	}
	c.Step(time.Second)
	if err := waittest.Receive(t, "the server ends", ended); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestDrainEndsAlthoughRequestsArrive(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := demoapp.New(demoapp.Config{Version: "v1", Drain: 3 * time.Second, CrashAfter: -1}, c)
	ctx, terminate := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	terminate()
	for range 27 {
		waitForClockUse(t, c)
		response, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			t.Fatalf("%s after SIGTERM: %v", c.Since(time.Unix(0, 0)), err)
		}
		response.Body.Close()
		c.Step(time.Second)
	}
	if err := waittest.Receive(t, "the server ends", ended); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestServerCrashesAfterTheConfiguredTime(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := demoapp.New(demoapp.Config{CrashAfter: 0}, clock.RealClock{})
	if err := s.Serve(t.Context(), listener); !errors.Is(err, demoapp.ErrCrash) {
		t.Errorf("Serve() = %v, want %v", err, demoapp.ErrCrash)
	}
}

func TestConfigFromEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "message")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"VERSION": "v2", "HOSTNAME": "p", "PORT": "1", "ERROR_PERCENT": "2.5", "LATENCY": "3ms", "READY_AFTER": "4s",
		"CRASH_AFTER": "5s", "DRAIN": "6s", "MESSAGE": "hidden", "MESSAGE_FILE": file,
	}
	got, err := demoapp.FromEnvironment(func(name string) string { return env[name] }, []string{"--port=9898", "--level=info"})
	if err != nil {
		t.Fatal(err)
	}
	want := demoapp.Config{
		Version: "v2", Pod: "p", Port: 9898, Message: "from a file", ErrorPercent: 2.5, Latency: 3 * time.Millisecond,
		ReadyAfter: 4 * time.Second, CrashAfter: 5 * time.Second, Drain: 6 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	for name, value := range map[string]string{"PORT": "x", "ERROR_PERCENT": "101", "LATENCY": "5", "MESSAGE_FILE": "/missing"} {
		_, err := demoapp.FromEnvironment(func(n string) string { return map[string]string{name: value}[n] }, nil)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: got error %v, want one that names the variable", name, value, err)
		}
	}
}
