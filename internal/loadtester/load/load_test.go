package load_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/loadtester/load"
	"github.com/serin-dev/serin/internal/outbound"
)

func run(ctx context.Context, policy outbound.Policy, argv ...string) (string, error) {
	var out bytes.Buffer
	err := load.Run(ctx, load.Options{Out: &out, Clock: clock.RealClock{}, Policy: policy}, argv)
	return out.String(), err
}

var allowLoopback = outbound.Policy{AllowLoopback: true}

// recordedRequests records the requests to a server.
type recordedRequests struct {
	mu            sync.Mutex
	texts         []string // one for each request
	maxConcurrent int
	concurrent    int
}

func (s *recordedRequests) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := map[string]int{}
	for _, text := range s.texts {
		counted[text]++
	}
	return counted
}

func serve(t *testing.T, handler http.HandlerFunc) (*recordedRequests, string) {
	t.Helper()
	s := &recordedRequests{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		text := fmt.Sprintf("%s %s%s %s", r.Method, r.Host, r.RequestURI, body)
		for _, name := range []string{"Accept", "Authorization", "Content-Type", "Cookie", "User-Agent", "Accept-Encoding"} {
			if value := r.Header.Get(name); value != "" {
				text += fmt.Sprintf(" %s=%s", name, value)
			}
		}
		s.mu.Lock()
		s.texts = append(s.texts, strings.TrimSpace(text))
		s.concurrent++
		s.maxConcurrent = max(s.maxConcurrent, s.concurrent)
		s.mu.Unlock()
		handler(w, r)
		s.mu.Lock()
		s.concurrent--
		s.mu.Unlock()
	}))
	t.Cleanup(server.Close)
	return s, server.URL
}

func respondOK(http.ResponseWriter, *http.Request) {}

func TestHeySendsTheRequestsOfItsFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string // separated by |
		want string // HOST is replaced by the address of the server
	}{
		{"", "GET HOST/path?a=1  Content-Type=text/html User-Agent=hey/serin Accept-Encoding=gzip"},
		{"-m|post|-d|text|-T|text/plain|-A|text/css|-disable-compression", "POST HOST/path?a=1 text Accept=text/css Content-Type=text/plain User-Agent=hey/serin"},
		{"-m|PUT|-D|" + file + "|-U|me", "PUT HOST/path?a=1 from a file Content-Type=text/html User-Agent=me hey/serin Accept-Encoding=gzip"},
		{"-H|Cookie: type=insider|-H|Content-Type: application/json|-a|u:p:q", "GET HOST/path?a=1  Authorization=Basic dTpwOnE= Content-Type=application/json Cookie=type=insider User-Agent=hey/serin Accept-Encoding=gzip"},
		{"-host|cart.example.com|-disable-keepalive", "GET cart.example.com/path?a=1  Content-Type=text/html User-Agent=hey/serin Accept-Encoding=gzip"},
		{"-H|Host: web.example.com|-cpus|1|-t|5|-more", "GET web.example.com/path?a=1  Content-Type=text/html User-Agent=hey/serin Accept-Encoding=gzip"},
	} {
		s, address := serve(t, respondOK)
		argv := []string{"hey", "-n", "7", "-c", "3"}
		if c.args != "" {
			argv = append(argv, strings.Split(c.args, "|")...)
		}
		out, err := run(t.Context(), allowLoopback, append(argv, address+"/path?a=1")...)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{strings.ReplaceAll(c.want, "HOST", strings.TrimPrefix(address, "http://")): 7}
		if diff := cmp.Diff(want, s.counts()); diff != "" {
			t.Errorf("hey %s (-want +got):\n%s", c.args, diff)
		}
		if !strings.Contains(out, "[200]\t7 responses") || strings.Contains(out, "Error") {
			t.Errorf("hey %s prints\n%s", c.args, out)
		}
	}
}

func TestHeySendsAtMostOneRequestPerWorkerAtATime(t *testing.T) {
	var barrier sync.WaitGroup
	barrier.Add(3)
	var clients sync.Map
	s, address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, known := clients.LoadOrStore(r.RemoteAddr, true); !known {
			barrier.Done()
			barrier.Wait() // three requests are in progress at the same time
		}
	})
	if _, err := run(t.Context(), allowLoopback, "hey", "-n", "50", "-c", "3", address); err != nil {
		t.Fatal(err)
	}
	if s.maxConcurrent != 3 || len(s.texts) != 50 {
		t.Errorf("%d concurrent requests, %d in total", s.maxConcurrent, len(s.texts))
	}
}

// TestRateIsNotExceeded checks only the minimum duration that follows from the rate: how much longer the requests take
// depends on the machine.
func TestRateIsNotExceeded(t *testing.T) {
	_, address := serve(t, respondOK)
	began := time.Now()
	if _, err := run(t.Context(), allowLoopback, "hey", "-n", "20", "-c", "2", "-q", "50", address); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 19*10*time.Millisecond {
		t.Errorf("20 requests at 2·50 per second took %s", took)
	}
}

// TestRequestsInProgressAreAnsweredAtTheEnd: the server would count an aborted request as an error.
func TestRequestsInProgressAreAnsweredAtTheEnd(t *testing.T) {
	_, address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		slow := time.NewTimer(20 * time.Millisecond) // longer than the load lasts
		defer slow.Stop()
		select {
		case <-slow.C:
		case <-r.Context().Done():
			t.Error("a request was aborted")
		}
	})
	out, err := run(t.Context(), allowLoopback, "hey", "-z", "10ms", "-c", "2", address)
	if err != nil || !strings.Contains(out, "[200]") || strings.Contains(out, "Error") {
		t.Errorf("got %v and\n%s", err, out)
	}
}

func TestEndOfTheContextCancelsRequests(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	_, address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel(errors.New("time is over"))
		<-r.Context().Done()
	})
	out, err := run(ctx, allowLoopback, "hey", "-z", "1h", "-c", "1", address)
	if err == nil || err.Error() != "time is over" || !strings.Contains(out, "Count:\t0\n") {
		t.Errorf("got %v and\n%s", err, out)
	}
}

func TestStatusesAndErrorsAreCountedSeparately(t *testing.T) {
	var n int
	var mu sync.Mutex
	_, address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		n++
		switch n % 3 {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		}
	})
	out, err := run(t.Context(), allowLoopback, "hey", "-n", "9", "-c", "1", address)
	for _, want := range []string{"[200]\t3 responses", "[503]\t3 responses", "[3]\tdial tcp 169.254.169.254:80: 169.254.169.254 is a link-local address"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out, _ = run(t.Context(), allowLoopback, "hey", "-n", "3", "-c", "1", "-disable-redirects", address); !strings.Contains(out, "[302]\t1 responses") {
		t.Errorf("no 302 in\n%s", out)
	}
}

func TestPolicyAppliesToLoad(t *testing.T) {
	_, address := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was called") })
	for _, argv := range [][]string{{"hey", "-n", "1", address}, {"ghz", "-n", "1", "--insecure", strings.TrimPrefix(address, "http://")}} {
		if out, _ := run(t.Context(), outbound.Policy{}, argv...); !strings.Contains(out, "is a loopback address, which may not be called") {
			t.Errorf("%v prints\n%s", argv, out)
		}
	}
}

func TestInvalidCommandLinesAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"hey":                                `^hey: give one URL, after all flags$`,
		"hey http://a http://b":              `^hey: give one URL`,
		"hey http://a -n 5":                  `^hey: give one URL`,
		"hey ftp://a":                        `^hey: the address must begin with http`,
		"hey -n 0 http://a":                  `requests \(-n\) or a duration`,
		"hey -c 0 http://a":                  `from 1 to 2000$`,
		"hey -c 2001 -n 5000 http://a":       `from 1 to 2000$`,
		"hey -n 1 -c 2 http://a":             `cannot be less than`,
		"hey -q -1 http://a":                 `cannot be negative`,
		"hey -z -1s http://a":                `a duration \(-z\)`,
		"hey -x nonsense http://a":           `the proxy \(-x\)`,
		"hey -H nonsense http://a":           `a header \(-H\)`,
		"hey -a nonsense http://a":           `credentials \(-a\)`,
		"hey -D /nowhere http://a":           `/nowhere`,
		"hey -o csv http://a":                `-o is not built in`,
		"hey -wrong http://a":                `-wrong`,
		"ghz --insecure":                     `give one address`,
		"ghz --wrong a:1":                    `--wrong: use an image with ghz itself`,
		"ghz -O json a:1":                    `only the summary`,
		"ghz --call nonsense a:1":            `package\.Service/Method`,
		"ghz -m nonsense a:1":                `metadata \(-m\)`,
		"ghz a":                              `host:port`,
		"ghz http://a:1":                     `host:port`,
		"grpc_health_probe":                  `host:port`,
		"grpc_health_probe -addr=a:1 b":      `-addr=host:port`,
		"grpc_health_probe -rpc-timeout=-1s": `timeouts above zero`,
		"wrk":                                `unknown program: use one of \[ghz grpc_health_probe hey\]`,
	} {
		out, err := run(t.Context(), allowLoopback, strings.Fields(line)...)
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) || out != "" {
			t.Errorf("%s: got %v and %q, want %s", line, err, out, want)
		}
	}
}

// grpcServer starts a server that implements the wire format of gRPC: HTTP/2 without TLS, length-prefixed messages, the
// status in the trailer. Unlike a real gRPC server, it can violate the protocol.
func grpcServer(t *testing.T) (*recordedRequests, string) {
	t.Helper()
	s := &recordedRequests{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) < 5 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 || body[0] != 0 {
			t.Errorf("the message is %q, %v", body, err)
			return
		}
		s.mu.Lock()
		s.texts = append(s.texts, fmt.Sprintf("%s %s %s %s %s %q", r.Proto, r.Method, r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Te")+r.Header.Get("X-Who"), body[5:]))
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/grpc")
		switch r.URL.Path {
		case "/grpc.health.v1.Health/Check":
			status := byte(1)
			if string(body[5:]) == "\x0a\x04down" {
				status = 2
			}
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write([]byte{0, 0, 0, 0, 2, 8, status})
			w.Header().Set("Grpc-Status", "0")
		case "/no.Grpc/At":
		case "/half.A/Message":
			_, _ = w.Write([]byte{0, 0, 0, 9, 9, 8})
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		default: // a response of trailers only
			w.Header().Set("Grpc-Status", "12")
		}
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return s, strings.TrimPrefix(server.URL, "http://")
}

func TestGhzSendsCalls(t *testing.T) {
	for _, c := range []struct{ args, call, prints string }{
		{"", `HTTP/2.0 POST /grpc.health.v1.Health/Check application/grpc trailers ""`, "[OK]\t5 responses"},
		{`--proto=/tmp/x.proto --call=grpc.health.v1.Health/Check -d {} -m {"x-who":"me"} --name n -t 5s`, `HTTP/2.0 POST /grpc.health.v1.Health/Check application/grpc trailersme ""`, "[OK]\t5 responses"},
		{"--call a.b.Service.Method", `HTTP/2.0 POST /a.b.Service/Method application/grpc trailers ""`, "[Unimplemented]\t5 responses"},
		{"--call no.Grpc/At", `HTTP/2.0 POST /no.Grpc/At application/grpc trailers ""`, "[Unknown]\t5 responses"},
		{"--call half.A/Message", `HTTP/2.0 POST /half.A/Message application/grpc trailers ""`, "[Internal]\t5 responses"},
	} {
		s, address := grpcServer(t)
		argv := append([]string{"ghz", "--insecure", "-n", "5", "-c", "2"}, strings.Fields(c.args)...)
		out, err := run(t.Context(), allowLoopback, append(argv, address)...)
		if err != nil || !strings.Contains(out, c.prints) {
			t.Errorf("ghz %s: %v, want %q in\n%s", c.args, err, c.prints, out)
		}
		if diff := cmp.Diff(map[string]int{c.call: 5}, s.counts()); diff != "" {
			t.Errorf("ghz %s (-want +got):\n%s", c.args, diff)
		}
	}
}

func TestHealthProbeReportsTheStatus(t *testing.T) {
	s, address := grpcServer(t)
	for _, c := range []struct{ args, out, err string }{
		{"-addr=" + address, "status: SERVING\n", "<nil>"},
		{"-addr=" + address + " -connect-timeout=4000ms -service=down", "status: NOT_SERVING\n", "service unhealthy: NOT_SERVING"},
	} {
		out, err := run(t.Context(), allowLoopback, append([]string{"grpc_health_probe"}, strings.Fields(c.args)...)...)
		if out != c.out || fmt.Sprint(err) != c.err {
			t.Errorf("%s: got %q and %v", c.args, out, err)
		}
	}
	want := map[string]int{
		`HTTP/2.0 POST /grpc.health.v1.Health/Check application/grpc trailers ""`:           1,
		`HTTP/2.0 POST /grpc.health.v1.Health/Check application/grpc trailers "\n\x04down"`: 1,
	}
	if diff := cmp.Diff(want, s.counts()); diff != "" {
		t.Error(diff)
	}
	hang := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	hang.Config.Protocols = new(http.Protocols)
	hang.Config.Protocols.SetUnencryptedHTTP2(true)
	hang.Start()
	t.Cleanup(hang.Close)
	_, err := run(t.Context(), allowLoopback, "grpc_health_probe", "-addr", strings.TrimPrefix(hang.URL, "http://"), "-connect-timeout=1ms", "-rpc-timeout=19ms")
	if err == nil || err.Error() != "no answer within 20ms" {
		t.Errorf("got %v", err)
	}
}
