// Package demoapp is the demo application: a web server whose errors, latency and readiness are set by environment variables, and a
// load that sends requests of users to it and tests a new version of it. serin demo runs both in a cluster, the playground the
// application.
//
// It must not know Kubernetes, the playground or Serin: it is an application like any other.
package demoapp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"
)

// Config is the configuration, read from environment variables.
type Config struct {
	// Version (VERSION) is in header X-Version and in the body of each answer.
	Version string
	// Pod (HOSTNAME) is in header X-Pod.
	Pod string
	// Port (PORT) is the port on which the server listens, 8080 by default.
	Port int
	// Message (MESSAGE, or the contents of the file that MESSAGE_FILE names) is in header X-Message and in the body.
	Message string
	// ErrorPercent (ERROR_PERCENT) is the percentage of answers with status 500, from 0 to 100, evenly distributed.
	ErrorPercent float64
	// Latency (LATENCY) is the duration of each answer, such as 600ms.
	Latency time.Duration
	// ReadyAfter (READY_AFTER) is the time from the start until /readyz succeeds.
	ReadyAfter time.Duration
	// CrashAfter (CRASH_AFTER) is the time from the start until the program exits with code 1. A negative value, the
	// default, means never.
	CrashAfter time.Duration
	// Drain (DRAIN) is the time without requests after which the server exits, once it received SIGTERM; 3 s by default. Until
	// then /readyz returns 503 and all other requests are answered as before. It must be longer than the usual interval
	// between two requests. maxDrain bounds the drain.
	Drain time.Duration
}

// maxDrain bounds a drain during which requests never stop. It is shorter than a pod's default grace period, 30 s.
//
// A fixed time after SIGTERM is not enough: the endpoint controller of Kubernetes retries an update that was based on a stale
// cache after 1 s, then 2 s, then 4 s, and on a busy machine clients are routed to a terminating pod for as long.
const maxDrain = 27 * time.Second

// ErrCrash is returned by Serve when CRASH_AFTER has elapsed.
var ErrCrash = errors.New("crashed because of CRASH_AFTER")

// FromEnvironment reads a Config. An argument -port=9898 or --port=9898 overrides PORT, for manifests of applications that are
// configured that way. Other arguments are ignored.
func FromEnvironment(getenv func(string) string, args []string) (Config, error) {
	c := Config{
		Version: getenv("VERSION"), Pod: getenv("HOSTNAME"), Message: getenv("MESSAGE"),
		Port: 8080, CrashAfter: -1, Drain: 3 * time.Second,
	}
	var errs []error
	read := func(name string, set func(string) error) {
		value := getenv(name)
		if value == "" {
			return
		}
		if err := set(value); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: %w", name, value, err))
		}
	}
	duration := func(d *time.Duration) func(string) error {
		return func(value string) (err error) { *d, err = time.ParseDuration(value); return err }
	}
	port := func(value string) (err error) { c.Port, err = strconv.Atoi(value); return err }
	read("PORT", port)
	read("ERROR_PERCENT", func(value string) (err error) { c.ErrorPercent, err = strconv.ParseFloat(value, 64); return err })
	read("LATENCY", duration(&c.Latency))
	read("READY_AFTER", duration(&c.ReadyAfter))
	read("CRASH_AFTER", duration(&c.CrashAfter))
	read("DRAIN", duration(&c.Drain))
	read("MESSAGE_FILE", func(path string) error {
		text, err := os.ReadFile(path) //nolint:gosec // the user of the cluster sets the environment
		c.Message = strings.TrimSpace(string(text))
		return err
	})
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name == "port" {
			if err := port(value); err != nil {
				errs = append(errs, fmt.Errorf("argument %s: %w", arg, err))
			}
		}
	}
	if c.ErrorPercent < 0 || c.ErrorPercent > 100 {
		errs = append(errs, fmt.Errorf("ERROR_PERCENT is %v: it must be between 0 and 100", c.ErrorPercent))
	}
	return c, errors.Join(errs...)
}

// Server answers requests.
type Server struct {
	config      Config
	clock       clock.Clock
	started     time.Time
	draining    atomic.Bool
	lastRequest atomic.Int64 // time of the last request, in nanoseconds since 1970; probes and scrapes do not count
	latencySum  *prometheus.HistogramVec
	handler     http.Handler

	mu            sync.Mutex
	pendingErrors float64 // accumulated errors, as a percentage of one answer
}

// New returns a server that does not listen yet.
func New(config Config, c clock.Clock) *Server {
	s := &Server{config: config, clock: c, started: c.Now()}
	s.latencySum = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "http_request_duration_seconds",
		Help:    "Time until a request was answered.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, .75, 1, 2.5, 5, 10},
	}, []string{"status"})
	// A version without errors has the series of errors too: to a query, an absent series is not zero.
	s.latencySum.WithLabelValues("200")
	s.latencySum.WithLabelValues("500")
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.latencySum)

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("/readyz", s.ready)
	mux.HandleFunc("/", s.answer)
	s.handler = mux
	return s
}

// ServeHTTP answers one request. While draining, it asks gateways to close their idle connections instead of closing them itself,
// because the next request may already be on its way on one of them.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	s.handler.ServeHTTP(w, r)
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	switch {
	case s.draining.Load():
		http.Error(w, "draining", http.StatusServiceUnavailable)
	case s.clock.Since(s.started) < s.config.ReadyAfter:
		http.Error(w, "starting", http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ready")
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	begin := s.clock.Now()
	s.lastRequest.Store(begin.UnixNano())
	status := s.nextStatus()
	if s.config.Latency > 0 {
		select {
		case <-s.clock.After(s.config.Latency):
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("X-Version", s.config.Version)
	w.Header().Set("X-Pod", s.config.Pod)
	w.Header().Set("X-Message", s.config.Message)
	w.WriteHeader(status)
	fmt.Fprintf(w, "version %s\npod %s\nmessage %s\nstatus %d\n", s.config.Version, s.config.Pod, s.config.Message, status)
	s.latencySum.WithLabelValues(strconv.Itoa(status)).Observe(s.clock.Since(begin).Seconds())
}

// nextStatus distributes errors evenly: at 10 percent, exactly each tenth answer is an error, so that the outcome of a
// release does not depend on chance.
func (s *Server) nextStatus() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pendingErrors += s.config.ErrorPercent
	if s.pendingErrors < 100 {
		return http.StatusOK
	}
	s.pendingErrors -= 100
	return http.StatusInternalServerError
}

// Serve answers requests on listener until ctx ends, then drains. It returns nil when all requests were answered, and
// ErrCrash after CRASH_AFTER.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // as gateways send the requests of a GRPCRoute
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, Protocols: protocols}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	var crash <-chan time.Time
	if s.config.CrashAfter >= 0 {
		crash = s.clock.After(s.config.CrashAfter)
	}
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-crash:
		return ErrCrash
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.drain()
	// The pod's grace period bounds the requests in progress.
	if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	return nil
}

// drain returns after some time without requests: clients are no longer routed here.
func (s *Server) drain() {
	last := s.clock.Now()
	end := last.Add(max(maxDrain, s.config.Drain))
	for {
		if request := time.Unix(0, s.lastRequest.Load()); request.After(last) {
			last = request
		}
		until := last.Add(s.config.Drain)
		if until.After(end) {
			until = end
		}
		wait := until.Sub(s.clock.Now())
		if wait <= 0 {
			return
		}
		<-s.clock.After(wait)
	}
}
