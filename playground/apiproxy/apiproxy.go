// Package apiproxy is a proxy in front of the API server that counts the
// requests of its clients, so that tests can assert how many requests an
// operation costs, and injects faults into requests and connections.
//
// It must not know its clients: one proxy counts all requests that it receives.
package apiproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// Request is a kind of request: the verb of the API (get, list, watch, create, update, patch, delete) and the resource.
type Request struct {
	Verb, Group, Resource, Subresource string
}

func (r Request) String() string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return r.Verb + " " + resource
}

// Counts is the number of requests of each kind.
type Counts map[Request]int

// Total is the number of all requests.
func (c Counts) Total() int {
	total := 0
	for _, n := range c {
		total += n
	}
	return total
}

// Since returns the requests that were added after earlier.
func (c Counts) Since(earlier Counts) Counts {
	added := Counts{}
	for r, n := range c {
		if n -= earlier[r]; n > 0 {
			added[r] = n
		}
	}
	return added
}

// Proxy counts requests and forwards them to the API server.
type Proxy struct {
	// URL is the address that clients use instead of the API server's.
	URL string

	server      *http.Server
	forward     http.Handler
	connections *connections
	done        chan error

	openWatches atomic.Int64

	mu     sync.Mutex
	counts Counts
	// fault, if not nil, may answer a request instead of the API server.
	fault func(http.ResponseWriter, *http.Request, Request) bool
}

// Start serves the API server of config on 127.0.0.1, without TLS and without authentication: all clients act as the user of
// config.
func Start(ctx context.Context, config *rest.Config) (*Proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("parse the API server's URL: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for clients of the API server: %w", err)
	}
	p := &Proxy{
		URL: "http://" + listener.Addr().String(), done: make(chan error, 1), counts: Counts{},
		connections: &connections{Listener: listener, open: map[*connection]bool{}},
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization") // the transport adds that of config
		},
		Transport: transport,
		// Events of a watch must not wait in a buffer.
		FlushInterval: -1,
		// To a client, an API server that cannot be reached is a connection that ends, not a server that answers 502.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		// It would report each watch that ends with a restart of the API server.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	p.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := Classify(r)
		p.mu.Lock()
		p.counts[kind]++
		fault := p.fault
		p.mu.Unlock()
		if kind.Verb == "watch" {
			p.openWatches.Add(1)
			defer p.openWatches.Add(-1)
		}
		if fault != nil && fault(w, r, kind) {
			return
		}
		p.forward.ServeHTTP(w, r)
	})}
	go func() { p.done <- p.server.Serve(p.connections) }()
	return p, nil
}

// Classify reads a request's kind from its method and path: /api/VERSION/… and /apis/GROUP/VERSION/…, both followed by
// [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]. Requests outside of these have their path as resource.
func Classify(r *http.Request) Request {
	method := strings.ToLower(r.Method)
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		group, parts = parts[1], parts[3:]
	default:
		return Request{Verb: method, Resource: r.URL.Path}
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	kind := Request{Group: group, Resource: parts[0]}
	if len(parts) > 2 {
		kind.Subresource = parts[2]
	}
	named := len(parts) > 1
	switch {
	case r.Method == http.MethodGet && (r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1"):
		kind.Verb = "watch"
	case r.Method == http.MethodGet && named:
		kind.Verb = "get"
	case r.Method == http.MethodGet:
		kind.Verb = "list"
	case r.Method == http.MethodPost:
		kind.Verb = "create"
	case r.Method == http.MethodPut:
		kind.Verb = "update"
	default:
		kind.Verb = method
	}
	return kind
}

// Counts returns a copy of the current counts.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// OpenWatches returns the number of watches that have not ended.
func (p *Proxy) OpenWatches() int { return int(p.openWatches.Load()) }

// SetFault injects a fault: f answers a request itself and returns true, or returns false to forward it to the API server. nil
// removes the fault. f may be called concurrently.
func (p *Proxy) SetFault(f func(http.ResponseWriter, *http.Request, Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// Forward sends a request to the API server, and its response to w. It is for faults that do so themselves.
func (p *Proxy) Forward(w http.ResponseWriter, r *http.Request) { p.forward.ServeHTTP(w, r) }

// ResetConnections resets the TCP connections of all clients.
func (p *Proxy) ResetConnections() { p.connections.reset() }

// Partition starts a partition between the clients and the proxy: connections remain open and transfer nothing until Heal.
func (p *Proxy) Partition() { p.connections.cut() }

// Heal ends a partition. The connections that existed during the partition are reset, and what they would have transferred is lost.
func (p *Proxy) Heal() { p.connections.heal() }

// Close ends all connections.
func (p *Proxy) Close() error {
	p.Heal() // a partition must not delay the end
	err := p.server.Close()
	if served := <-p.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("close the API server's proxy: %w", err)
	}
	return nil
}
