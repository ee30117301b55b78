package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// The timeouts of a Server. The response with a profile or a large scrape may take a minute; requests are short.
const (
	readTimeout     = 5 * time.Second
	writeTimeout    = time.Minute
	idleTimeout     = 15 * time.Second
	shutdownTimeout = 3 * time.Second
)

// ServerOptions configure a Server.
type ServerOptions struct {
	// Address to listen on, for example ":8080".
	Address string
	// MoreAddresses are further addresses with the same endpoints.
	MoreAddresses []string
	// ProfilingAddress is the address of /debug/pprof/; empty means off. It must be a loopback address with a port, because
	// profiles show memory and command lines.
	ProfilingAddress string
	// Gatherer is the source of the metrics.
	Gatherer prometheus.Gatherer
	// Ready returns nil when this replica can work, else a message for the user about what is missing. A nil function means
	// always ready.
	Ready func() error
}

// Validate returns a message for the user about the first invalid option.
func (o ServerOptions) Validate() error {
	if o.Gatherer == nil {
		return errors.New("the metrics server has no gatherer of metrics")
	}
	if o.ProfilingAddress == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(o.ProfilingAddress)
	if err != nil {
		return fmt.Errorf("the profiling address %q is not HOST:PORT: use for example 127.0.0.1:6060", o.ProfilingAddress)
	}
	if address, err := netip.ParseAddr(host); err != nil || !address.IsLoopback() {
		return fmt.Errorf("the profiling address %q is not a loopback address: use for example 127.0.0.1:6060, "+
			"and a port forward to reach it", o.ProfilingAddress)
	}
	return nil
}

// Server serves health and metrics on a mux of its own. Packages that register handlers in the default mux of the process
// (profiles, command line) are therefore not reachable here.
//
//   - /healthz: 200 and OK while the process works, then one line for each health message
//   - /readyz: 200 and OK, or 503 and the reason
//   - /metrics: the metrics
type Server struct {
	options ServerOptions

	mu             sync.Mutex
	healthMessages map[string]string
}

// NewServer returns a server, or the error of Validate.
func NewServer(options ServerOptions) (*Server, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	return &Server{options: options, healthMessages: map[string]string{}}, nil
}

// SetHealthMessage sets the message about the health of the named component; an empty one deletes it. The status code of
// /healthz remains 200: a message informs users and must not restart the process.
func (s *Server) SetHealthMessage(name, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if message == "" {
		delete(s.healthMessages, name)
		return
	}
	s.healthMessages[name] = message
}

// Run listens and serves until ctx is done; requests in progress then have 3 s to end. It returns the error of listening or
// serving, or nil after ctx is done.
func (s *Server) Run(ctx context.Context) error {
	handlers := map[string]http.Handler{}
	for _, address := range append([]string{s.options.Address}, s.options.MoreAddresses...) {
		handlers[address] = s.Handler()
	}
	if s.options.ProfilingAddress != "" {
		handlers[s.options.ProfilingAddress] = profilingHandler()
	}

	servers, ctx := errgroup.WithContext(ctx)
	for address, handler := range handlers {
		servers.Go(func() error { return serve(ctx, address, handler) })
	}
	return servers.Wait()
}

// Handler returns the handler that Run serves on Address and MoreAddresses.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.options.Gatherer, promhttp.HandlerOpts{
		// One series that cannot be collected must not hide all others.
		ErrorHandling: promhttp.ContinueOnError,
	}))
	return mux
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	lines := make([]string, 0, len(s.healthMessages))
	for name, message := range s.healthMessages {
		lines = append(lines, "\n"+name+": "+message)
	}
	s.mu.Unlock()
	slices.Sort(lines)
	writeText(w, http.StatusOK, "OK"+strings.Join(lines, ""))
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if s.options.Ready != nil {
		if err := s.options.Ready(); err != nil {
			writeText(w, http.StatusServiceUnavailable, err.Error())
			return
		}
	}
	writeText(w, http.StatusOK, "OK")
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text) // an error means that the client has disconnected
}

// profilingHandler does not serve the command line, which may contain secrets.
func profilingHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/cmdline", http.NotFound)
	return mux
}

func serve(ctx context.Context, address string, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	return serveOn(ctx, listener, handler)
}

// serveOn serves until ctx is done and closes the listener.
func serveOn(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:      handler,
		ReadTimeout:  readTimeout,
		WriteTimeout: writeTimeout,
		IdleTimeout:  idleTimeout,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}

	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(shutdownCtx); err != nil {
		_ = server.Close() // closes the connections that did not end in time
	}
	if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
