//go:build linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/serin-dev/serin/playground/network"
)

// webhookCall is one request to a webhook.
type webhookCall struct {
	path string
	// key identifies the query: a repeated request has the same key.
	key string
	at  time.Time
	// Name, Phase, Checksum and Metadata are fields of the payload.
	Name     string            `json:"name"`
	Phase    string            `json:"phase"`
	Checksum string            `json:"checksum"`
	Metadata map[string]string `json:"metadata"`
}

// receiver is a server for webhooks. It answers with status 200 unless setAnswer is called.
type receiver struct {
	t      *testing.T
	server *httptest.Server

	mu      sync.Mutex
	calls   []webhookCall
	answers map[string]func(webhookCall) int
	// received is closed and replaced when a request is received.
	received chan struct{}
}

// startReceiver starts a receiver on the address of the node.
func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, answers: map[string]func(webhookCall) int{}, received: make(chan struct{})}
	r.server = startServer(t, http.HandlerFunc(r.receive))
	return r
}

// startServer starts a server outside pods that runs until the test ends.
func startServer(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(network.NodeAddress.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	return startServerOn(t, listener, handler)
}

func startServerOn(t *testing.T, listener net.Listener, handler http.Handler) *httptest.Server {
	t.Helper()
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	server.Start()
	t.Cleanup(func() {
		// Requests may hang until the end of the test, and clients repeat them: a connection that was accepted after those
		// before it were closed would block Close for as long as the client waits. This closes the listener first.
		_ = server.Config.Close()
		server.Close()
	})
	return server
}

// url returns the URL of a path.
func (r *receiver) url(path string) string { return r.server.URL + path }

func (r *receiver) receive(w http.ResponseWriter, request *http.Request) {
	c := webhookCall{path: request.URL.Path, key: request.Header.Get("Serin-Key"), at: time.Now()}
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(body, &c)
	}
	if err != nil {
		r.t.Errorf("webhook %s was called with %q: %v", c.path, body, err)
	}
	r.mu.Lock()
	r.calls = append(r.calls, c)
	close(r.received)
	r.received = make(chan struct{})
	answer := r.answers[c.path]
	r.mu.Unlock()
	if answer == nil {
		return
	}
	if status := answer(c); status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
	}
}

// setAnswer sets the function that returns the status for requests to a path.
func (r *receiver) setAnswer(path string, answer func(webhookCall) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[path] = answer
}

// answerWith returns a function that returns the same status for every request.
func answerWith(status int) func(webhookCall) int { return func(webhookCall) int { return status } }

// callsTo returns the requests to a path so far.
func (r *receiver) callsTo(path string) []webhookCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	var calls []webhookCall
	for _, c := range r.calls {
		if c.path == path {
			calls = append(calls, c)
		}
	}
	return calls
}

// waitForCall waits for the n-th request to a path.
func (r *receiver) waitForCall(path string, n int) {
	r.t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		received := r.received
		r.mu.Unlock()
		calls := r.callsTo(path)
		if len(calls) >= n {
			return
		}
		select {
		case <-received:
		case <-deadline.C:
			r.t.Fatalf("wait for call %d of webhook %s: no such call within %s; calls so far: %+v", n, path, waitTimeout, calls)
		}
	}
}

// callsByKey returns the number of requests for each key.
func callsByKey(calls []webhookCall) map[string]int {
	counts := map[string]int{}
	for _, c := range calls {
		counts[c.key]++
	}
	return counts
}

// fakePrometheus answers each query with a value that the test sets, and records the queries.
type fakePrometheus struct {
	mu      sync.Mutex
	value   func(query string) float64
	queries []string
}

// startFakePrometheus starts a fakePrometheus and returns its address.
func startFakePrometheus(t *testing.T, value func(query string) float64) (*fakePrometheus, string) {
	t.Helper()
	p := &fakePrometheus{value: value}
	return p, startServer(t, p).URL
}

// always returns a function that returns the same value for every query.
func always(value float64) func(string) float64 { return func(string) float64 { return value } }

func (p *fakePrometheus) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	query := request.FormValue("query")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queries = append(p.queries, query)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,"%v"]}]}}`, time.Now().Unix(), p.value(query))
}

// setValue sets the function that returns the value of a query.
func (p *fakePrometheus) setValue(value func(query string) float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value = value
}

// receivedQueries returns the set of queries so far.
func (p *fakePrometheus) receivedQueries() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	received := map[string]bool{}
	for _, query := range p.queries {
		received[query] = true
	}
	return received
}
