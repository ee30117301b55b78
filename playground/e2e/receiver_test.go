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

// call is one call of a webhook.
type webhookCall struct {
	path string
	// key tells which calls are one question.
	key  string
	at   time.Time
	Name string `json:"name"`
	// Phase, Checksum and Metadata are those of the payload.
	Phase    string            `json:"phase"`
	Checksum string            `json:"checksum"`
	Metadata map[string]string `json:"metadata"`
}

// receiver is a server of webhooks that a user might have. It says yes until it is told otherwise.
type receiver struct {
	t      *testing.T
	server *httptest.Server

	mu      sync.Mutex
	calls   []webhookCall
	answers map[string]func(webhookCall) int
	news    chan struct{}
}

// listen begins to receive, on the address of the node.
func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, answers: map[string]func(webhookCall) int{}, news: make(chan struct{})}
	r.server = startServer(t, http.HandlerFunc(r.receive))
	return r
}

// serve serves beside the pods until the test ends.
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
		server.CloseClientConnections() // calls that hang until the end
		server.Close()
	})
	return server
}

// url of a path.
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
	close(r.news)
	r.news = make(chan struct{})
	answer := r.answers[c.path]
	r.mu.Unlock()
	if answer == nil {
		return
	}
	if status := answer(c); status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
	}
}

// answer decides what a path answers from now on: a status.
func (r *receiver) setAnswer(path string, withHeader func(webhookCall) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[path] = withHeader
}

func answerWith(status int) func(webhookCall) int { return func(webhookCall) int { return status } }

// of returns the calls of a path so far.
func (r *receiver) callsTo(path string) []webhookCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	var own []webhookCall
	for _, c := range r.calls {
		if c.path == path {
			own = append(own, c)
		}
	}
	return own
}

// called waits for the n-th call of a path.
func (r *receiver) waitForCall(path string, n int) {
	r.t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		news := r.news
		r.mu.Unlock()
		calls := r.callsTo(path)
		if len(calls) >= n {
			return
		}
		select {
		case <-news:
		case <-deadline.C:
			r.t.Fatalf("wait for call %d of webhook %s: it took more than %s; calls so far: %+v", n, path, waitTimeout, calls)
		}
	}
}

// keys are the questions among calls, each with the number of times that it was asked.
func callsByKey(calls []webhookCall) map[string]int {
	asked := map[string]int{}
	for _, c := range calls {
		asked[c.key]++
	}
	return asked
}

// oracle is a Prometheus that answers each query with what the test wants, and remembers what it was asked.
type fakePrometheus struct {
	mu      sync.Mutex
	value   func(query string) float64
	queries []string
}

// foretell starts an oracle that answers every query with that value, and returns its address.
func startFakePrometheus(t *testing.T, value func(query string) float64) (*fakePrometheus, string) {
	t.Helper()
	o := &fakePrometheus{value: value}
	return o, startServer(t, o).URL
}

// always is an oracle's answer to everything.
func always(value float64) func(string) float64 { return func(string) float64 { return value } }

func (o *fakePrometheus) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	query := request.FormValue("query")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queries = append(o.queries, query)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,"%v"]}]}}`, time.Now().Unix(), o.value(query))
}

// foretells changes what is answered from now on.
func (o *fakePrometheus) setValue(value func(query string) float64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.value = value
}

// asked returns the different queries so far.
func (o *fakePrometheus) receivedQueries() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	different := map[string]bool{}
	for _, query := range o.queries {
		different[query] = true
	}
	return different
}
